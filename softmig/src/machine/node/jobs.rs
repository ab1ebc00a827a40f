//! The GPU jobs that run here without a conf: from before softmig came to the node.
//!
//! Once the node enforces, a job without a conf sees no GPU in the processes that it starts. So before the switch such
//! jobs get one, by the prolog's own decision and in the prolog's own way. slurmctld says what each may take;
//! a job about which nothing is known gets none.

use crate::ask::slurmd::{Slurmd, jobs_with_steps};
use crate::ask::squeue;
use anyhow::Context;
use softmig_node::allowance::{Allowance, Source, decide};
use softmig_node::job::{Job, JobId, Tags};
use softmig_node::job_files::{JobFiles, conf_of, name_by_sluid};
use softmig_node::node::Node;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::NodePolicy;
use softmig_policy::node::job_conf::Gpus;
use softmig_policy::node::limits::Limits;
use softmig_policy::node::softmig_conf;
use softmig_policy::slurm::allocation::Allocation;
use softmig_policy::slurm::gpu_list::GpuList;
use std::time::Duration;

/// The outcome for the jobs that had no conf.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The limits of each job that has one now, in words.
    pub(crate) given: Vec<(JobId, String)>,
    /// Those whose conf has a second name now: their prolog ran before an upgrade of Slurm.
    pub(crate) named: Vec<JobId>,
    /// Those of which nothing is known.
    pub(crate) unknown: Vec<JobId>,
    /// Why slurmctld did not answer, if it did not.
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
                let older = match conf_here(node, job.id)? {
                    Here::Ours => {
                        let named = name_by_sluid(node, &job);
                        if named.with_context(|| format!("job {}", job.id))? {
                            survey.named.push(job.id);
                        }
                        continue;
                    }
                    Here::Older(limits) => Some(limits),
                    Here::Nothing => None,
                };
                if survey.late {
                    survey.unknown(job.id, &AskError::Late);
                } else {
                    give(node, &job, &commands, policy.as_ref(), older, &mut survey)?;
                }
            }
        }
        Err(why) => {
            for id in jobs_with_steps() {
                if !matches!(conf_here(node, id)?, Here::Ours) {
                    survey.unknown(id, &why);
                }
            }
        }
    }
    Ok(survey)
}

/// The node's conf of a job.
enum Here {
    Nothing,
    /// A conf of the older SoftMig's prolog, with these limits.
    Older(Limits),
    Ours,
}

fn conf_here(node: &Node, id: JobId) -> anyhow::Result<Here> {
    let run = node.open().context("looking for confs of jobs")?;
    let text = run.map(|run| run.conf_text(id)).transpose()?.flatten();
    Ok(match text {
        None => Here::Nothing,
        Some(text) => softmig_conf::limits(&text).map_or(Here::Ours, Here::Older),
    })
}

/// Keeps the limits of an older conf, unless those that the policy gives are smaller.
fn no_more_than(allowance: Allowance, older: Option<Limits>) -> Allowance {
    let Some(older) = older else { return allowance };
    let is_smaller = |own: &Limits| {
        own.memory_mib() <= older.memory_mib()
            && own.share().percent_tenths() <= older.share().percent_tenths()
    };
    match allowance {
        Allowance::Slice(own, _) if is_smaller(&own) => allowance,
        _ => Allowance::Slice(older, Source::Slurmctld),
    }
}

/// Jobs that the node has limits for and that Slurm does not know any more: their epilog failed or was cut off. `None` if
/// slurmctld does not answer.
pub(crate) fn unknown_to_slurm(node: &Node) -> Option<Vec<JobId>> {
    let run = node.open().ok()??;
    let is_old = |name: &String| {
        let path = run.dir.path().join(name);
        let changed = std::fs::symlink_metadata(path).and_then(|conf| conf.modified());
        let age = changed.ok().and_then(|changed| changed.elapsed().ok());
        age.is_some_and(|age| age >= YOUNG)
    };
    let names = run.dir.names().ok()?;
    let mut old: Vec<JobId> = names
        .iter()
        .filter(|name| is_old(name))
        .filter_map(|name| JobId::parse(name.strip_suffix(".conf")?))
        .collect();
    drop(run);
    if old.is_empty() {
        return Some(old);
    }
    let commands = Slurmd::here().commands?;
    let known = squeue::ids(&commands).ok()?;
    old.retain(|id| !known.contains(&id.get()));
    old.sort_unstable();
    Some(old)
}

/// A younger conf may be of a job that the list does not have yet.
const YOUNG: Duration = Duration::from_secs(60);

/// The jobs that run here, as slurmctld lists them.
fn listed(slurmd: &Slurmd) -> Result<(Commands, Vec<Job>), AskError> {
    let commands = slurmd.commands.clone().ok_or(AskError::NotFound)?;
    let node = format!("--nodelist={}", slurmd.name);
    let jobs = squeue::numbers(&commands, &["--states=RUNNING,SUSPENDED", &node])?
        .into_iter()
        .filter_map(|job| job_of(job, &slurmd.name));
    Ok((commands, jobs.collect()))
}

/// The job as the prolog reads it; `None` where squeue did not give its numbers.
fn job_of(listed: squeue::Job, node: &str) -> Option<Job> {
    Some(Job {
        id: JobId::parse(&listed.id.to_string())?,
        uid: listed.uid?,
        gid: listed.gid?,
        gpus: Some(GpuList::default()),
        run: listed.run,
        start: None,
        sluid: listed.sluid,
        user: None,
        account: None,
        partition: None,
        reservation: None,
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
    older: Option<Limits>,
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
    let allowance = no_more_than(decide(job.id, None, policy, None, || Ok(allocation)), older);
    // The cards need not be known: Slurm's fence shows the job no other, and limits hold on each.
    match conf_of(job, &allowance, Gpus::default(), policy) {
        Some(conf) => {
            let files = JobFiles::new(node, job, Some(&conf));
            let given = files.apply_if_missing(node);
            // Else its prolog was faster.
            if given.with_context(|| format!("job {}", job.id))? {
                survey.given.push((job.id, words_for(&allowance)));
            }
        }
        None => survey.unknown(job.id, &"the policy does not know the shards that it has"),
    }
    Ok(())
}

fn words_for(allowance: &Allowance) -> String {
    match allowance {
        Allowance::Slice(limits, _) => format!(
            "{} of one {}, {} MiB",
            limits.share(),
            limits.gpu_type(),
            limits.memory_mib()
        ),
        Allowance::Whole(_) | Allowance::Mixed(_) => "all of its GPUs".into(),
        Allowance::Unknown | Allowance::Unseen | Allowance::Drain => "nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_conf_of_the_older_prolog_is_loosened() {
        let limits = |text: &str| softmig_conf::limits(text.as_bytes()).unwrap();
        let older = limits("CUDA_DEVICE_MEMORY_LIMIT=12288M\nCUDA_DEVICE_SM_LIMIT=25\n");
        let larger = limits("CUDA_DEVICE_MEMORY_LIMIT=12289M\nCUDA_DEVICE_SM_LIMIT=25\n");
        let smaller = limits("CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\n");
        let slice = |limits| Allowance::Slice(limits, Source::Slurmctld);
        for (allowance, kept) in [
            (Allowance::Whole(Source::Slurmctld), older),
            (Allowance::Unknown, older),
            (slice(larger), older),
            (slice(smaller), smaller),
        ] {
            assert_eq!(no_more_than(allowance, Some(older)), slice(kept));
        }
        assert_eq!(no_more_than(Allowance::Unknown, None), Allowance::Unknown);
    }

    #[test]
    fn a_listed_job_needs_its_numbers() {
        let job = |line: &str| {
            let listed = squeue::read_numbers(line);
            job_of(listed.into_iter().next()?, "n1")
        };
        let own = job("7  |2001  |2002  |3  |").unwrap();
        assert_eq!(
            (own.id.get(), own.uid, own.gid, own.run),
            (7, 2001, 2002, Some(3))
        );
        for other in ["", "x|1|2|3|", "0|1|2|3|", "7|alice|2|3|", "7|1|"] {
            assert!(job(other).is_none(), "{other}");
        }
    }
}
