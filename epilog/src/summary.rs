//! The summary of a job for Slurm's accounting, by the monitor's figures.
//!
//! slurmctld takes no AdminComment of a job whose epilog runs (seen on 22.05 and 24.11: "Job has already finished"), and
//! slurmdbd may not know the job's end yet. So a process of its own writes the summary after this program has ended: the
//! node takes its next job meanwhile.

use crate::delivery::Delivery;
use softmig_node::job::Job;
use softmig_node::node::Node;
use softmig_node::slurmctld::Commands;
use softmig_node::usage_socket;
use softmig_policy::config::clock;
use softmig_usage::js1::Js1;
use softmig_usage::{self as usage};
use std::path::PathBuf;

/// Has the job's summary written, if the policy says so and there is one. Tells what went wrong.
pub fn leave(node: &Node, job: &Job, commands: Option<&Commands>) -> Result<(), String> {
    // Most jobs have no GPU, and so need no policy.
    if !node.run.join(format!("{}.conf", job.id)).exists() {
        return Ok(());
    }
    if !node
        .policy()
        .is_ok_and(|policy| policy.report.admin_comment)
    {
        return Ok(());
    }
    let commands = commands.ok_or("no sacctmgr in /usr/bin, in /usr/local/bin or beside slurmd")?;
    let Some(used) = usage_socket::ask(node) else {
        return Err("the monitor gives no figures".to_string());
    };
    let Some(js1) = summary(&used, job, clock::now()) else {
        return Ok(());
    };
    let delivery = Delivery {
        job: job.id.get(),
        folder: commands.folder().to_path_buf(),
        slurm_conf: job.slurm_conf.clone().map(PathBuf::from),
        summary: js1,
    };
    delivery
        .send()
        .map_err(|error| format!("starting to write it: {error}"))
}

/// The job's summary; `None` if the monitor knows nothing of the job.
fn summary(used: &usage::Node, job: &Job, now: i64) -> Option<Js1> {
    let own = used.jobs.iter().find(|own| own.job == job.id.get())?;
    let start = job.start.map_or(own.since, f64::from);
    let ran = now as f64 - start;
    // The cast cuts what a nonsensical time gives.
    Js1::of(used, own, &job.node, ran.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job::read(|name| match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_UID" => Some("1000".into()),
            "SLURMD_NODENAME" => Some("n1".into()),
            _ => None,
        })
        .unwrap()
    }

    const FIGURES: &str = r#"{"schema_version":1,"node":"host","jobs":[{"job":6},{"job":7,"since":1000.0,
        "slice":{"type":"l40s","shards":1,"shards_per_gpu":4,"memory_bytes":1000},
        "gpus":[{"index":3,"uuid":"GPU-3","memory_peak_bytes":900,"known_seconds":100.0,"charged_seconds":20.0}]}]}"#;

    #[test]
    fn the_monitors_figures_become_a_summary_under_slurms_name_of_the_node() {
        let used: usage::Node = serde_json::from_str(FIGURES).unwrap();
        let js1 = summary(&used, &job(), 1100).unwrap();
        assert_eq!(js1.nodes["n1"].gpu_used_memory["3"], 900.into());
        assert_eq!(js1.nodes["n1"].gpu_utilization["3"].as_f64(), Some(80.0));
        assert_eq!(js1.total_time, Some(100.into()));
        let mut without = used.clone();
        without.jobs.pop();
        assert_eq!(summary(&without, &job(), 1100), None);
    }
}
