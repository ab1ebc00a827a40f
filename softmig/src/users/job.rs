//! `softmig job`: what a job on this node, or one that has ended, has of its GPU, what it used, and whether a smaller slice
//! would have done.

mod end_line;
mod ended;
mod file;
mod json;
mod lines;
mod report;

use crate::ask::cluster::ask;
use crate::ask::cluster::reasons::Asker;
use crate::ask::squeue::{self, NAMES};
use crate::files::policy_file;
use crate::output::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use file::Found;
use report::Report;
use softmig_node::job::JobId;
use softmig_node::node::Node;
use softmig_node::sacct;
use softmig_policy::Policy;
use std::path::PathBuf;

/// Shows what your job has of its GPU and what it used, and whether a smaller slice would have done
///
/// Inside a job it shows that job. Elsewhere on the job's node, give its number. The figures are the monitor's, at most some
/// seconds old. Of a job that has ended, Slurm's accounting keeps them if policy.toml has admin_comment under [report]; these
/// are shown on any machine.
///
/// Exit status: 0 done, 2 wrong usage, 1 the job is not here, or its use is not known.
#[derive(Args)]
pub(crate) struct Job {
    /// The job's number, 12345, or 12345_7 for a task of an array; inside a job its own
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Print one JSON object (docs/status.md)
    #[arg(long)]
    json: bool,
    /// For TaskEpilog: if policy.toml has end_line under [report], say in a line on standard error what the job used, once
    /// nothing of it runs any more. It never fails
    #[arg(long, conflicts_with = "json")]
    end_line: bool,
    /// The policy, which says what smaller slices hold
    #[arg(long, value_name = "FILE", default_value = Policy::PATH)]
    policy: PathBuf,
}

impl Job {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if self.end_line {
            end_line::say();
            return Ok(());
        }
        let id = self.id()?;
        let found = file::read(&Node::this_machine(), id)?;
        let used = match found {
            Found::Used(used) => used,
            Found::Limits(words) => bail!(
                "job {id} has {words}; what it used is not known yet: look again in 10 seconds. If it stays so, softmig-monitor \
                 does not run here"
            ),
            Found::Nothing => return self.elsewhere(id),
        };
        let policy = self.policy();
        let report = Report::new(&used, id, policy.as_ref()).with_context(|| {
            format!(
                "job {id}: the monitor's figures here do not name it; look again in some seconds"
            )
        })?;
        if self.json {
            say!("{}", report.to_json());
        } else {
            say!("{report}");
        }
        Ok(())
    }

    /// The policy, if it can be read. Without it, the rest is shown.
    fn policy(&self) -> Option<Policy> {
        policy_file::read(&self.policy).ok().map(|file| file.policy)
    }

    fn id(&self) -> anyhow::Result<JobId> {
        let own = || std::env::var("SLURM_JOB_ID").ok();
        let Some(text) = self.job.clone().or_else(own) else {
            bail!(
                "this is not inside a job; give the job's number, as 'softmig job 12345' ('squeue --me' lists yours)"
            );
        };
        if let Some(id) = JobId::parse(&text) {
            return Ok(id);
        }
        let is_number = |part: &str| JobId::parse(part).is_some() || part == "0";
        match text.split_once(['_', '+']) {
            Some((job, task)) if is_number(job) && is_number(task) => of_task(&text),
            _ => bail!(
                "{text} is not the number of a job; write for example 12345, or 12345_7 for a task of an array"
            ),
        }
    }

    /// Slurm's answer about a job that is not on this node: why it waits, where it is, or what it used until its end.
    fn elsewhere(&self, id: JobId) -> anyhow::Result<()> {
        let nothing = format!("job {id} has no GPU on this machine");
        let asked = ask::commands().and_then(|commands| Ok((ask::cluster(&commands)?, commands)));
        let Ok((cluster, commands)) = asked else {
            bail!("{nothing}, and Slurm does not answer where it is");
        };
        let policy = self.policy();
        let Some(job) = cluster.jobs.iter().find(|job| job.id == id.get()) else {
            return ended::tell(&commands, id, policy.as_ref(), self.json);
        };
        let name = uzers::get_current_username();
        let user = name.as_ref().and_then(|name| name.to_str());
        let asker = Asker {
            policy: policy.as_ref(),
            user,
        };
        if job.waits() {
            let (words, code) = asker.why(job);
            bail!("job {id} has not started: {words} [{code}]");
        }
        if user.is_some_and(|user| user != "root" && user != job.user) {
            bail!(
                "{nothing}; it is {}'s, and others but root do not see what it uses",
                job.user
            );
        }
        let nodes: Vec<&str> = job.places.iter().map(|(node, _)| node.as_str()).collect();
        bail!(
            "{nothing}; it is on {}: as {}, run 'srun --jobid={id} --overlap softmig job', or 'softmig job {id}' there",
            nodes.join(", "),
            job.user
        )
    }
}

/// The number of a task of an array or of a component, by Slurm's answer: now, or else of the past.
fn of_task(name: &str) -> anyhow::Result<JobId> {
    let commands = ask::commands()?;
    let jobs = squeue::jobs(&commands, NAMES, &["--states=all", "--array"]);
    let mut now = jobs.iter().flatten();
    if let Some(job) = now.find(|job| job.name == name) {
        return JobId::parse(&job.id.to_string()).context("squeue says no number");
    }
    match (sacct::id_of(&commands, name), jobs) {
        (Ok(Some(id)), _) => Ok(id),
        (_, Err(error)) => bail!("squeue does not say which job {name} is: {error}"),
        (_, Ok(_)) => bail!("Slurm shows you no job {name}, neither now nor in its accounting"),
    }
}
