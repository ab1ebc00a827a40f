//! Libraries that do harm are found out, and nothing of them stays.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use softmig_tests::Slurm;

use crate::install::place::{
    LIBRARY, PRELOAD, healthy, inode, install, root, shell, softmig, state,
};
use crate::install::workshop::Workshop;

/// The code that runs when such a library is loaded, and the complaint.
const AT_LOAD: [(&str, &str, &str); 8] = [
    (
        "exits",
        "_exit(3);",
        "ends with exit status: 3 instead of exit status: 0",
    ),
    ("crashes", "raise(SIGSEGV);", "signal: 11 (SIGSEGV)"),
    (
        "complains",
        "fputs(\"\\033[2Jno\\n\", stderr);",
        "standard error: \\x1b[2Jno",
    ),
    (
        "talks",
        "puts(\"hello\"); fflush(stdout);",
        "writes something else: hello",
    ),
    ("hangs", "for (;;) pause();", "does not come to its end"),
    (
        "set_uid",
        "if (getauxval(AT_SECURE)) abort();",
        "as user nobody ends with signal: 6 (SIGABRT)",
    ),
    (
        "by_list",
        "if (!getenv(\"LD_PRELOAD\")) _exit(4);",
        "ends with exit status: 4",
    ),
    (
        "users",
        "if (getuid() == 65534) _exit(5);",
        "as user nobody ends with exit status: 5",
    ),
];

/// A library and what is complained about.
type Case = (PathBuf, &'static str);

fn cases(workshop: &Workshop) -> Result<Vec<Case>> {
    let mut cases = broken_files(workshop)?;
    for (name, code, complaint) in AT_LOAD {
        cases.push((workshop.at_load(&format!("{name}.so"), code)?, complaint));
    }
    let stub = workshop.build("libnotthere.so", "int there(void) { return 1; }", &[])?;
    let stub = stub.to_str().context("a path that is no text")?;
    let needy = "int there(void); int f(void) { return there(); }";
    let missing = "int not_there(void); int f(void) { return not_there(); }";
    cases.push((
        workshop.build("needy.so", needy, &[stub])?,
        "libnotthere.so",
    ));
    cases.push((
        workshop.build("missing.so", missing, &[])?,
        "undefined symbol: not_there",
    ));
    Ok(cases)
}

/// Files that are no library for this machine.
fn broken_files(workshop: &Workshop) -> Result<Vec<Case>> {
    const BY_LOADER: &str = "standard error: ERROR: ld.so: object";
    let good = std::fs::read(workshop.harmless(1)?)?;
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let half = good[..good.len() / 2].to_vec();
    [
        ("text.so", b"not a library at all\n".to_vec(), BY_LOADER),
        // Its machine is aarch64, its class 32 bits.
        ("arm.so", with(18, 183), BY_LOADER),
        ("class.so", with(4, 1), BY_LOADER),
        ("half.so", half, ""),
    ]
    .into_iter()
    .map(|(name, bytes, complaint)| {
        std::fs::write(workshop.path(name), bytes)?;
        Ok((workshop.path(name), complaint))
    })
    .collect()
}

#[test]
fn a_harmful_library_is_found_before_anything_changes() -> Result<()> {
    let workshop = Workshop::open()?;
    let cases = cases(&workshop)?;
    let libraries: Vec<&Path> = cases.iter().map(|(library, _)| library.as_path()).collect();
    let machine = root(Slurm::V22_05, &libraries)?.start()?;
    // The folder stays; it is empty.
    shell(&machine, "mkdir /usr/lib/softmig")?;
    let before = state(&machine)?;
    for (library, complaint) in &cases {
        let refused = install(&machine, library, &[])?.refused()?;
        let name = library.display();
        assert!(refused.contains(complaint), "{name}: {refused}");
        assert!(
            refused.contains("nothing on this node has changed: ")
                && refused.contains("does harm: '"),
            "{name}: {refused}"
        );
        assert!(
            refused
                .bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)),
            "{refused}"
        );
        assert_eq!(state(&machine)?, before, "{name}");
        assert!(!healthy(&machine)?, "{name}");
    }
    assert!(machine.read("/etc/softmig/node.conf")?.is_none());
    Ok(())
}

#[test]
fn a_library_that_does_harm_only_in_force_is_taken_back() -> Result<()> {
    let workshop = Workshop::open()?;
    let good = workshop.harmless(1)?;
    // Where it is tried there is another /tmp.
    let late = workshop.at_load(
        "late.so",
        "if (!access(\"/tmp/trap\", F_OK) && !getenv(\"LD_PRELOAD\")) fputs(\"late\\n\", stderr);",
    )?;
    let machine = root(Slurm::V22_05, &[&good, &late])?.start()?;
    shell(&machine, "mkdir -p /usr/lib/softmig; touch /tmp/trap")?;
    for there in [None, Some(""), Some("# theirs")] {
        if let Some(text) = there {
            machine.write(PRELOAD, text)?;
        }
        let before = state(&machine)?;
        let refused = install(&machine, &late, &[])?.refused()?;
        assert!(refused.contains("all is as it was before: '"), "{refused}");
        assert!(
            refused.contains("writes to standard error: late"),
            "{refused}"
        );
        assert_eq!(state(&machine)?, before);
        assert!(!healthy(&machine)?);
    }
    // The same where an earlier one is in force.
    install(&machine, &good, &[])?.ok()?;
    let before = [
        state(&machine)?,
        inode(&machine, LIBRARY)?,
        inode(&machine, PRELOAD)?,
    ];
    install(&machine, &late, &[])?.refused()?;
    let after = [
        state(&machine)?,
        inode(&machine, LIBRARY)?,
        inode(&machine, PRELOAD)?,
    ];
    assert_eq!(after, before);
    assert!(healthy(&machine)?);
    Ok(())
}

#[test]
fn a_library_that_does_harm_in_force_can_be_taken_out() -> Result<()> {
    let workshop = Workshop::open()?;
    let good = workshop.harmless(1)?;
    let noisy = workshop.at_load("noisy.so", "fputs(\"no\\n\", stderr);")?;
    let machine = root(Slurm::V22_05, &[&good, &noisy])?.start()?;
    install(&machine, &good, &[])?.ok()?;
    // As a package's upgrade would, which does not run `softmig install`.
    let place = format!(
        "cp /root/noisy.so {LIBRARY}.new; chmod 755 {LIBRARY}.new; mv {LIBRARY}.new {LIBRARY}"
    );
    shell(&machine, &place)?;
    assert!(healthy(&machine).is_err());
    let refused = install(&machine, &noisy, &[])?.refused()?;
    assert!(
        refused.contains("it is still in force: take it out"),
        "{refused}"
    );
    // Another one can come in its place.
    install(&machine, &good, &[])?.ok()?;
    assert!(healthy(&machine)?);
    shell(&machine, &place)?;
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(!healthy(&machine)?);
    Ok(())
}
