//! `softmig smi`: nvidia-smi with only the job's own processes in it.
//!
//! nvidia-smi takes its list of processes from a private table of NVML, out of the hook's reach. So the rows are taken
//! out of what it prints: `request` finds the options that matter, `own_processes` the processes that belong to the caller,
//! `program` the real nvidia-smi; `stream` runs it, and `filter` is between it and the caller.
//!
//! This is a view, not a wall: nvidia-smi itself shows the others' rows to every user.

mod filter;
mod own_processes;
mod program;
mod request;
mod stream;

use crate::output::exit_status::{NOT_FOUND, NOT_RUN, failure};
use clap::Args;
use request::{Form, Request};
use softmig_node::this_process::ThisProcess;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// nvidia-smi, with only the job's own processes.
///
/// Runs nvidia-smi with these words and leaves out other jobs' processes: from its table, from -q, also with -x, from
/// --query-compute-apps and --query-accounted-apps, and from pmon. All else is as nvidia-smi prints it. Outside jobs
/// and in jobs with whole GPUs nothing is left out.
///
/// Exit status: nvidia-smi's; 127 it is not there, 126 it cannot be run.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Smi {
    /// nvidia-smi's own options, --help too
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Smi {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let called_as = std::env::args_os().next().unwrap_or_default();
        run(&called_as, self.words)
    }
}

/// The words after the program's name, where softmig is called as nvidia-smi.
pub(crate) fn words_for_nvidia_smi() -> Option<Smi> {
    let mut words = std::env::args_os();
    let called_as = words.next()?;
    let is_its_name = Path::new(&called_as).file_name() == Some(OsStr::new(program::NAME));
    is_its_name.then(|| Smi {
        words: words.collect(),
    })
}

fn run(called_as: &OsStr, words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let program = program::find(called_as).map_err(|error| failure(NOT_FOUND, error))?;
    let process = ThisProcess::new();
    let request = Request::read(&words);
    let group = match request.form {
        Form::Untouched => None,
        Form::Report | Form::Apps | Form::Pmon => own_processes::group(&process),
    };
    let run = group.and_then(|group| {
        let filter = filter::Filter::new(request.form, move |pid| group.has(&process, pid))?;
        stream::Run::new(&request, filter)
    });
    let ended = match run {
        Some(run) => run.run(&program),
        // Not a byte of it is changed, so nvidia-smi takes this process's place.
        None => Err(Command::new(&program).args(words).exec()),
    };
    ended.map_err(|error| failure(NOT_RUN, format_args!("{}: {error}", program.display())))
}
