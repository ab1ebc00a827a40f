//! Folders and lists that others can change are not used.

use anyhow::Result;
use softmig_tests::Slurm;

use crate::install::place::{PRELOAD, SOFTMIG, install, root, shell, softmig, state};
use crate::install::workshop::Workshop;

#[test]
fn a_folder_or_a_list_that_others_can_change_is_refused() -> Result<()> {
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    let machine = root(Slurm::V22_05, &[&library])?.start()?;
    shell(
        &machine,
        "mkdir -p /opt/open/lib /opt/alice/lib; chmod 775 /opt/open; chown alice /opt/alice; ln -s /tmp /opt/link",
    )?;
    for (folder, complaint) in [
        (
            "/opt/open/lib",
            "/opt/open can be written to by others than root (mode 0775)",
        ),
        ("/opt/alice/lib", "/opt/alice belongs to user 2001"),
        ("/opt/alice", "/opt/alice belongs to user 2001"),
        ("/opt/link/lib", "/tmp can be written to by others"),
        ("/opt/no/lib", "make /opt/no first"),
        ("lib", "give the folder as a path from /"),
    ] {
        let refused = install(&machine, &library, &["--libdir", folder])?.refused()?;
        assert!(refused.contains(complaint), "{folder}: {refused}");
    }
    for (setup, complaint) in [
        (
            format!("touch {PRELOAD}; chmod 666 {PRELOAD}"),
            "can be changed by others than root",
        ),
        (
            format!("chmod 644 {PRELOAD}; chown alice {PRELOAD}"),
            "can be changed by others than root",
        ),
        (
            format!("rm {PRELOAD}; ln -s /etc/other {PRELOAD}; touch /etc/other"),
            "is a link",
        ),
        (
            format!("rm {PRELOAD}; mkdir {PRELOAD}"),
            "is not a plain file",
        ),
        (
            format!("rmdir {PRELOAD}; echo /var/lib/shared/libsoftmig.so > {PRELOAD}"),
            "already names /var/lib/shared/libsoftmig.so",
        ),
        (
            format!("echo > {PRELOAD}; mount --bind {PRELOAD} {PRELOAD}"),
            "something is mounted there",
        ),
    ] {
        shell(&machine, &setup)?;
        let before = state(&machine)?;
        let refused = install(&machine, &library, &[])?.refused()?;
        assert!(refused.contains(complaint), "{setup}: {refused}");
        let listed = |state: &str| state.lines().filter(|line| line.contains("/etc/")).count();
        assert_eq!(listed(&state(&machine)?), listed(&before), "{setup}");
    }
    shell(&machine, &format!("umount {PRELOAD}; rm {PRELOAD}"))?;
    let stranger = machine
        .command("alice", &[SOFTMIG, "install", "--hook"])
        .output()?;
    assert!(stranger.refused()?.contains("try it with sudo"));
    install(&machine, &library, &["--libdir", "/opt"])?.ok()?;
    assert!(
        machine
            .read(PRELOAD)?
            .unwrap_or_default()
            .ends_with("/opt/libsoftmig.so\n")
    );
    let left = softmig(&machine, &["uninstall", "--hook"])?.refused()?;
    assert!(left.contains("still names /opt/libsoftmig.so"), "{left}");
    softmig(&machine, &["uninstall", "--hook", "--libdir", "/opt"])?.ok()?;
    assert!(machine.read(PRELOAD)?.is_none());
    Ok(())
}
