//! The `softmig` command, for people: what would happen, and what is the case.

#![forbid(unsafe_code)]

mod check;
mod config;
mod config_lock;
mod exit_status;
mod explain;
mod install;
mod monitor;
mod node;
mod policy_file;
mod probe;
mod prove;
mod run;
mod say;
mod scheduler;
mod slurm;
mod smi;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Shows what a request for part of a GPU gets, configures Slurm and nodes for softmig, and checks both.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Check),
    Explain(Box<explain::Explain>),
    Config(config::Config),
    Node(node::Node),
    Probe(probe::Probe),
    Run(run::Run),
    Smi(smi::Smi),
    Install(install::Install),
    Uninstall(install::Uninstall),
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
        Command::Check(check) => check.run().unwrap_or_else(|error| fail("check", &error)),
        Command::Explain(explain) => explain.run(),
        Command::Config(config) => config.run(),
        Command::Node(node) => finish("node", node.run()),
        Command::Probe(probe) => probe.run().unwrap_or_else(|error| fail("probe", &error)),
        Command::Run(run) => run.run(),
        Command::Smi(smi) => smi.run(),
        Command::Install(install) => finish("install", install.run()),
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
