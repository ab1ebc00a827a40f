//! Setting up machines and images: upgrades, files of Slurm's, `softmig doctor`.

mod doctor;
#[cfg(feature = "full")]
mod upgrades;

use anyhow::{Context, Result};
use softmig_tests::programs::{LIBRARY, PRELOAD};
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Root, Slurm, on_each_slurm};

on_each_slurm!(config_is_for_this_machines_slurm_and_renews_its_files,);

pub(crate) fn shell(machine: &Machine, script: &str) -> Result<String> {
    machine
        .command("root", &["sh", "-c", script])
        .output()?
        .ok()
}

#[test]
fn systemd_knows_the_folder_of_logs() -> Result<()> {
    const CONF: &str = "/usr/lib/tmpfiles.d/softmig.conf";
    for slurm in Slurm::ALL {
        let machine = Root::new(slurm).layer(stage()).start()?;
        let made = machine
            .command("root", &["systemd-tmpfiles", "--create", CONF])
            .output()?;
        assert!(made.success() && made.stderr.is_empty(), "{made}");
        let said = shell(&machine, "stat -c '%U %a' /var/log/softmig")?;
        assert_eq!(said, "root 755\n");
    }
    Ok(())
}

fn config_is_for_this_machines_slurm_and_renews_its_files(slurm: Slurm) -> Result<()> {
    let policy = include_str!("../../conf/policy.toml");
    let machine = Root::new(slurm)
        .layer(stage())
        .file("/etc/softmig/policy.toml", policy)
        .start()?;
    let write = || {
        machine
            .command("root", &["softmig", "config", "--write", "/root"])
            .output()
    };
    let said = write()?;
    for told in [
        format!("for Slurm {slurm}"),
        ", which is on this machine".into(),
    ] {
        assert!(said.stderr.contains(&told), "{said}");
    }
    assert!(said.ok()?.contains("/root/softmig.conf: written\n"));
    let packed = policy.replace("shards = \"pack\"", "shards = \"spread\"");
    assert_ne!(packed, policy);
    machine.write("/etc/softmig/policy.toml", &packed)?;
    let said = write()?.ok()?;
    assert!(
        said.contains("/root/softmig.conf: written over softmig's earlier one"),
        "{said}"
    );
    assert!(said.contains("/root/cgroup.conf: unchanged"), "{said}");
    shell(&machine, "echo '# ours' >> /root/softmig.conf")?;
    machine.write("/etc/softmig/policy.toml", policy)?;
    let said = write()?;
    assert_eq!(said.status.code(), Some(3), "{said}");
    assert!(
        said.stdout
            .contains("/root/softmig.conf: differs, and is left"),
        "{said}"
    );
    Ok(())
}

/// The commands of docs/install.md on images.
const INTO_IMAGE: &str = "mount --bind /srv/image /srv/image; cd /srv/image; mount -t proc proc proc; \
     mount --rbind /dev dev; chroot . softmig install --hook --mode enforce";

#[test]
fn an_image_gets_the_library_and_its_machine_is_not_touched() -> Result<()> {
    let machine = Root::new(Slurm::V22_05).layer(stage()).start()?;
    shell(
        &machine,
        "mkdir -p /srv/rw /srv/image && mount -t tmpfs none /srv/rw && mkdir /srv/rw/upper /srv/rw/work && \
         mount -t overlay overlay -o lowerdir=/,upperdir=/srv/rw/upper,workdir=/srv/rw/work /srv/image",
    )
    .context("an image of the machine itself")?;
    let mounts = shell(&machine, "cat /proc/self/mounts")?;
    machine
        .command("root", &["unshare", "--mount", "sh", "-ec", INTO_IMAGE])
        .output()?
        .ok()?;
    assert_eq!(shell(&machine, "cat /proc/self/mounts")?, mounts);
    assert!(machine.read(PRELOAD)?.is_none() && !machine.path(LIBRARY)?.exists());
    let image = |script: &str| shell(&machine, &format!("cd /srv/image && {script}"));
    assert_eq!(image("cat etc/ld.so.preload")?, format!("{LIBRARY}\n"));
    assert!(image("cat etc/softmig/node.conf")?.contains("SOFTMIG_NODE=enforce"));
    image("cmp usr/lib/softmig/libsoftmig.so usr/lib/softmig/staged/libsoftmig.so").map(drop)
}
