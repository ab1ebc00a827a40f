//! Measures what softmig costs and writes it to bench/results.

use crate::place::{project, run, target};
use crate::{roots, stage};
use anyhow::Result;
use std::process::Command;

/// Builds all that is measured, then measures.
pub(crate) fn bench() -> Result<()> {
    roots::build()?;
    stage::build()?;
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked", "--bins"])
        .args(["-p", "softmig-bench", "-p", "softmig-tests"])
        .current_dir(project()))?;
    run(&mut Command::new(target().join("release/softmig-bench")))
}
