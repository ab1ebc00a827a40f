//! The `softmig` command, for people: what would happen, and what is the case.

mod explain;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Shared GPUs in Slurm: what a request for part of a GPU gets.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Explain(Box<explain::Explain>),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Explain(explain) => explain.run(),
    }
}
