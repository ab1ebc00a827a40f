//! `softmig install ROLE`, `upgrade` and `uninstall` out of an unpacked tree, into a machine and into an image; `doctor`.

mod doctor;
mod trees;
#[cfg(feature = "full")]
mod upgrades;

use anyhow::{Context, Result};
use softmig_tests::programs::{LIBRARY, PRELOAD};
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Root, Slurm, on_each_slurm};
use trees::{NEW, OLD, Trees};

on_each_slurm!(
    a_machine_is_installed_upgraded_and_uninstalled,
    an_image_is_installed_and_its_machine_is_not_touched,
    config_is_for_the_slurm_of_the_machine_and_renews_its_own_files,
);

pub(crate) fn shell(machine: &Machine, script: &str) -> Result<String> {
    machine
        .command("root", &["sh", "-c", script])
        .output()?
        .ok()
}

/// The text of a refusal.
fn refused(machine: &Machine, script: &str) -> Result<String> {
    machine
        .command("root", &["sh", "-c", script])
        .output()?
        .refused()
}

/// Every file that an installation could make or change, with what is in it, and owner and mode.
fn state(machine: &Machine) -> Result<String> {
    shell(
        machine,
        "find /etc /usr/bin /usr/lib/softmig /usr/libexec /usr/lib/systemd /usr/lib/sysusers.d /usr/lib/tmpfiles.d /usr/share/softmig \
              /usr/share/man /var/lib/softmig /var/log/softmig \
              -not -path /etc/softmig/.lock -not -path /etc/softmig/.setup-lock \\( -type f -o -type l \\) \
              -printf '%p %U %m %l\\n' -type f -exec sha256sum {} + 2>/dev/null | sort",
    )
}

const SLURM_CONF: &str = "/etc/slurm/slurm.conf";

fn a_machine_is_installed_upgraded_and_uninstalled(slurm: Slurm) -> Result<()> {
    let trees = Trees::make()?;
    let machine = Root::new(slurm).layer(trees.layer()).start()?;
    shell(&machine, "mkdir -p /etc/slurm")?;
    let nothing = state(&machine)?;

    let said = shell(
        &machine,
        &format!("{OLD}/usr/bin/softmig install controller gpu-node --dry-run"),
    )?;
    for part in [
        "would place /usr/libexec/softmig-prolog",
        "would place /etc/slurm/job_submit.lua",
        "would try the library",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    assert_eq!(state(&machine)?, nothing);

    let said = shell(
        &machine,
        &format!("{OLD}/usr/bin/softmig install controller gpu-node"),
    )?;
    for part in [
        "place /usr/libexec/softmig-prolog: done",
        "place /etc/slurm/cli_filter.lua: done",
        "the mode is observe",
        "next: /etc/softmig/policy.toml is not there",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let old = state(&machine)?;
    let live = |tree: &str| {
        shell(
            &machine,
            &format!("cmp {LIBRARY} {tree}/usr/lib/softmig/staged/libsoftmig.so"),
        )
    };
    live(OLD)?;
    assert_eq!(
        machine.read(PRELOAD)?.as_deref(),
        Some(&*format!("{LIBRARY}\n"))
    );
    let again = shell(
        &machine,
        &format!("{OLD}/usr/bin/softmig install controller gpu-node"),
    )?;
    assert!(!again.contains(": done"), "{again}");
    assert_eq!(state(&machine)?, old);

    // Up and down again; the roles are known.
    shell(&machine, &format!("{NEW}/usr/bin/softmig upgrade"))?;
    live(NEW)?;
    let new = state(&machine)?;
    assert_ne!(new, old);
    shell(&machine, &format!("{OLD}/usr/bin/softmig upgrade"))?;
    assert_eq!(state(&machine)?, old);

    // A library that does harm: all that was placed before it goes back.
    let staged = format!("{NEW}/usr/lib/softmig/staged/libsoftmig.so");
    shell(
        &machine,
        &format!("cp {staged} /root/good.so; echo no library > {staged}"),
    )?;
    let said = refused(&machine, &format!("{NEW}/usr/bin/softmig upgrade"))?;
    assert!(said.contains("all is as it was before"), "{said}");
    assert_eq!(state(&machine)?, old);
    live(OLD)?;
    shell(&machine, &format!("mv /root/good.so {staged}"))?;

    // The site's own script stays, and what to add is said.
    let own = "-- ours\nreturn slurm.SUCCESS\n";
    machine.write("/etc/slurm/cli_filter.lua", own)?;
    let said = shell(&machine, &format!("{NEW}/usr/bin/softmig upgrade"))?;
    assert!(
        said.contains("/etc/slurm/cli_filter.lua is the site's own"),
        "{said}"
    );
    assert!(said.contains("softmig_cli_filter.so\""), "{said}");
    assert_eq!(
        machine.read("/etc/slurm/cli_filter.lua")?.as_deref(),
        Some(own)
    );

    // Slurm's lines go first.
    machine.write(
        SLURM_CONF,
        "ClusterName=c\nSlurmctldHost=c\nProlog=/usr/libexec/softmig-prolog\nJobSubmitPlugins=lua\n",
    )?;
    let before = state(&machine)?;
    let said = machine
        .command("root", &["softmig", "uninstall"])
        .output()?;
    for part in [
        "take Prolog=/usr/libexec/softmig-prolog out of",
        "take lua out of JobSubmitPlugins",
    ] {
        assert!(said.stdout.contains(part), "{said}");
    }
    assert!(said.refused()?.contains("nothing was removed"));
    assert_eq!(state(&machine)?, before);
    shell(
        &machine,
        &format!("rm {SLURM_CONF} /etc/slurm/cli_filter.lua"),
    )?;

    let said = shell(&machine, "softmig uninstall")?;
    assert!(said.contains("left: /etc/softmig"), "{said}");
    assert!(!machine.path(LIBRARY)?.exists() && !machine.path("/usr/bin/softmig")?.exists());
    assert!(machine.read("/etc/softmig/node.conf")?.is_some());
    shell(
        &machine,
        &format!("{NEW}/usr/bin/softmig uninstall --purge"),
    )?;
    assert_eq!(state(&machine)?, nothing);
    Ok(())
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

fn config_is_for_the_slurm_of_the_machine_and_renews_its_own_files(slurm: Slurm) -> Result<()> {
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

fn an_image_is_installed_and_its_machine_is_not_touched(slurm: Slurm) -> Result<()> {
    let trees = Trees::make()?;
    let machine = Root::new(slurm).layer(trees.layer()).start()?;
    shell(
        &machine,
        "mkdir -p /etc/slurm /srv/rw /srv/image && mount -t tmpfs none /srv/rw && mkdir /srv/rw/upper /srv/rw/work && \
         mount -t overlay overlay -o lowerdir=/,upperdir=/srv/rw/upper,workdir=/srv/rw/work /srv/image",
    )
    .context("an image of the machine itself")?;
    let before = state(&machine)?;
    let said = shell(
        &machine,
        &format!("{OLD}/usr/bin/softmig install gpu-node --mode enforce --root /srv/image"),
    )?;
    assert!(
        said.contains("place /usr/libexec/softmig-prolog: done"),
        "{said}"
    );
    assert_eq!(state(&machine)?, before);
    let image = |script: &str| shell(&machine, &format!("cd /srv/image && {script}"));
    assert_eq!(image("cat etc/ld.so.preload")?, format!("{LIBRARY}\n"));
    assert!(image("cat etc/softmig/node.conf")?.contains("SOFTMIG_NODE=enforce"));
    image(&format!(
        "cmp usr/lib/softmig/libsoftmig.so {OLD}/usr/lib/softmig/staged/libsoftmig.so"
    ))?;
    image("test -L etc/systemd/system/multi-user.target.wants/softmig-monitor.service")?;
    shell(
        &machine,
        &format!("{NEW}/usr/bin/softmig upgrade --root /srv/image"),
    )?;
    image(&format!(
        "cmp usr/lib/softmig/libsoftmig.so {NEW}/usr/lib/softmig/staged/libsoftmig.so"
    ))?;
    shell(
        &machine,
        &format!("{NEW}/usr/bin/softmig uninstall --purge --root /srv/image"),
    )?;
    image("test ! -e etc/ld.so.preload && test ! -e usr/bin/softmig && test ! -e etc/softmig")?;
    // Neither folder is a whole image.
    let said = refused(
        &machine,
        &format!("{OLD}/usr/bin/softmig install gpu-node --root /"),
    )?;
    assert!(said.contains("leave out --root"), "{said}");
    let said = refused(
        &machine,
        &format!("{OLD}/usr/bin/softmig install gpu-node --root /srv/rw"),
    )?;
    assert!(said.contains("it has no usr/bin"), "{said}");
    assert_eq!(state(&machine)?, before);
    Ok(())
}
