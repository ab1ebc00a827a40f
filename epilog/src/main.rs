//! softmig-epilog: Slurm runs it as `Epilog=` on a node, after a job's last process.
//!
//! It removes what the prolog made for this job, touches nothing of any other, and signals nobody. Exit status 0
//! whatever happens, because an epilog that fails drains the node; 2 when it was not Slurm who ran this.

#![forbid(unsafe_code)]

mod archive;
mod end;
mod room;

use end::{Ended, end};
use softmig_node::job::Job;
use softmig_node::node::{Node, set_umask};
use softmig_node::report;
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
            policy.and_then(|policy| policy.log_file).as_deref(),
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
    report::finish();
    ExitCode::SUCCESS
}
