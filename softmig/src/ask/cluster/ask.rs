//! The three questions to slurmctld, asked at once.

use crate::ask::cluster::all::Cluster;
use crate::ask::cluster::jobs::STATES;
use crate::ask::here;
use crate::ask::scontrol::{self, JobLines};
use crate::ask::squeue::{self, DESCRIPTION};
use anyhow::{Context as _, anyhow};
use softmig_node::slurmctld::{AskError, Commands};

/// Slurm's own commands, with the slurm.conf that the caller uses.
pub(crate) fn commands() -> anyhow::Result<Commands> {
    here::commands().context(
        "scontrol is not in /usr/bin or /usr/local/bin; run this where Slurm's commands are",
    )
}

/// The cluster as Slurm shows it to this user.
pub(crate) fn cluster(commands: &Commands) -> anyhow::Result<Cluster> {
    let silence = |program: &str, error: AskError| match error {
        AskError::Late => anyhow!("slurmctld did not answer in time; is it running?"),
        error => anyhow!("{program}: {error}; is slurmctld running?"),
    };
    let (nodes, jobs, lines) = std::thread::scope(|scope| {
        let nodes = scope.spawn(|| scontrol::nodes(commands));
        let lines = scope.spawn(|| scontrol::jobs(commands));
        let jobs = squeue::jobs(commands, DESCRIPTION, &[STATES]);
        (nodes.join(), jobs, lines.join())
    });
    let lost = |_| anyhow!("a question to slurmctld was not asked");
    let by_scontrol = |error| silence("scontrol", error);
    let nodes = nodes.map_err(lost)?.map_err(by_scontrol)?;
    let jobs = jobs.map_err(|error| silence("squeue", error))?;
    let lines = lines.map_err(lost)?.map_err(by_scontrol)?;
    Ok(Cluster::new(nodes, jobs, &JobLines::parse(&lines)))
}
