//! Programs of other projects that check this one. They are fetched once, into target.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::place::{project, run, target};
use crate::steps::cargo;
use crate::wheel::Wheel;

/// A package of crates.io with a program of its name. The version is fixed: a new one may find more.
pub(crate) struct Tool {
    package: &'static str,
    version: &'static str,
}

const CARGO_DENY: Tool = Tool {
    package: "cargo-deny",
    version: "0.20.2",
};
/// They make packages.
pub(crate) const CARGO_DEB: Tool = Tool {
    package: "cargo-deb",
    version: "3.8.0",
};
pub(crate) const CARGO_GENERATE_RPM: Tool = Tool {
    package: "cargo-generate-rpm",
    version: "0.21.1",
};
const MDBOOK: Tool = Tool {
    package: "mdbook",
    version: "0.5.4",
};
/// As a wheel: to build it takes minutes.
const TYPOS: Wheel = Wheel {
    name: "typos",
    version: "1.52.0",
    sha256: "418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6",
    inside: "typos-1.52.0.data/scripts/typos",
};

/// Checks licences, versions and sources of all dependencies by deny.toml.
pub(crate) fn dependencies() -> Result<()> {
    run(CARGO_DENY.command()?.args([
        "--locked", "check", "-D", "warnings", "licenses", "bans", "sources",
    ]))
}

/// Looks for advisories against dependencies, and says what it found. Their database is not everywhere to be had.
pub(crate) fn advisories() -> Result<&'static str> {
    let fetched = CARGO_DENY.command()?.args(["fetch", "db"]).output();
    if !fetched.is_ok_and(|output| output.status.success()) {
        return Ok("Advisories: not checked. Their database cannot be had from here.");
    }
    run(CARGO_DENY
        .command()?
        .args(["--locked", "--offline", "check", "advisories"]))?;
    Ok("Advisories: none against the dependencies.")
}

/// Checks the spelling of all files by _typos.toml.
pub(crate) fn spelling() -> Result<()> {
    run(Command::new(TYPOS.program()?).current_dir(project()))
}

/// Builds the book of the pages into target/book. A page that docs/SUMMARY.md names has to exist.
pub(crate) fn book() -> Result<()> {
    run(MDBOOK.command()?.arg("build"))
}

impl Tool {
    /// The program, to be run in the workspace.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.install()?);
        command.current_dir(project());
        Ok(command)
    }

    /// Builds the program where it is missing. Without optimisation: that takes less time than it would save.
    fn install(&self) -> Result<PathBuf> {
        let Tool { package, version } = self;
        let folder = target().join("tools").join(format!("{package}-{version}"));
        let program = folder.join("bin").join(package);
        if !program.exists() {
            println!("Building {package} {version} into {}.", folder.display());
            run(
                cargo(&["install", "--quiet", "--debug", "--locked", "--no-track"])
                    .args(["--version", version, "--root"])
                    .arg(&folder)
                    .arg(package),
            )?;
        }
        Ok(program)
    }
}
