//! Builds for old C libraries: zig links with the symbols that a glibc had, whatever the one of this machine is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::place::{project, run, target};
use crate::wheel::Wheel;

/// Given explicitly, so that flags for what is shipped do not reach build scripts.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The glibc that shared programs and modules are linked with: the oldest that Rust's own library supports, and that of
/// the oldest distributions still in use on GPU nodes. `gates/floors.rs` holds them to it.
const GLIBC: &str = "2.17";

const ZIG: Wheel = Wheel {
    name: "ziglang",
    version: "0.17.1",
    sha256: "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54",
    inside: "ziglang/zig",
};
const ZIGBUILD: Wheel = Wheel {
    name: "cargo-zigbuild",
    version: "0.24.0",
    sha256: "484412e39e4c6039474535ce97ee75a22bab22d58233056f8ec8a8f9034bb957",
    inside: "cargo_zigbuild-0.24.0.data/scripts/cargo-zigbuild",
};

/// Builds these packages against the old glibc, and returns the folder of what was built.
pub(crate) fn build(words: &[&str]) -> Result<PathBuf> {
    let (zig, zigbuild) = (ZIG.program()?, ZIGBUILD.program()?);
    let mut command = Command::new(zigbuild);
    command
        .args(["zigbuild", "--target", &format!("{TARGET}.{GLIBC}")])
        .env("CARGO_ZIGBUILD_ZIG_PATH", zig)
        // Beside what it links, not in the user's home.
        .env("CARGO_ZIGBUILD_CACHE_DIR", target().join("zigbuild"))
        .env("ZIG_GLOBAL_CACHE_DIR", target().join("zigbuild/zig"));
    release(&mut command, words, "", &target())
}

/// Builds these packages with the C library inside; in a folder of their own, because a build with other flags would make
/// all that is in a folder anew.
pub(crate) fn build_static(words: &[&str]) -> Result<PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--target", TARGET]);
    let folder = target().join("static");
    release(&mut command, words, "-Ctarget-feature=+crt-static", &folder)
}

fn release(command: &mut Command, words: &[&str], flags: &str, folder: &Path) -> Result<PathBuf> {
    run(command
        .args(["--quiet", "--release", "--locked", "--target-dir"])
        .arg(folder)
        .args(words)
        .env("RUSTFLAGS", rust_flags(flags)?)
        .current_dir(project()))?;
    Ok(folder.join(TARGET).join("release"))
}

/// Messages of panics name source files: without the folders that are only this machine's, two machines build the same
/// bytes.
fn rust_flags(flags: &str) -> Result<OsString> {
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || std::env::home_dir().map(|home| home.join(".cargo")),
        |home| Some(home.into()),
    );
    let mut words = OsString::from(flags);
    let project = project().canonicalize().context("finding the workspace")?;
    for (folder, name) in [
        (home.context("finding cargo's folder")?, "/cargo"),
        (project, "/softmig"),
    ] {
        words.push(" --remap-path-prefix=");
        words.push(folder);
        words.push("=");
        words.push(name);
    }
    Ok(words)
}
