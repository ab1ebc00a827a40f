//! Which jobs have the device gate: the prolog puts the names of their control groups into its table before there are any, and
//! the epilog takes them out.

use crate::job::Job;
use crate::node::Node;
use softmig_gate::{GateError, Jobs};
use tracing::{error, warn};

/// Closes the gate for a job; tells whether it is closed. The job's control groups may have another name than at an earlier
/// call.
///
/// The monitor makes the gate. Where it has not, the job runs as without one.
pub(crate) fn close(node: &Node, job: &Job) -> bool {
    let jobs = match Jobs::open(&node.gate) {
        Ok(Some(jobs)) => jobs,
        Ok(None) => {
            warn!(
                job = job.id.get(),
                "job={} runs without the device gate: softmig-monitor has not set it up", job.id
            );
            return false;
        }
        Err(problem) => {
            error!(
                job = job.id.get(),
                "job={} runs without the device gate: {problem}", job.id
            );
            return false;
        }
    };
    let added = groups(job).try_for_each(|group| jobs.add(&group));
    if let Err(problem) = &added {
        error!(
            job = job.id.get(),
            "job={} runs without the device gate: {problem}", job.id
        );
    }
    added.is_ok()
}

/// Forgets a job that has ended.
pub fn forget(node: &Node, job: &Job) -> Result<(), GateError> {
    let Some(jobs) = Jobs::open(&node.gate)? else {
        return Ok(());
    };
    groups(job).try_for_each(|group| jobs.remove(&group).map(drop))
}

/// The names that Slurm may give the job's control group.
fn groups(job: &Job) -> impl Iterator<Item = String> {
    let sluid = job.sluid.as_ref().map(ToString::to_string);
    [format!("job_{}", job.id)].into_iter().chain(sluid)
}
