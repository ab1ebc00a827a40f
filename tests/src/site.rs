//! A site that is made from its policy alone: Slurm's files are what `softmig config` prints.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::softmig::{installed, stage};
use crate::{Accounting, Builder, Cluster, Slurm};

/// The files that `softmig config --write` makes of a policy, by name.
pub fn made(slurm: Slurm, policy: &str) -> Result<BTreeMap<String, String>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, policy)?;
    let output = Command::new(stage().join("usr/bin/softmig"))
        .args(["config", "--slurm-version", &slurm.to_string()])
        .arg("--policy")
        .arg(&path)
        .arg("--write")
        .arg(folder.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    std::fs::remove_file(path)?;
    std::fs::read_dir(folder.path())?
        .map(|entry| {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, std::fs::read_to_string(entry.path())?))
        })
        .collect()
}

/// The scripts that an administrator runs once Slurm is up.
const SCRIPTS: [&str; 2] = ["softmig-qos.sh", "softmig-reservations.sh"];

/// A cluster with softmig, this policy and the files made of it. Its nodes are named after `tag`.
pub fn site(slurm: Slurm, tag: &str, policy: &str) -> Result<Builder> {
    let files = made(slurm, policy)?;
    let text = |name: &str| files.get(name).with_context(|| format!("no {name}"));
    let mut builder = installed(slurm)
        .tag(tag)
        .file("/etc/softmig/policy.toml", policy)
        .include("softmig.conf", text("softmig.conf")?)
        .file("/etc/slurm/gres.conf", text("gres.conf")?);
    for script in SCRIPTS {
        builder = builder.file(format!("/root/{script}"), text(script)?);
    }
    Ok(builder)
}

/// The same with accounts, started, and its scripts run.
pub fn site_with_accounts(builder: Builder, accounting: Accounting) -> Result<Cluster> {
    let cluster = builder.accounting(accounting).start()?;
    for script in SCRIPTS {
        let path = format!("/root/{script}");
        cluster.run("root", &["sh", &path])?.ok().context(script)?;
    }
    cluster.settle_accounts()?;
    Ok(cluster)
}

/// The words of a test node's line that no policy knows: where it is, and more CPUs than any test needs.
pub const NODE: &str =
    "NodeHostname=softmig NodeAddr=127.0.0.1 Port=17000 CPUs=64 CoresPerSocket=64 RealMemory=16000";
