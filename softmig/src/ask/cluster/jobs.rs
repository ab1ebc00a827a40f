//! Jobs with GPUs: those that squeue lists, and where `scontrol show job` says that their GPUs are.

use crate::ask::scontrol::JobLines;
use crate::ask::squeue::{Job, by_type};
use std::collections::BTreeSet;

/// squeue's option for the states in which a job has GPUs, or waits for them.
pub(super) const STATES: &str = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING,STOPPED,RESIZING,SIGNALING,STAGE_OUT";

/// Those that have GPUs or ask for some, with their places.
pub(super) fn placed(jobs: Vec<Job>, lines: &JobLines<'_>) -> Vec<Job> {
    let jobs = jobs.into_iter().map(|mut job| {
        // Without slurmdbd a job has neither.
        for word in [&mut job.account, &mut job.qos] {
            if word == "(null)" {
                word.clear();
            }
        }
        // Several options can mean the same GPUs, so each type has the largest count of all options.
        job.asked = by_type(job.asked, u64::max);
        let nodes: BTreeSet<&str> = job.places.iter().map(|(node, _)| node.as_str()).collect();
        if let Some(places) = lines.places(job.id, |node| nodes.contains(node)) {
            job.places = places;
        }
        job
    });
    jobs.filter(Job::has_gpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::squeue::{DESCRIPTION, read};

    fn only(options: &str, state: &str, gres: &[&str]) -> Job {
        let nodes: Vec<String> = (1..=gres.len()).map(|at| format!("n{at}")).collect();
        let line = format!(
            "7|7|a|b|{state}|None|main|c|N/A|{}|{options}",
            nodes.join(",")
        );
        let groups = nodes.iter().zip(gres);
        let groups =
            groups.map(|(node, gres)| format!("Nodes={node} CPU_IDs=0 Mem=1 GRES={gres} "));
        let details = format!("JobId=7 {}", groups.collect::<String>());
        placed(read(&line, DESCRIPTION), &JobLines::parse(&details)).remove(0)
    }

    #[test]
    fn a_job_has_the_gpus_of_all_its_nodes() {
        // -N2 --gres=gpu:l40s:2
        let per_node = "N/A|gres/gpu:l40s:2|N/A|N/A|";
        let here = "gpu:l40s:2(IDX:0-1)";
        let runs = only(per_node, "RUNNING", &[here, here]);
        assert_eq!(runs.gpus(), "gpu:l40s:4");
        assert_eq!(only(per_node, "PENDING", &[]).gpus(), "gpu:l40s:2");
        // --gpus=4 --gpus-per-node=2
        let twice = "gres/gpu:4|gres/gpu:2|N/A|N/A|";
        assert_eq!(only(twice, "PENDING", &[]).gpus(), "gpu:4");
        let runs = only(twice, "RUNNING", &[here, here]);
        assert_eq!(runs.gpus(), "gpu:l40s:4");
        // --exclusive
        let runs = only("N/A|N/A|N/A|N/A|", "RUNNING", &[here, "gpu:l40s:1(IDX:0)"]);
        assert_eq!(runs.gpus(), "gpu:l40s:3");
    }

    #[test]
    fn a_job_of_unknown_gpus_has_those_it_asked_for() {
        let per_node = "N/A|gres/gpu:l40s:2|N/A|N/A|";
        let mut runs = only(per_node, "RUNNING", &["gpu:l40s:2(IDX:0-1)"]);
        runs.places.push(("n2".into(), None));
        assert_eq!((runs.held(), runs.gpus().as_str()), (None, "gpu:l40s:2"));
        assert_eq!(only(per_node, "RUNNING", &[""]).gpus(), "gpu:l40s:2");
    }
}
