//! The `softmig` command, for people: what would happen, and what is the case.

#![forbid(unsafe_code)]

mod advise;
mod check;
mod cluster;
mod config;
mod config_lock;
mod doctor;
mod events;
mod exit_status;
mod explain;
mod free;
mod install;
mod job;
mod monitor;
mod node;
mod policy_file;
mod probe;
mod prove;
mod report;
mod run;
mod say;
mod scheduler;
mod setup;
mod slice_words;
mod slurm;
mod smi;
mod stamp;
mod status;
mod table;
mod uninstall;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

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
    Monitor(monitor::Monitor),
    Node(node::Node),
    Probe(probe::Probe),
    Report(report::Report),
    Run(run::Run),
    Smi(smi::Smi),
    Install(install::Install),
    Upgrade(install::Upgrade),
    Uninstall(uninstall::Uninstall),
    #[command(hide = true)]
    Prove(prove::Prove),
    /// Keeps a GPU busy, for 'softmig prove'
    #[command(hide = true)]
    ProveLoad,
}

/// Runs the command.
pub fn main() -> ExitCode {
    if let Some(smi) = smi::words_for_nvidia_smi() {
        return smi.run();
    }
    match Cli::parse().command {
        Command::Status(status) => finish("status", status.run()),
        Command::Free(free) => finish("free", free.run()),
        Command::Job(job) => finish("job", job.run()),
        Command::Advise(advise) => finish("advise", advise.run()),
        Command::Check(check) => check.run().unwrap_or_else(|error| fail("check", &error)),
        Command::Doctor(doctor) => doctor.run().unwrap_or_else(|error| fail("doctor", &error)),
        Command::Events(events) => finish("events", events.run()),
        Command::Explain(explain) => explain.run(),
        Command::Config(config) => config.run(),
        Command::Monitor(monitor) => finish("monitor", monitor.run()),
        Command::Node(node) => finish("node", node.run()),
        Command::Probe(probe) => probe.run().unwrap_or_else(|error| fail("probe", &error)),
        Command::Report(report) => finish("report", report.run()),
        Command::Run(run) => run.run(),
        Command::Smi(smi) => smi.run(),
        Command::Install(install) => finish("install", install.run()),
        Command::Upgrade(upgrade) => finish("upgrade", upgrade.run()),
        Command::Uninstall(uninstall) => finish("uninstall", uninstall.run()),
        Command::Prove(prove) => prove.run().unwrap_or_else(|error| fail("prove", &error)),
        Command::ProveLoad => softmig_proof::load(),
    }
}

/// The command's options and subcommands, for its manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Says what went wrong, if something did.
fn finish(command: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(command, &error),
    }
}

fn fail(command: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("softmig {command}: {error:#}");
    ExitCode::FAILURE
}
