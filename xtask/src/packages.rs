//! The programs that the tests need and cargo does not build. Missing ones come from Debian's packages.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::place::run;
use crate::roots::as_root;

/// Installs the package that has a program, if the program is missing. `what` says what the program does.
pub(crate) fn need(program: &str, package: &str, what: &str) -> Result<()> {
    need_for(&mut as_root(program), package, what)
}

/// The same for something that is there when this command can say its `--version`.
pub(crate) fn need_for(command: &mut Command, package: &str, what: &str) -> Result<()> {
    let found = command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("Installing {package}, which {what}.");
    run(as_root("apt-get").args(["-q", "update"]))?;
    run(as_root("apt-get").args(["-qy", "install", "--no-install-recommends", package]))
        .with_context(|| {
            format!("{package} is needed; install it by hand where there is no apt-get")
        })
}
