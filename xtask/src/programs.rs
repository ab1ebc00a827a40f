//! `cargo xtask programs`: the test clients and the driver they are tested with, in `target/programs`, a tree like `/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use softmig_tests::programs::{FOLDER, tree};

use crate::packages::need;
use crate::place::{project, run, target};
use crate::steps::cargo;

/// Where the loader of the Debian roots looks.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Builds what is missing or out of date, and returns the tree.
pub(crate) fn build() -> Result<PathBuf> {
    println!("Building the test clients and the fake driver into target/programs.");
    need("make", "make", "builds the test clients")?;
    need("musl-gcc", "musl-tools", "builds the test clients for musl")?;
    let tree = tree();
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "softmig-fake-cuda",
        "-p",
        "softmig-fake-nvml",
        "-p",
        "softmig-fake-rm",
    ]))?;
    softmig_fake_node::install(&target().join("release"), &tree)?;
    let libraries = tree.join(LIBRARIES);
    let programs = tree.join(Path::new(FOLDER).strip_prefix("/")?);
    fs::create_dir_all(&programs).with_context(|| format!("making {}", programs.display()))?;
    run(Command::new("make")
        .args(["--silent", "--jobs=2"])
        .arg(format!("OUT={}", programs.canonicalize()?.display()))
        .arg(format!("DRIVER={}", libraries.canonicalize()?.display()))
        .current_dir(project().join("tests/programs")))?;
    Ok(tree)
}
