//! The summary of a job for Slurm's accounting, by the monitor's figures.
//!
//! slurmctld takes no AdminComment of a job whose epilog runs (seen on 22.05 and 24.11: "Job has already finished"), and
//! slurmdbd may not know the job's end yet. So a process of its own writes the summary after this program has ended: the
//! node takes its next job meanwhile.
//!
//! The figures are of the run whose conf is here. They are written for that run alone: Slurm restarts a job under its old
//! number.

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
    let Some(delivery) = of_run(node, job, commands)? else {
        return Ok(());
    };
    delivery
        .send()
        .map_err(|error| format!("starting to write it: {error}"))
}

/// The summary of the run whose conf is here. `None` if none is to be written: for example, if the conf is of a later run than the
/// one that ended.
fn of_run(node: &Node, job: &Job, commands: Option<&Commands>) -> Result<Option<Delivery>, String> {
    // Most jobs have no GPU, and so need no policy.
    if !node.run.join(format!("{}.conf", job.id)).exists() {
        return Ok(None);
    }
    let Ok(Some(run)) = node.open() else {
        return Ok(None);
    };
    if run.is_of_later_run(job) {
        return Ok(None);
    }
    // Not the job's: an epilog of a run on which slurmctld gave up can be told of the next run.
    let start = run.conf(job.id).and_then(|conf| conf.start);
    drop(run);
    if !node
        .policy()
        .is_ok_and(|policy| policy.report.admin_comment)
    {
        return Ok(None);
    }
    let commands = commands.ok_or("no sacctmgr in /usr/bin, in /usr/local/bin or beside slurmd")?;
    let used = usage_socket::ask(node)
        .map_err(|error| format!("the monitor gives no figures: {error}"))?;
    Ok(
        summary(&used, job, start, clock::now()).map(|js1| Delivery {
            job: job.id.get(),
            start,
            folder: commands.folder().to_path_buf(),
            slurm_conf: job.slurm_conf.clone().map(PathBuf::from),
            summary: js1,
        }),
    )
}

/// The job's summary; `None` if the monitor knows nothing of the job.
fn summary(used: &usage::Node, job: &Job, start: Option<u32>, now: i64) -> Option<Js1> {
    let own = used.jobs.iter().find(|own| own.job == job.id.get())?;
    let start = start.map_or(own.since, f64::from);
    let ran = now as f64 - start;
    // The cast cuts what a nonsensical time gives.
    Js1::from_job(used, own, &job.node, ran.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use std::fs;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    /// The run of the job that began then.
    fn job(start: &str) -> Job {
        let more = [("SLURM_JOB_START_TIME", start), ("SLURMD_NODENAME", "n1")];
        example::job("7", &more)
    }

    const FIGURES: &str = r#"{"schema_version":1,"node":"host","jobs":[{"job":6},{"job":7,"since":1000.0,
        "slice":{"type":"l40s","shards":1,"shards_per_gpu":4,"memory_bytes":1000},
        "gpus":[{"index":3,"uuid":"GPU-3","memory_peak_bytes":900,"known_seconds":100.0,"charged_seconds":20.0}]}]}"#;

    #[test]
    fn the_summary_is_filed_under_slurms_name_of_the_node() {
        let used: usage::Node = serde_json::from_str(FIGURES).unwrap();
        let js1 = summary(&used, &job("1000"), None, 1100).unwrap();
        assert_eq!(js1.nodes["n1"].gpu_used_memory["3"], 900.into());
        assert_eq!(js1.nodes["n1"].gpu_utilization["3"].as_f64(), Some(80.0));
        assert_eq!(js1.total_time, Some(100.into()));
        let mut without = used.clone();
        without.jobs.pop();
        assert_eq!(summary(&without, &job("1000"), None, 1100), None);
        let js1 = summary(&used, &job("1000"), Some(1040), 1100).unwrap();
        assert_eq!(js1.total_time, Some(60.into()));
    }

    #[test]
    fn a_summary_is_of_this_run_and_a_late_epilog_leaves_none() {
        let (folder, node) = example::node();
        fs::write(
            &node.policy,
            "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[report]\nadmin_comment = true\n",
        )
        .unwrap();
        example::whole(&node, &job("2000"));
        let monitor = UnixListener::bind(node.run.join(usage_socket::NAME)).unwrap();
        std::thread::spawn(move || {
            for client in monitor.incoming() {
                client.unwrap().write_all(FIGURES.as_bytes()).unwrap();
            }
        });
        let commands = Commands::in_folder(folder.path(), None);
        let of_run = |start| {
            let delivery = of_run(&node, &job(start), Some(&commands)).unwrap();
            delivery.map(|delivery| delivery.start)
        };
        assert_eq!(of_run("1000"), None);
        assert_eq!(of_run("2000"), Some(Some(2000)));
        // The run here is the earlier one, on which slurmctld gave up.
        assert_eq!(of_run("3000"), Some(Some(2000)));
    }
}
