//! The `softmig` command, for people: what would happen, and what is the case.

#![forbid(unsafe_code)]

mod ask;
mod files;
mod machine;
mod output;
mod run;
mod settings;
mod site;
mod users;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use machine::{install, node, uninstall};
use output::{exit_status, say};
use site::{check, config, doctor, probe};
use std::process::{ExitCode, Termination};
use users::{advise, events, explain, free, job, report, smi, status};

/// Shows which parts of GPUs are free, why jobs wait and what they used, and what a request gets; configures Slurm and nodes
/// for softmig, and checks both.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Status),
    Free(free::Free),
    Job(job::Job),
    Advise(advise::Advise),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Events(events::Events),
    Explain(Box<explain::Explain>),
    Config(config::Config),
    Monitor(ask::monitor::Monitor),
    Node(node::Node),
    Probe(probe::Probe),
    Report(report::Report),
    Run(run::Run),
    Smi(smi::Smi),
    Install(install::Install),
    Uninstall(uninstall::Uninstall),
}

/// Runs the command.
pub fn main() -> ExitCode {
    if let Some(smi) = smi::words_for_nvidia_smi() {
        return end("smi", smi.run());
    }
    let matches = Cli::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Status(status) => end(name, status.run()),
        Command::Free(free) => end(name, free.run()),
        Command::Job(job) => end(name, job.run()),
        Command::Advise(advise) => end(name, advise.run()),
        Command::Check(check) => end(name, check.run()),
        Command::Doctor(doctor) => end(name, doctor.run()),
        Command::Events(events) => end(name, events.run()),
        Command::Explain(explain) => end(name, explain.run()),
        Command::Config(config) => end(name, config.run()),
        Command::Monitor(monitor) => end(name, monitor.run()),
        Command::Node(node) => end(name, node.run()),
        Command::Probe(probe) => end(name, probe.run()),
        Command::Report(report) => end(name, report.run()),
        Command::Run(run) => end(name, run.run()),
        Command::Smi(smi) => end(name, smi.run()),
        Command::Install(install) => end(name, install.run()),
        Command::Uninstall(uninstall) => end(name, uninstall.run()),
    }
}

/// The command's options and subcommands, for its manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Ends the subcommand of this name: with 0, with the status that it gives, or with its error, which is said here.
fn end(name: &str, done: anyhow::Result<impl Termination>) -> ExitCode {
    match done {
        Ok(done) => done.report(),
        Err(error) => {
            say::error_line(&format!("softmig {name}: {error:#}"));
            exit_status::for_error(&error)
        }
    }
}
