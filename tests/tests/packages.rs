//! The packages of `cargo xtask packages`, by dpkg on Debian 12 and 13, by rpm, and with the oldest C library there is.

mod ansible;
mod debs;
mod first_slice;
mod lists;
mod node;
mod oldest;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use debs::{STAGED, built, release};
use node::{LIBRARY, PRELOAD, PackagedNode};
use softmig_tests::softmig::shipped;
use softmig_tests::{Root, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    packages_change_under_running_programs,
    a_node_that_is_not_set_up_stays_so,
    a_library_that_fails_its_trial_does_not_come_with_an_upgrade,
    a_package_whose_library_cannot_be_taken_out_is_not_removed,
    a_library_of_others_stays,
);

const NEW: &str = "0.1.0-1";
const OLD: &str = "0.0.9-1";

/// Compiles a library.
fn library(folder: &Path, name: &str, source: &str) -> Result<PathBuf> {
    let (code, library) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&code, source)?;
    debs::run(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &code]),
    )?;
    Ok(library)
}

/// One that does nothing.
fn harmless(folder: &Path) -> Result<PathBuf> {
    library(folder, "harmless.so", "int softmig_test = 1;")
}

/// A node with the release as built, and an older one with another library.
fn node(slurm: Slurm) -> Result<PackagedNode> {
    let folder = tempfile::tempdir()?;
    let old = release(folder.path(), OLD, Some(&harmless(folder.path())?))?;
    let staged = shipped().join(STAGED);
    PackagedNode::start(
        Root::new(slurm)
            .install(staged, "/root/new.so", 0o644)
            .install(folder.path().join("harmless.so"), "/root/old.so", 0o644),
        &[(OLD, old), (NEW, built("deb")?)],
    )
}

fn dpkg(release: &str) -> String {
    format!("dpkg -i /root/{release}/*.deb")
}

const REMOVE: &str = "dpkg -r softmig-node softmig-controller softmig";
const PURGE: &str = "dpkg -P softmig-node softmig-controller softmig";

fn packages_change_under_running_programs(slurm: Slurm) -> Result<()> {
    let node = node(slurm)?;
    let left = "find / -xdev -not -path '/proc/*' -not -path '/root/*' -not -path '/tmp/*' \
                -not -path '/run/systemd/*' -name '*softmig*' | sort";
    // Each machine of the tests begins with them.
    node.shell("rm -rf /var/lib/softmig /var/log/softmig")?;
    let before = node.shell(left)?;

    node.shell(&dpkg(OLD))?;
    node.ensure_free()?;
    node.shell("softmig install --hook")?;
    node.ensure_live("/root/old.so")?;
    assert_eq!(
        node.shell("dpkg -S /usr/lib/softmig/libsoftmig.so 2>/dev/null || echo none")?,
        "none\n"
    );
    node.write("/etc/softmig/policy.toml", "# the site's\n")?;
    node.asked_of_systemd()?;

    // Upgrade.
    let (programs, sleeper) = (node.programs()?, node.sleeper()?);
    node.shell(&dpkg(NEW))?;
    programs.end()?;
    node.ensure_live("/root/new.so")?;
    assert_eq!(sleeper.libraries()?, format!("{LIBRARY} (deleted)\n"));
    let asked = node.asked_of_systemd()?;
    assert_eq!(
        asked,
        "daemon-reload (loaded)\ndaemon-reload (loaded)\ntry-restart softmig-monitor.service (loaded)\ntry-restart softmig-notices.service (loaded)\n",
        "postrm of the old package, then postinst of the new one"
    );
    // The same once more.
    let inode = node.shell(&format!("stat -c %i {LIBRARY} {PRELOAD}"))?;
    node.shell(&dpkg(NEW))?;
    assert_eq!(
        node.shell(&format!("stat -c %i {LIBRARY} {PRELOAD}"))?,
        inode
    );

    // Downgrade.
    let programs = node.programs()?;
    node.shell(&dpkg(OLD))?;
    programs.end()?;
    node.ensure_live("/root/old.so")?;

    // Removal.
    node.asked_of_systemd()?;
    let programs = node.programs()?;
    node.shell(REMOVE)?;
    programs.end()?;
    node.ensure_free()?;
    assert_eq!(
        node.asked_of_systemd()?,
        "disable --now softmig-monitor.service (free)\ndisable --now softmig-notices.service (free)\ndisable --now run-softmig.mount (free)\ndaemon-reload (free)\n",
        "no process may load the library any more when the monitor ends"
    );
    assert!(node.read("/etc/softmig/node.conf")?.is_some());

    // Purge: what is left is the administrator's.
    node.shell("mkdir -p /var/log/softmig /var/lib/softmig; touch /var/log/softmig/7.log")?;
    node.shell(PURGE)?;
    assert_eq!(
        node.shell("find /etc/softmig -type f")?,
        "/etc/softmig/policy.toml\n"
    );
    node.shell("rm -r /etc/softmig")?;
    assert_eq!(node.shell(left)?, before);
    Ok(())
}

fn a_node_that_is_not_set_up_stays_so(slurm: Slurm) -> Result<()> {
    let node = node(slurm)?;
    node.shell(&dpkg(NEW))?;
    node.ensure_free()?;
    assert!(node.read("/etc/softmig/node.conf")?.is_none());
    node.shell("softmig --version && cmp /usr/lib/softmig/staged/libsoftmig.so /root/new.so")?;
    // The mode that was chosen before the library came is kept, and no library comes with an upgrade.
    node.write("/etc/softmig/node.conf", "SOFTMIG_NODE=off\n")?;
    node.shell(&dpkg(OLD))?;
    node.ensure_free()?;
    assert_eq!(
        node.read("/etc/softmig/node.conf")?.as_deref(),
        Some("SOFTMIG_NODE=off\n")
    );
    // One package needs the others of its release.
    let refused = node
        .try_shell(&format!("dpkg -i /root/{NEW}/softmig-node*.deb"))?
        .refused()?;
    assert!(refused.contains("softmig (= 0.1.0-1)"), "{refused}");
    Ok(())
}

fn a_library_that_fails_its_trial_does_not_come_with_an_upgrade(slurm: Slurm) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bad = library(
        folder.path(),
        "bad.so",
        "#include <stdio.h>\n__attribute__((constructor)) static void f(void) { fputs(\"noise\\n\", stderr); }",
    )?;
    let bad = release(folder.path(), "0.2.0-1", Some(&bad))?;
    let staged = shipped().join(STAGED);
    let node = PackagedNode::start(
        Root::new(slurm).install(staged, "/root/new.so", 0o644),
        &[(NEW, built("deb")?), ("0.2.0-1", bad)],
    )?;
    node.shell(&dpkg(NEW))?;
    node.shell("softmig install --hook")?;
    let programs = node.programs()?;
    let upgrade = node.try_shell(&dpkg("0.2.0-1"))?;
    programs.end()?;
    ensure!(upgrade.success(), "{upgrade}");
    assert!(upgrade.stderr.contains("does harm"), "{upgrade}");
    assert!(
        upgrade.stderr.contains(
            "softmig-node: this node keeps the library that it has. For another try: softmig install --hook --libdir /usr/lib/softmig"
        ),
        "{upgrade}"
    );
    node.ensure_live("/root/new.so")?;
    assert_eq!(
        node.shell("dpkg-query -W -f '${Version} ${Status}' softmig-node")?,
        "0.2.0-1 install ok installed"
    );
    Ok(())
}

fn a_package_whose_library_cannot_be_taken_out_is_not_removed(slurm: Slurm) -> Result<()> {
    let node = node(slurm)?;
    node.shell(&dpkg(NEW))?;
    node.shell("softmig install --hook")?;
    // An entry that only the loader understands may be the library too: `softmig uninstall` refuses.
    let mut list = node.read(PRELOAD)?.context("no list")?;
    list.push_str("/usr/$LIB/libsoftmig.so\n");
    node.shell("mkdir -p /usr/lib/x86_64-linux-gnu && cp /root/new.so /usr/lib/x86_64-linux-gnu/libsoftmig.so")?;
    node.write(PRELOAD, &list)?;
    let removal = node.try_shell("dpkg -r softmig-node")?;
    assert!(!removal.success(), "{removal}");
    node.shell("[ -e /usr/libexec/softmig-prolog ] && [ -e /usr/lib/softmig/libsoftmig.so ]")?;
    Ok(())
}

/// Another project's library may have the same file name. It is not for a package to replace it or to take it out.
fn a_library_of_others_stays(slurm: Slurm) -> Result<()> {
    let node = node(slurm)?;
    node.shell("mkdir -p /var/lib/shared && cp /root/old.so /var/lib/shared/libsoftmig.so")?;
    node.write(PRELOAD, "/var/lib/shared/libsoftmig.so\n")?;
    for step in [dpkg(OLD), dpkg(NEW), REMOVE.to_owned(), PURGE.to_owned()] {
        node.shell(&step)?;
        assert_eq!(
            node.read(PRELOAD)?.as_deref(),
            Some("/var/lib/shared/libsoftmig.so\n"),
            "{step}"
        );
        node.shell("cmp /root/old.so /var/lib/shared/libsoftmig.so")?;
    }
    Ok(())
}
