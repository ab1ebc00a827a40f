//! `softmig run`: limits without Slurm, for a command and all that it starts.
//!
//! It prepares and then waits: the library in the command's processes does the counting, in a ledger that they share.
//! `limits` is what was asked for, `allowed` whether that counts here, `library` how the library comes into the
//! processes and `program` whether it can; `folder` has the ledger and the log, `alive` knows who still needs them;
//! `child` runs the command, and `log` tells what was refused.
//!
//! This is for cooperation: a program that takes the variables out of its environment has no limits. A job's
//! limits hold without such cooperation.

mod alive;
mod allowed;
mod child;
mod folder;
mod library;
mod limits;
mod log;
mod program;

use crate::output::exit_status::{NOT_FOUND, NOT_RUN, end_like, failure};
use crate::output::say::error_line;
use alive::LEDGER;
use anyhow::{Context, ensure};
use clap::{ArgGroup, Args};
use folder::{Base, Folder};
use limits::Limits;
use softmig_node::this_process::ThisProcess;
use softmig_policy::node::env_limits::Tenths;
use softmig_policy::node::size::Bytes;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs a command with limits on what it takes of GPUs: without Slurm, as any user.
///
/// CMD and all that it starts share one account of each GPU's memory: what would go beyond the limit is refused as out
/// of memory, and said at the end. Of each GPU's time they have no more than their share, together: launches wait.
/// Inside jobs, whose own limits hold, nothing is run.
///
/// Exit status: CMD's, or its signal; 127 CMD does not exist, 126 it cannot be run, 2 wrong usage or refused.
#[derive(Args)]
#[command(group = ArgGroup::new("limit").required(true).multiple(true).args(["memory", "compute"]))]
pub(crate) struct Run {
    /// The memory of each GPU that all processes together may hold: 4g, 1.5GiB, 512m
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse_memory)]
    memory: Option<Bytes>,
    /// The percentage of each GPU's time that they may have together, also while no other process uses it: 25, 12.5
    #[arg(long, value_name = "PERCENT", value_parser = limits::compute)]
    compute: Option<Tenths>,
    /// The library, where it is not installed: in containers, or of another version
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Do not say what is in force
    #[arg(long, short)]
    quiet: bool,
    /// The command, and its own words
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Nothing was run.
const REFUSED: u8 = 2;

/// The loader's own.
const PRELOAD: &str = "LD_PRELOAD";

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let prepared = self.prepare();
        let (mut command, folder) = prepared.map_err(|error| failure(REFUSED, error))?;
        let ended = child::run(&mut command);
        if let Err(error) = log::tell(&folder) {
            error_line(&format!("softmig: {error:#}"));
        }
        if let Some(left) = folder.end() {
            error_line(&left);
        }
        ended.map(end_like).map_err(|error| {
            let status = match error.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_RUN,
            };
            let name = command.get_program().display();
            failure(status, format_args!("{name}: {error}"))
        })
    }

    /// The command as it is to be run, and the folder that its processes share.
    fn prepare(&self) -> anyhow::Result<(Command, Folder)> {
        let observes = allowed::check(&ThisProcess::new())?;
        if let Some(other) = std::env::var_os(LEDGER).filter(|path| !path.is_empty()) {
            anyhow::bail!(
                "this is inside another run already ({LEDGER}={}), whose limit would not count what this one takes; \
                 leave that shell first",
                other.display()
            );
        }
        let (name, words) = self.command.split_first().context("no command")?;
        ensure!(!name.is_empty(), "the command's name is empty");
        let library = library::find(self.library.as_deref())?;
        let limits = Limits {
            memory: self.memory,
            compute: self.compute,
        };
        let base = Base::open()?;
        base.sweep();
        let folder = base.make()?;
        if !self.quiet {
            for line in limits.lines(observes) {
                error_line(&format!("softmig: {line}"));
            }
            if let Some(why) = program::cannot_hold(name) {
                error_line(&format!(
                    "softmig: {}: no limit holds in this program itself, because {why}",
                    name.display()
                ));
            }
        }
        let mut command = Command::new(name);
        command.args(words);
        limits.set(&mut command);
        command.env(LEDGER, folder.ledger());
        if let Some(library) = library {
            command.env(PRELOAD, before_others(&library));
        }
        Ok((command, folder))
    }
}

/// The loader's variable with the library before what the user has there.
fn before_others(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(others);
    }
    list
}
