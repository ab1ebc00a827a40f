//! What the commands for nodes say to wrong usage. What they do is tested in tests/, on machines made for it.

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
        (&["uninstall"], "--hook"),
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
