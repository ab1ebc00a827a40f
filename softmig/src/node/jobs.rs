//! The GPU jobs that run here without a conf: from before softmig came to the node.
//!
//! Once the node enforces, a job without a conf sees no GPU in the processes that it starts. So before the switch such
//! jobs get one, by the prolog's own decision and in the prolog's own way. What each may take is slurmctld's to say;
//! a job about which nothing is known gets none.

use crate::node::slurmd::{Slurmd, jobs_with_steps};
use anyhow::Context;
use softmig_node::job::{GpuList, Job, JobId, Tags};
use softmig_node::node::Node;
use softmig_node::record::{conf_of, record_if_missing};
use softmig_node::slurmctld::{AskError, Commands};
use softmig_node::verdict::{Verdict, decide};
use softmig_policy::NodePolicy;
use softmig_policy::node::job_conf::Gpus;
use softmig_policy::slurm::allocation::Allocation;

/// What of a job is asked for, in the order of the answer. Only Slurm's own numbers: none of it is text that a user
/// chose and could make look like something else.
const COLUMNS: &str = "--Format=JobID,UserID,GroupID,RestartCnt";

/// What became of the jobs that had no conf.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// What each job that has one now may take, in words.
    pub(crate) given: Vec<(JobId, String)>,
    /// Those of which nothing is known.
    pub(crate) unknown: Vec<JobId>,
    /// Why not.
    pub(crate) silence: Option<String>,
    /// Whether slurmctld let one question pass without an answer. It would do so with the next ones.
    late: bool,
}

impl Survey {
    fn unknown(&mut self, id: JobId, why: &dyn std::fmt::Display) {
        self.unknown.push(id);
        self.silence.get_or_insert_with(|| why.to_string());
    }
}

/// Gives a conf to each GPU job of this node that has none.
pub(crate) fn give_confs(node: &Node) -> anyhow::Result<Survey> {
    let mut survey = Survey::default();
    let slurmd = Slurmd::here();
    let policy = node.policy().ok();
    match listed(&slurmd) {
        Ok((commands, jobs)) => {
            for job in jobs {
                if has_conf(node, job.id)? {
                    continue;
                }
                if survey.late {
                    survey.unknown(job.id, &AskError::Late);
                } else {
                    give(node, &job, &commands, policy.as_ref(), &mut survey)?;
                }
            }
        }
        Err(why) => {
            for id in jobs_with_steps() {
                if !has_conf(node, id)? {
                    survey.unknown(id, &why);
                }
            }
        }
    }
    Ok(survey)
}

fn has_conf(node: &Node, id: JobId) -> anyhow::Result<bool> {
    let run = node.open().context("looking for confs of jobs")?;
    match run {
        Some(run) => Ok(run.conf_text(id)?.is_some()),
        None => Ok(false),
    }
}

/// The jobs that run here, as slurmctld lists them.
fn listed(slurmd: &Slurmd) -> Result<(Commands, Vec<Job>), AskError> {
    let commands = slurmd.commands.clone().ok_or(AskError::NotFound)?;
    let node = format!("--nodelist={}", slurmd.name);
    let answer = commands.answer(
        "squeue",
        &[
            "--noheader",
            "--all",
            "--local",
            "--states=RUNNING,SUSPENDED",
            &node,
            COLUMNS,
        ],
    )?;
    let jobs = answer.lines().filter_map(|line| job_of(line, &slurmd.name));
    Ok((commands, jobs.collect()))
}

/// Reads a line of the list.
fn job_of(line: &str, node: &str) -> Option<Job> {
    let mut words = line.split_ascii_whitespace();
    Some(Job {
        id: JobId::parse(words.next()?)?,
        uid: words.next()?.parse().ok()?,
        gid: words.next()?.parse().ok()?,
        gpus: Some(GpuList::default()),
        run: words.next()?.parse().ok(),
        start: None,
        sluid: None,
        node: node.to_string(),
        slurm_conf: None,
        tags: Tags::default(),
    })
}

/// Gives one job its conf if it has GPUs here.
fn give(
    node: &Node,
    job: &Job,
    commands: &Commands,
    policy: Option<&NodePolicy>,
    survey: &mut Survey,
) -> anyhow::Result<()> {
    let allocation = match commands.allocation(job.id, &job.node) {
        Ok(Allocation::Nothing) => return Ok(()),
        Ok(allocation) => allocation,
        Err(why) => {
            survey.late = matches!(why, AskError::Late);
            survey.unknown(job.id, &why);
            return Ok(());
        }
    };
    let verdict = decide(job.id, None, policy, None, || Ok(allocation));
    // The cards need not be known: Slurm's fence shows the job no other, and limits hold on each.
    match conf_of(job, &verdict, Gpus::default()) {
        Some(conf) => {
            let given =
                record_if_missing(node, job, &conf).with_context(|| format!("job {}", job.id))?;
            // Else its prolog was faster.
            if given {
                survey.given.push((job.id, words_for(&verdict)));
            }
        }
        None => survey.unknown(job.id, &"the policy does not know the shards that it has"),
    }
    Ok(())
}

fn words_for(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Slice(limits, _) => format!(
            "{} of one {}, {} MiB",
            limits.share(),
            limits.gpu_type(),
            limits.memory_mib()
        ),
        Verdict::Whole(_) => "all of its GPUs".into(),
        Verdict::Unknown | Verdict::Unseen | Verdict::Drain => "nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_a_job() {
        let line =
            "7                   2001                2002                3                   ";
        let job = job_of(line, "n1").unwrap();
        assert_eq!(
            (job.id.get(), job.uid, job.gid, job.run),
            (7, 2001, 2002, Some(3))
        );
        for other in ["", "x 1 2 3", "0 1 2 3", "7 alice 2 3", "7 1"] {
            assert!(job_of(other, "n1").is_none(), "{other}");
        }
    }
}
