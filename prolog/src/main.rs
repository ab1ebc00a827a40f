//! softmig-prolog: Slurm runs it as `Prolog=` on a node, before a job's first process.
//!
//! Exit status 0: the job may start. 1: it may not, and Slurm drains the node. 2: it was not Slurm who ran this.

#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use softmig_node::gpu::{Assigned, assigned, installed};
use softmig_node::job::{GpuList, Job};
use softmig_node::node::{Node, set_umask};
use softmig_node::record::{conf_of, record};
use softmig_node::verdict::{Verdict, decide};
use softmig_node::{report, slurmctld};
use softmig_policy::NodePolicy;
use std::process::ExitCode;
use tracing::{error, info, warn};

fn main() -> ExitCode {
    let job = match Job::from_environment() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("softmig-prolog: {error}");
            return ExitCode::from(2);
        }
    };
    set_umask();
    let node = Node::this_machine();
    let prepared = match &job.gpus {
        Some(gpus) => prepare(&node, &job, gpus),
        None => {
            leave_alone(&node, &job);
            Ok(())
        }
    };
    let status = match prepared {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(job = job.id.get(), uid = job.uid, "{error:#}");
            ExitCode::FAILURE
        }
    };
    report::finish();
    status
}

/// A job without GPUs: nothing to limit, so nothing that could go wrong for it.
fn leave_alone(node: &Node, job: &Job) {
    if let Err(error) = record(node, job, None).context("it has no GPU") {
        report::start(c"softmig-prolog", None);
        error!(job = job.id.get(), "job={} {error:#}", job.id);
    }
}

/// A job with GPUs.
fn prepare(node: &Node, job: &Job, list: &GpuList) -> anyhow::Result<()> {
    let policy = gather_policy(node);
    let assigned = gather_gpus(node, job, list);
    let verdict = decide(
        job.id,
        job.tag,
        policy.as_ref(),
        assigned.model.as_deref(),
        || slurmctld::ask(job),
    )
    .on_gpus(job.id, list.indices.len());
    let line = report::line(job, &verdict, &assigned);
    let conf = conf_of(job, &verdict, assigned.gpus);
    let recorded = record(node, job, conf.as_ref()).context(line.clone());

    match recorded {
        Ok(()) if verdict == Verdict::Drain => {
            bail!("{line}: nothing says what it may take, and on_unknown is drain")
        }
        Ok(()) => info!(job = job.id.get(), uid = job.uid, "{line}"),
        Err(error) if verdict.must_be_recorded() => return Err(error),
        Err(error) => error!(job = job.id.get(), uid = job.uid, "{error:#}"),
    }
    Ok(())
}

/// The policy, which also says where to log.
fn gather_policy(node: &Node) -> Option<NodePolicy> {
    let policy = node.policy();
    let log_file = policy
        .as_ref()
        .ok()
        .and_then(|policy| policy.log_file.as_deref());
    report::start(c"softmig-prolog", log_file);
    policy.map_err(|problem| warn!("{problem}")).ok()
}

fn gather_gpus(node: &Node, job: &Job, list: &GpuList) -> Assigned {
    let assigned = assigned(&installed(&node.gpus), &list.indices);
    let id = job.id;
    if list.garbled {
        warn!(
            job = id.get(),
            "job={id}: SLURM_JOB_GPUS has more than indices of GPUs"
        );
    }
    if !assigned.missing.is_empty() {
        let (gpus, path) = (&assigned.missing, node.gpus.display());
        warn!(
            job = id.get(),
            "job={id}: {path} has no UUID for GPU {gpus:?}; is nvidia-persistenced running?"
        );
    }
    assigned
}
