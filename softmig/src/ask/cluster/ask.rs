//! The three questions to slurmctld, asked at once.

use crate::ask::cluster::all::Cluster;
use crate::ask::cluster::jobs;
use anyhow::anyhow;
use softmig_node::slurmctld::{AskError, Commands};

/// Slurm's own commands, with the slurm.conf that the caller uses.
pub(crate) fn commands() -> anyhow::Result<Commands> {
    let conf = std::env::var_os("SLURM_CONF");
    Commands::beside(None, conf).ok_or_else(|| {
        anyhow!(
            "scontrol is not in /usr/bin or /usr/local/bin; run this where Slurm's commands are"
        )
    })
}

/// The cluster as Slurm shows it to this user.
pub(crate) fn cluster(commands: &Commands) -> anyhow::Result<Cluster> {
    let squeue = jobs::question();
    let squeue: Vec<&str> = squeue.iter().map(String::as_str).collect();
    let ask = |program: &str, words: &[&str]| {
        let answer = commands.long_answer(program, words);
        answer.map_err(|error| match error {
            AskError::Late => anyhow!("slurmctld did not answer in time; is it running?"),
            error => anyhow!("{program}: {error}; is slurmctld running?"),
        })
    };
    let (nodes, jobs, details) = std::thread::scope(|scope| {
        let nodes = scope.spawn(|| ask("scontrol", &["-d", "-o", "show", "node"]));
        let details = scope.spawn(|| ask("scontrol", &["-d", "-o", "show", "job"]));
        let jobs = ask("squeue", &squeue);
        let joined = |answer: std::thread::ScopedJoinHandle<'_, anyhow::Result<String>>| {
            answer
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a question to slurmctld was not asked")))
        };
        (joined(nodes), jobs, joined(details))
    });
    Ok(Cluster::of(&nodes?, &jobs?, &details?))
}
