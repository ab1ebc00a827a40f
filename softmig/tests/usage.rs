//! The commands for nodes, on wrong usage. Their work is tested in tests/, on machines made for it.

use assert_cmd::Command;

#[test]
fn wrong_usage_changes_nothing_and_ends_with_2() {
    for (words, part) in [
        (
            &["node", "on"][..],
            "[possible values: enforce, observe, off]",
        ),
        (&["node", "--anyway"], "<MODE>"),
        (&["install"], "--hook"),
        (&["uninstall", "--libdir", "/opt"], "--hook"),
        (
            &["install", "--hook", "--mode", "on"],
            "[possible values: enforce, observe, off]",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_softmig"))
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}

#[test]
fn who_stops_reading_makes_no_panic() {
    use std::process::{Command, Stdio};
    let program = assert_cmd::cargo::cargo_bin("softmig");
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../conf/policy.toml");
    for words in [
        &["explain", "--gres=gpu:l40s.4:1", "--policy", policy][..],
        &["config", "--slurm-version=24.11", "--policy", policy],
    ] {
        let mut child = Command::new(&program)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(0), ""));
        // A full disk is a failure.
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = Command::new(&program)
            .args(words)
            .stdout(full)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("softmig: standard output: "), "{said}");
    }
}
