//! The machine that a test installs on, and what can be seen of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Output, Root, Slurm};

/// The list of libraries that the loader puts into every process.
pub(crate) const PRELOAD: &str = "/etc/ld.so.preload";
/// Where the library goes.
pub(crate) const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";
/// Not in `/usr/bin`, so that the library's place and the one that it comes from are two.
pub(crate) const SOFTMIG: &str = "/opt/softmig/bin/softmig";

/// A machine with the command and these libraries, which are then in `/root`.
pub(crate) fn root(slurm: Slurm, libraries: &[&Path]) -> Result<Root> {
    let mut root = Root::new(slurm).install(stage().join("usr/bin/softmig"), SOFTMIG, 0o755);
    for library in libraries {
        root = root.install(library, in_machine(library)?, 0o644);
    }
    Ok(root)
}

pub(crate) fn in_machine(library: &Path) -> Result<PathBuf> {
    let name = library.file_name().context("a library without a name")?;
    Ok(Path::new("/root").join(name))
}

pub(crate) fn softmig(machine: &Machine, words: &[&str]) -> Result<Output> {
    machine
        .command("root", &[&[SOFTMIG], words].concat())
        .output()
}

pub(crate) fn install(machine: &Machine, library: &Path, more: &[&str]) -> Result<Output> {
    let path = in_machine(library)?.display().to_string();
    softmig(
        machine,
        &[&["install", "--hook", "--from", &path], more].concat(),
    )
}

pub(crate) fn shell(machine: &Machine, script: &str) -> Result<String> {
    machine
        .command("root", &["sh", "-c", script])
        .output()?
        .ok()
}

/// All that an installation could change, in words.
pub(crate) fn state(machine: &Machine) -> Result<String> {
    shell(
        machine,
        &format!(
            "ls -la --time-style=+ {PRELOAD} /etc/.*softmig* 2>/dev/null; cat {PRELOAD} 2>/dev/null; \
             ls -lA --time-style=+ /usr/lib/softmig 2>/dev/null; sha256sum {LIBRARY} 2>/dev/null; true"
        ),
    )
}

/// Fails unless programs run as on any machine; tells which library they have.
pub(crate) fn healthy(machine: &Machine) -> Result<bool> {
    for user in ["root", "alice"] {
        let ran = machine
            .command(user, &["sh", "-c", "true; exit 7"])
            .output()?;
        ensure!(
            ran.status.code() == Some(7) && ran.stderr.is_empty(),
            "{user}: {ran}"
        );
    }
    let ran = machine
        .command("alice", &["cat", "/proc/self/maps"])
        .output()?;
    ensure!(ran.success() && ran.stderr.is_empty(), "{ran}");
    Ok(ran.stdout.contains(LIBRARY))
}

pub(crate) fn inode(machine: &Machine, path: &str) -> Result<String> {
    shell(machine, &format!("stat -c '%i %U %G %a' {path}"))
}

/// Owner, group and mode.
pub(crate) fn owner(machine: &Machine, path: &str) -> Result<String> {
    shell(machine, &format!("stat -c '%U %G %a' {path}"))
}
