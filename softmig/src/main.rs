//! The `softmig` command, for people: what would happen, and what is the case.

#![forbid(unsafe_code)]

mod etc;
mod explain;
mod install;
mod node;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Shared GPUs in Slurm: what a request for part of a GPU gets, and what a node does about it.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Explain(Box<explain::Explain>),
    Node(node::Node),
    Install(install::Install),
    Uninstall(install::Uninstall),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Explain(explain) => explain.run(),
        Command::Node(node) => finish("node", node.run()),
        Command::Install(install) => finish("install", install.run()),
        Command::Uninstall(uninstall) => finish("uninstall", uninstall.run()),
    }
}

/// Says what went wrong, if something did.
fn finish(command: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softmig {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
