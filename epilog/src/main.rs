//! softmig-epilog: Slurm runs it as `Epilog=` on a node, after a job's last process.
//!
//! It removes what the prolog made for this job, touches nothing of any other, and signals nobody. Exit status 0
//! whatever happens, because an epilog that fails drains the node; 2 when it was not Slurm who ran this.

#![forbid(unsafe_code)]

mod archive;

use archive::archive;
use softmig_prolog::clear::clear;
use softmig_prolog::dir::DirError;
use softmig_prolog::job::Job;
use softmig_prolog::node::{Node, set_umask};
use softmig_prolog::report;
use std::process::ExitCode;
use tracing::{error, info};

fn main() -> ExitCode {
    let job = match Job::from_environment() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("softmig-epilog: {error}");
            return ExitCode::from(2);
        }
    };
    set_umask();
    let node = Node::this_machine();
    let ended = end(&node, &job);
    if !matches!(ended, Ok(Ended::Nothing)) {
        let policy = node.policy().ok();
        report::start(
            c"softmig-epilog",
            policy.and_then(|policy| policy.node_log_file).as_deref(),
        );
    }
    let (id, uid) = (job.id, job.uid);
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
    ExitCode::SUCCESS
}

/// What there was to do.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// Nothing: a job without GPUs, or a second call.
    Nothing,
    /// Nothing either: Slurm has started the job again, and what is here is the new run's.
    Late,
    /// All files are gone.
    Cleared {
        /// Whether the hook's log was kept.
        log: bool,
    },
}

/// Keeps the log, removes the rest. Trouble with the log does not keep the limits of a job that is over.
fn end(node: &Node, job: &Job) -> Result<Ended, DirError> {
    let Some(run) = node.open()? else {
        return Ok(Ended::Nothing);
    };
    if run.is_of_later_run(job) {
        return Ok(Ended::Late);
    }
    let kept = archive(node, &run, job);
    let any = clear(&run, job)?;
    let log = kept?;
    Ok(if any {
        Ended::Cleared { log }
    } else {
        Ended::Nothing
    })
}
