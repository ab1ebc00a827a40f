//! The program as a user types it.

use assert_cmd::Command;

/// Exit status, standard output and standard error of `softmig` with these words, at a place whose time is UTC.
pub fn softmig(words: &[&str]) -> (i32, String, String) {
    softmig_with(&[], words)
}

/// The same with variables of the environment.
pub fn softmig_with(variables: &[(&str, &str)], words: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("softmig")
        .unwrap()
        .env("TZ", "UTC")
        .envs(variables.iter().copied())
        .args(words)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}
