//! softmig-epilog: Slurm runs it as `Epilog=` on a node, after a job's last process.
//!
//! It removes what the prolog made for this job, and what jobs left that Slurm does not know any more. It touches no other
//! file, and signals no process. Where the policy says so, it leaves a summary in Slurm's accounting. Exit status 0 whatever
//! happens, because an epilog that fails drains the node; 2 when it was not Slurm who ran this.

#![forbid(unsafe_code)]

mod archive;
mod delivery;
mod end;
#[cfg(test)]
mod example;
mod room;
mod summary;
mod sweep;

use delivery::Delivery;
use end::{Ended, end};
use softmig_node::events::Event;
use softmig_node::folder::ledger;
use softmig_node::job::Job;
use softmig_node::node::{Node, set_umask};
use softmig_node::packs;
use softmig_node::report;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_node::usage_file;
use softmig_usage as usage;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use sweep::sweep;
use tracing::{error, info, warn};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(delivery::WORD) {
        return deliver();
    }
    let job = match Job::from_environment() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("softmig-epilog: {error}");
            return ExitCode::from(2);
        }
    };
    set_umask();
    let node = Node::this_machine();
    let usage = usage_file::of_job(&node, job.id);
    let commands = Commands::of_parent(job.slurm_conf.clone());
    // The monitor forgets the job once its conf is gone.
    let left = summary::leave(&node, &job, commands.as_ref());
    // Its name is gone with the job.
    let ledger = ledger(&node, job.id.get()).ok().flatten();
    let ended = end(&node, &job);
    if matches!(ended, Ok(Ended::Cleared { .. })) {
        // If the event cannot be written, the job ends as usual.
        let _ = over(&job, usage.as_ref()).write(&node);
    }
    let swept = sweep(&node, job.id, Path::new("/proc"), |id| {
        commands.as_ref().ok_or(AskError::NotFound)?.knows(id)
    });
    if !matches!(ended, Ok(Ended::Nothing)) || !swept.is_empty() {
        let policy = node.policy().ok();
        report::start(
            c"softmig-epilog",
            policy.and_then(|policy| policy.log_file).as_deref(),
        );
    }
    let (id, uid) = (job.id, job.uid);
    let is_cleared = matches!(ended, Ok(Ended::Cleared { .. }));
    match ended {
        Ok(Ended::Nothing) => {}
        Ok(Ended::Late) => info!(
            job = id.get(),
            uid, "job={id} uid={uid} removed=nothing reason=restarted"
        ),
        Ok(Ended::Cleared { log }) => info!(
            job = id.get(),
            uid, "job={id} uid={uid} removed=all log_kept={log}"
        ),
        Err(error) => error!(
            job = id.get(),
            uid, "job={id} uid={uid} removed=partly: {error}"
        ),
    }
    if let Err(error) = left {
        warn!(
            job = id.get(),
            uid, "job={id} uid={uid} admin_comment=no: {error}"
        );
    }
    if is_cleared && !ledger.is_none_or(|ledger| has_free_memory(&ledger)) {
        warn!(
            job = id.get(),
            "job={id} memory=not_free: the time for the kernels of a program that has ended is not over"
        );
    }
    for id in swept {
        warn!(
            job = id.get(),
            "job={id} removed=all reason=unknown: its own epilog failed or was cut off"
        );
    }
    report::finish();
    ExitCode::SUCCESS
}

/// Waits until the memory is free that programs in a pack left on the GPU, for some time: the next job may have all of its own.
fn has_free_memory(ledger: &File) -> bool {
    const LONGEST: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    while packs::is_any_charged(ledger) {
        if begun.elapsed() > LONGEST {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A job's end, with what it had of its GPUs.
fn over(job: &Job, usage: Option<&usage::Job>) -> Event {
    let event = Event::of_job("end", job);
    let Some(usage) = usage else {
        return event;
    };
    let sum =
        |of: fn(&usage::JobGpu) -> f64| usage.gpus.iter().map(of).fold(0.0, |sum, one| sum + one);
    let refused: u64 = usage.gpus.iter().map(|gpu| gpu.refused).sum();
    let peaks = usage.gpus.iter().filter_map(|gpu| gpu.memory_peak_bytes);
    let event = event
        .with("gpus", usage.gpus.len())
        .with("known_seconds", sum(|gpu| gpu.known_seconds))
        .with("charged_seconds", sum(|gpu| gpu.charged_seconds))
        .with("waited_seconds", sum(|gpu| gpu.waited_seconds))
        .with("refused", refused);
    match peaks.max() {
        Some(peak) => event.with("memory_peak_bytes", peak),
        None => event,
    }
}

/// The process that writes a summary after the epilog.
fn deliver() -> ExitCode {
    let Ok(delivery) = Delivery::receive() else {
        return ExitCode::from(2);
    };
    if let Err(error) = delivery.deliver() {
        let policy = Node::this_machine().policy().ok();
        report::start(
            c"softmig-epilog",
            policy.and_then(|policy| policy.log_file).as_deref(),
        );
        warn!(
            job = delivery.job,
            "job={} admin_comment=no: {error}", delivery.job
        );
        report::finish();
    }
    ExitCode::SUCCESS
}
