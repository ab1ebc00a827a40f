//! The same build on the oldest Debian that there are packages for, by rpm: glibc 2.31.

use anyhow::Result;
use softmig_tests::Root;
use softmig_tests::softmig::shipped;

use crate::packages::debs::{STAGED, built};
use crate::packages::node::{LIBRARY, PRELOAD, PackagedNode};

/// Its database of packages knows none of Debian's, so that nothing is there that could be needed.
const INSTALL: &str = "rpm -i --nodeps /root/rpms/*.rpm";
/// The same release again takes the way of an upgrade: the new scripts first, then those of the old one.
const AGAIN: &str = "rpm -U --force --nodeps /root/rpms/*.rpm";
const REMOVE: &str = "rpm -e --nodeps softmig-node softmig-controller softmig";

fn node() -> Result<PackagedNode> {
    let root = Root::oldest().install(shipped().join(STAGED), "/root/new.so", 0o644);
    PackagedNode::start(root, &[("rpms", built("rpm")?)])
}

#[test]
fn rpms_change_under_running_programs() -> Result<()> {
    let node = node()?;
    node.shell(INSTALL)?;
    node.ensure_free()?;
    node.shell("softmig install --hook")?;
    node.ensure_live("/root/new.so")?;
    node.asked_of_systemd()?;

    // The library of an older release.
    node.shell(&format!(
        "printf x >>{LIBRARY}.x && cat /root/new.so {LIBRARY}.x >/root/old.so && rm {LIBRARY}.x"
    ))?;
    node.shell(&format!("cp /root/old.so {LIBRARY}.fresh && chmod 755 {LIBRARY}.fresh && mv {LIBRARY}.fresh {LIBRARY}"))?;
    node.ensure_live("/root/old.so")?;
    let (programs, sleeper) = (node.programs()?, node.sleeper()?);
    node.shell(AGAIN)?;
    programs.end()?;
    node.ensure_live("/root/new.so")?;
    assert_eq!(sleeper.libraries()?, format!("{LIBRARY} (deleted)\n"));
    let asked = node.asked_of_systemd()?;
    assert!(
        asked.contains("try-restart softmig-monitor.service (loaded)\n"),
        "{asked}"
    );
    assert!(!asked.contains("disable"), "{asked}");

    let programs = node.programs()?;
    node.shell(REMOVE)?;
    programs.end()?;
    node.ensure_free()?;
    let asked = node.asked_of_systemd()?;
    assert!(
        asked.starts_with("disable --now softmig-monitor.service (free)\n"),
        "{asked}"
    );
    assert_eq!(node.read(PRELOAD)?, None);
    assert_eq!(
        node.shell("find /etc /usr /var /opt -type f -path '*softmig*' | sort")?,
        "/etc/softmig/.lock\n/etc/softmig/node.conf\n",
        "rpm has no purge"
    );
    Ok(())
}

#[test]
fn all_programs_and_modules_run_with_an_old_c_library() -> Result<()> {
    let node = node()?;
    let glibc = node.shell("ldd --version | head -n 1")?;
    assert!(glibc.contains(" 2.31"), "{glibc}");
    node.shell(INSTALL)?;
    for program in ["softmig", "/usr/libexec/softmig-monitor"] {
        let said = node.shell(&format!("{program} --version"))?;
        assert!(said.ends_with(" 0.1.0\n"), "{said}");
    }
    // Whole runs, as far as they come without a GPU and a Slurm.
    let explained = node.shell(
        "softmig explain --policy /usr/share/softmig/examples/policy.toml --slurm-version 24.11 --gres=gpu:l40s.4:1",
    )?;
    assert!(explained.contains("softmig: granted"), "{explained}");
    for module in ["job_submit", "cli_filter"] {
        for lua in ["5.1", "5.3", "5.4"] {
            let path = format!("/usr/lib/softmig/lua/{lua}/softmig_{module}.so");
            // The whole library is bound, so that a missing symbol is an error here.
            let said = node.shell(&format!(
                "LD_BIND_NOW=1 lua{lua} -e 'print(package.loadlib(\"{path}\", \"luaopen_softmig_{module}\"))'"
            ))?;
            assert!(said.starts_with("function"), "{path}: {said}");
        }
    }
    // With no job around it each says so; a loader's complaint would be another one.
    for program in ["softmig-prolog", "softmig-epilog"] {
        let ran = node.try_shell(&format!("/usr/libexec/{program}"))?;
        assert!(
            !ran.success() && ran.stderr.contains("SLURM_JOB_ID"),
            "{program}: {ran}"
        );
    }
    // The trial of the library: programs of root's, of a user's, and set-uid ones.
    node.shell("softmig install --hook")?;
    node.ensure_live("/root/new.so")?;
    Ok(())
}
