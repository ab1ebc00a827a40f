//! The machine and the day of a run.

use anyhow::{Context, Result};
use serde::Serialize;
use std::process::Command;

/// The machine and its software, on which a figure's absolute value depends.
#[derive(Debug, Serialize)]
pub(crate) struct Host {
    /// The day, in UTC.
    pub(crate) date: String,
    /// Linux's release.
    pub(crate) kernel: String,
    /// The processor's name.
    pub(crate) processor: String,
    /// How many cores this run could use.
    pub(crate) cores: usize,
    /// Each Slurm that was measured.
    pub(crate) slurm: Vec<String>,
    /// How many processes wanted a core at the end, on average of a minute; above the cores, others were busy too.
    pub(crate) load: f64,
}

/// Looks at this machine.
pub(crate) fn describe(slurm: &[String]) -> Result<Host> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
    let date = Command::new("date").args(["-u", "+%F"]).output()?;
    let cpuinfo = read("/proc/cpuinfo")?;
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let load = read("/proc/loadavg")?;
    Ok(Host {
        date: String::from_utf8_lossy(&date.stdout).trim().to_owned(),
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        processor: processor.to_owned(),
        cores: std::thread::available_parallelism()?.get(),
        slurm: slurm.to_vec(),
        load: load
            .split(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .context("/proc/loadavg")?,
    })
}
