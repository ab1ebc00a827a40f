//! The options of `softmig-monitor`.

use clap::Parser;
use std::path::PathBuf;

/// Divides the time of this node's GPUs among their jobs, and measures from outside how much GPU memory each job has.
///
/// Without --once it is the node's daemon, which systemd starts (softmig-monitor.service); it logs to the journal which
/// jobs have more than their slice, and ends processes if policy.toml says so. With --once it measures once, and asks the
/// daemon how jobs share each GPU.
///
/// Exit status with --once: 0 measured, and no job has more than its slice; 3 measured, and a job has more; 1 not or not
/// all measured; 2 wrong usage. Of the daemon: 0 ended by SIGTERM or SIGINT; 1 it could not start.
#[derive(Parser)]
#[command(name = "softmig-monitor", version)]
pub struct Cli {
    /// Measure once, print what was found, and exit
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object (docs/formats.md)
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Measure whether steering a GPU has effect, and print the figures: the daemon calls this
    #[arg(long, hide = true, value_name = "UUID")]
    pub prove: Option<String>,
    /// Measure whether programs of a pack end alone, with the MPS server in this folder: the daemon calls this
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub prove_pack: Option<PathBuf>,
    /// Ask the driver through other processes' files: the daemon calls this
    #[arg(long, hide = true)]
    pub borrow: bool,
    /// Have an MPS server in this folder, and keep files of its clients: the daemon calls this
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub pack: Option<PathBuf>,
    /// Keep a GPU busy as a process of this user: what measures calls this
    #[arg(long, hide = true, value_name = "USER")]
    pub prove_load: Option<u32>,
}
