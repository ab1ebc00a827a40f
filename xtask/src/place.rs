//! Where things are, and running programs.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// The workspace.
pub(crate) fn project() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Cargo's target folder, which holds everything that is built or downloaded.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project().join("target"), PathBuf::from)
}

/// git, in the workspace.
pub(crate) fn git(words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(words).current_dir(project());
    command
}

/// The output of a program that has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("running {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed: {}: {errors}",
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| format!("what {name} says"))
}

/// Runs a program to its end; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("running {}", command.get_program().display()))?;
    ensure!(
        status.success(),
        "{} failed: {status}",
        command.get_program().display()
    );
    Ok(())
}
