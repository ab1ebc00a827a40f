//! `cargo xtask programs`: the test clients and the driver they are tested with, in `target/programs`, a tree like `/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use softmig_tests::programs::{FOLDER, tree};

use crate::packages::need;
use crate::place::{project, run, target};

/// Where the loader of the Debian roots looks.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Compiles the clients that are out of date against the drivers, which [`crate::stage::quick`] has built.
pub(crate) fn build() -> Result<()> {
    needs()?;
    let tree = tree();
    softmig_fake_node::install(&target().join("debug"), &tree)?;
    let libraries = tree.join(LIBRARIES);
    let programs = tree.join(Path::new(FOLDER).strip_prefix("/")?);
    fs::create_dir_all(&programs).with_context(|| format!("making {}", programs.display()))?;
    run(Command::new("make")
        .args(["--silent", "--jobs=2"])
        .arg(format!("OUT={}", programs.canonicalize()?.display()))
        .arg(format!("DRIVER={}", libraries.canonicalize()?.display()))
        .current_dir(project().join("tests/programs")))?;
    Ok(())
}

/// Installs the compilers that are missing.
pub(crate) fn needs() -> Result<()> {
    need("make", "make", "builds the test clients")?;
    need("musl-gcc", "musl-tools", "builds the test clients for musl")
}
