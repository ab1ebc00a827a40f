//! contrib/ansible, run by ansible-playbook on a machine with the packages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use softmig_tests::softmig::shipped;
use softmig_tests::{Machine, Root, Slurm};

use crate::packages::debs::built;
use crate::packages::node::{LIBRARY, PRELOAD};

/// A tree like `/` with ansible-core in /opt/ansible, from `cargo xtask packages --test`.
fn ansible() -> PathBuf {
    shipped().with_file_name("ansible")
}

const INVENTORY: &str = "
[slurm_gpu_nodes]
localhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3
[slurm_controllers]
[slurm_submit_hosts]
";

/// Everything below `folder`, with its path from there.
fn files(folder: &Path, below: &Path, found: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
    {
        let entry = entry?;
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        match path.is_dir() {
            true => files(&path, &name, found)?,
            false => found.push((path, name)),
        }
    }
    Ok(())
}

fn machine() -> Result<Machine> {
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/ansible");
    let policy = shipped().join("usr/share/softmig/examples/policy.toml");
    let mut root = Root::new(Slurm::V22_05)
        .layer(ansible())
        .file("/srv/contrib/ansible/inventory", INVENTORY)
        .install(policy, "/srv/contrib/ansible/policy.toml", 0o644);
    let mut found = Vec::new();
    files(&contrib, Path::new(""), &mut found)?;
    for (file, name) in found {
        root = root.install(file, Path::new("/srv/contrib/ansible").join(name), 0o644);
    }
    for deb in built("deb")? {
        let name = deb
            .file_name()
            .context("a package without a name")?
            .to_owned();
        root = root.install(&deb, Path::new("/srv/target/packages").join(name), 0o644);
    }
    root.start()
}

/// Runs the playbook; the last line of what it says, which counts.
fn play(machine: &Machine) -> Result<String> {
    let output = machine
        .command(
            "root",
            &[
                "python3",
                "-m",
                "ansible",
                "playbook",
                "-i",
                "inventory",
                "site.yml",
            ],
        )
        .cwd("/srv/contrib/ansible")
        .env("PYTHONPATH", "/opt/ansible")
        .env("ANSIBLE_NOCOLOR", "1")
        .timeout(Duration::from_secs(400))
        .output()?;
    anyhow::ensure!(output.success(), "{output}");
    Ok(output
        .stdout
        .trim_end()
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned())
}

#[test]
fn the_role_sets_up_a_gpu_node_and_can_run_again() -> Result<()> {
    let machine = machine()?;
    let counts = play(&machine)?;
    assert!(!counts.contains("changed=0"), "{counts}");
    assert_eq!(
        machine.read(PRELOAD)?.as_deref(),
        Some(&*format!("{LIBRARY}\n"))
    );
    let conf = machine
        .read("/etc/softmig/node.conf")?
        .context("no node.conf")?;
    assert!(conf.contains("SOFTMIG_NODE=observe\n"), "{conf}");
    assert!(machine.read("/etc/slurm/cli_filter.lua")?.is_some());
    assert_eq!(
        machine.read("/etc/softmig/policy.toml")?,
        machine.read("/srv/contrib/ansible/policy.toml")?
    );
    let counts = play(&machine)?;
    assert!(counts.contains("changed=0"), "{counts}");

    // A file that is not a policy is not copied to the node.
    let before = machine.read("/etc/softmig/policy.toml")?;
    machine.write("/srv/contrib/ansible/policy.toml", "[gpu.\n")?;
    assert!(play(&machine).is_err());
    assert_eq!(machine.read("/etc/softmig/policy.toml")?, before);
    Ok(())
}
