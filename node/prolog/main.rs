//! softmig-prolog: Slurm runs it as `Prolog=` on a node, before a job's first process.
//!
//! Exit status 0: the job may start. 1: it may not, and Slurm drains the node. 2: it was not Slurm who ran this.

#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use softmig_node::allowance::{Allowance, decide};
use softmig_node::events::Event;
use softmig_node::gpu::{Assigned, assigned, installed};
use softmig_node::job::Job;
use softmig_node::job_files::{JobFiles, conf_of, with_gate};
use softmig_node::node::{Node, set_umask};
use softmig_node::{report, slurmctld};
use softmig_policy::NodePolicy;
use softmig_policy::config::choices::TagField;
use softmig_policy::node::job_conf::{JobConf, Uuid};
use softmig_policy::slurm::gpu_list::GpuList;
use std::process::ExitCode;
use tracing::{error, info, warn};

/// In the log of a job whose limits could not be written.
const NO_ROOM: &str =
    "the node had no room for this job's limits. Submit it again, and tell the administrator";

/// In the log of a job that has not been decided on.
const UNSEEN: &str = "job_submit has not decided on this job, and policy.toml denies such jobs (on_untagged). Ask for \
    GPUs with --gres, without --core-spec and --thread-spec";

fn main() -> ExitCode {
    let mut job = match Job::from_environment() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("softmig-prolog: {error}");
            return ExitCode::from(2);
        }
    };
    set_umask();
    let node = Node::this_machine();
    if job.gpus.is_none() {
        job.gpus = slurmctld::untold_gpus(&job);
    }
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
    let cleared = JobFiles::new(node, job, None).apply(node);
    if let Err(error) = cleared.context("it has no GPU") {
        report::start(c"softmig-prolog", None);
        error!(job = job.id.get(), "job={} {error:#}", job.id);
    }
}

/// A job with GPUs.
fn prepare(node: &Node, job: &Job, list: &GpuList) -> anyhow::Result<()> {
    let policy = gather_policy(node);
    let assigned = gather_gpus(node, job, list);
    let allowance = decide_for(node, job, list, policy.as_ref(), &assigned);
    let line = report::line(job, &allowance, &assigned);
    if allowance == Allowance::Unseen {
        error!(job = job.id.get(), "job={} gets no GPU: {UNSEEN}", job.id);
        let refused = JobFiles::refused(job, &assigned.gpus, UNSEEN);
        refused.apply(node).context(line.clone())?;
        info!(job = job.id.get(), uid = job.uid, "{line}");
        return Ok(());
    }
    let is_gate_wanted = policy.as_ref().is_some_and(|policy| policy.device_gate);
    let conf = conf_of(job, &allowance, assigned.gpus, policy.as_ref())
        .map(|conf| with_gate(node, job, conf, is_gate_wanted));
    match JobFiles::new(node, job, conf.as_ref()).apply(node) {
        Ok(()) if allowance == Allowance::Drain => {
            bail!("{line}: nothing says what it may take, and on_unknown is drain")
        }
        Ok(()) => {
            info!(job = job.id.get(), uid = job.uid, "{line}");
            if let Some(error) = conf.and_then(|conf| grant(job, &conf).write(node).err()) {
                warn!(
                    job = job.id.get(),
                    "job={} is not among the events: {error}", job.id
                );
            }
            Ok(())
        }
        Err(error) if error.is_no_room() => {
            let error = anyhow::Error::new(error);
            error!(
                job = job.id.get(),
                uid = job.uid,
                "job={} gets no GPU: {error:#}",
                job.id
            );
            let refused = JobFiles::refused(job, &assigned.gpus, NO_ROOM);
            refused.apply(node).context(line)
        }
        Err(error) if allowance.must_be_recorded() => Err(error).context(line),
        Err(error) => {
            let error = anyhow::Error::new(error).context(line);
            error!(job = job.id.get(), uid = job.uid, "{error:#}");
            Ok(())
        }
    }
}

/// The grant of a job.
fn grant(job: &Job, conf: &JobConf) -> Event {
    let gpus: Vec<&str> = conf.gpus.iter().map(Uuid::as_str).collect();
    let event = Event::of_job("grant", job).with("gpus", gpus);
    match &conf.limits {
        None => event.with("mode", "whole"),
        Some(limits) => event
            .with("type", limits.gpu_type().as_str())
            .with("shards", limits.share().shards())
            .with("shards_per_gpu", limits.share().per_gpu())
            .with("memory_bytes", u64::from(limits.memory_mib()) << 20)
            .with("mode", limits.mode().to_string()),
    }
}

fn decide_for(
    node: &Node,
    job: &Job,
    list: &GpuList,
    policy: Option<&NodePolicy>,
    assigned: &Assigned,
) -> Allowance {
    let tag = job
        .tags
        .by(policy.map_or(TagField::Auto, |policy| policy.tag_field));
    // While the node only observes, such a job may be from before softmig.
    if tag.is_none() && policy.is_some_and(NodePolicy::denies_untagged) && node.enforces() {
        return Allowance::Unseen;
    }
    let model = assigned.model.as_deref();
    let allowance = decide(job.id, tag, policy, model, || slurmctld::ask(job));
    allowance.on_gpus(job.id, list.indices.len())
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
            "job={id}: Slurm's list of its GPUs has more than indices"
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
