//! What `scontrol show` prints of a cluster: the one place that asks it and reads its answer.

use crate::ask::conf::{Partition, Reservation, Settings};
use crate::ask::node::Node;
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::slurm::conf::{printed_pairs, printed_value as value};
use softmig_policy::slurm::hostlist::expand;
use softmig_policy::slurm::placed::{self, Placed};
use std::collections::HashMap;

/// The nodes, in Slurm's order.
pub(crate) fn nodes(commands: &Commands) -> Result<Vec<Node>, AskError> {
    Ok(nodes_of(&show(commands, &["-d", "-o", "show", "node"])?))
}

/// The partitions, hidden ones too.
pub(crate) fn partitions(commands: &Commands) -> Result<Vec<Partition>, AskError> {
    let answer = show(commands, &["-a", "-o", "show", "partition"])?;
    Ok(partitions_of(&answer))
}

/// The reservations.
pub(crate) fn reservations(commands: &Commands) -> Result<Vec<Reservation>, AskError> {
    let answer = show(commands, &["-a", "-o", "show", "reservation"])?;
    Ok(reservations_of(&answer))
}

/// slurm.conf as it is in force, and cgroup.conf of the controller if this release prints it.
pub(crate) fn config(commands: &Commands) -> Result<(Settings, Option<Settings>), AskError> {
    Ok(config_of(&show(commands, &["show", "config"])?))
}

/// The lines of the jobs, for `JobLines`.
pub(crate) fn jobs(commands: &Commands) -> Result<String, AskError> {
    show(commands, &["-d", "-o", "show", "job"])
}

fn show(commands: &Commands, words: &[&str]) -> Result<String, AskError> {
    commands.long_answer("scontrol", words)
}

/// Reads `-d -o show node`, which has each node in one line.
pub(crate) fn nodes_of(answer: &str) -> Vec<Node> {
    let lines = answer.lines().filter(|line| line.starts_with("NodeName="));
    lines.map(Node::read).collect()
}

fn partitions_of(answer: &str) -> Vec<Partition> {
    let lines = answer
        .lines()
        .filter(|line| line.starts_with("PartitionName="));
    lines
        .map(|line| Partition {
            name: value(line, "PartitionName").to_string(),
            nodes: expand(value(line, "Nodes")),
            settings: printed_pairs(line).collect(),
        })
        .collect()
}

fn reservations_of(answer: &str) -> Vec<Reservation> {
    let lines = answer
        .lines()
        .filter(|line| line.starts_with("ReservationName="));
    lines
        .map(|line| Reservation {
            name: value(line, "ReservationName").to_string(),
            nodes: expand(value(line, "Nodes")),
            tres: value(line, "TRES").to_string(),
        })
        .collect()
}

/// `scontrol show config`: slurm.conf, and below a heading of its own cgroup.conf. Each line is one pair, whose value may have
/// blanks without quotes.
fn config_of(answer: &str) -> (Settings, Option<Settings>) {
    let mut settings = Settings::default();
    let mut cgroup = None;
    let mut other = false;
    for line in answer.lines() {
        if line.starts_with("Cgroup Support Configuration") {
            cgroup = Some(Settings::default());
        } else if line.ends_with("Configuration:") {
            other = true;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let section = match &mut cgroup {
            _ if other => continue,
            Some(cgroup) => cgroup,
            None => &mut settings,
        };
        section.add(key.trim(), value.trim());
    }
    (settings, cgroup)
}

/// The lines of `-d -o show job` by the job's number. They also have words that users chose, such as names and comments, so
/// they only say places, and only where a job's words cannot differ from Slurm's.
pub(crate) struct JobLines<'a>(HashMap<u32, Option<&'a str>>);

impl<'a> JobLines<'a> {
    pub(crate) fn parse(answer: &'a str) -> Self {
        let mut lines: HashMap<u32, Option<&str>> = HashMap::new();
        for line in answer.lines() {
            if let Some(id) = id_of(line) {
                // A user can make a line that looks like another's.
                let known = lines.entry(id).or_insert(Some(line));
                if *known != Some(line) {
                    *known = None;
                }
            }
        }
        Self(lines)
    }

    /// A job's GPUs and shards on each of its nodes; `None` if no line says them.
    pub(crate) fn places(
        &self,
        id: u32,
        is_its: impl Fn(&str) -> bool,
    ) -> Option<Vec<(String, Option<Vec<Placed>>)>> {
        let line = self.0.get(&id).copied().flatten()?;
        Some(placed::of_job(line, is_its))
    }
}

fn id_of(line: &str) -> Option<u32> {
    line.strip_prefix("JobId=")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_both_releases_is_read() {
        let answer = "Configuration data as of 2026-11-22T08:55:18\n\
            AccountingStorageType   = (null)\n\
            Prolog[0]               = /a\nProlog[1]               = /b\n\
            SelectTypeParameters    = CR_CORE_MEMORY\n\
            SLURM_VERSION           = 24.11.5\n\n\
            Cgroup Support Configuration:\nConstrainDevices        = yes\n\n\
            MPI Plugins Configuration:\nPMIxDebug               = 0\n\n\
            Slurmctld(primary) at c is UP\n";
        let (settings, cgroup) = config_of(answer);
        assert_eq!(settings.get("prolog"), "/a,/b");
        assert_eq!(settings.get("AccountingStorageType"), "");
        assert!(settings.has("SelectTypeParameters", "CR_Core_Memory"));
        assert_eq!(settings.get("SLURM_VERSION"), "24.11.5");
        assert!(cgroup.unwrap().is_yes("ConstrainDevices"));
        assert_eq!(settings.get("PMIxDebug"), "");
    }

    #[test]
    fn nodes_partitions_and_reservations_are_read() {
        let node =
            &nodes_of("NodeName=n1 CPUTot=16 Gres=gpu:l40s:4(S:0),shard:l40s:16 OS=Linux 6\n")[0];
        assert_eq!((node.gres[1].count, node.cpus), (16, Some(16)));
        let partition = &partitions_of(
            "PartitionName=main Nodes=n[1-2] JobDefaults=(null) TRESBillingWeights=GRES/gpu=4.0\n",
        )[0];
        assert_eq!(partition.nodes, ["n1", "n2"]);
        assert_eq!(partition.settings.get("TRESBillingWeights"), "GRES/gpu=4.0");
        let reservations = "ReservationName=r Nodes=n1 TRES=cpu=1,gres/gpu:l40s=1 Users=root\n";
        assert_eq!(
            reservations_of(reservations)[0].tres,
            "cpu=1,gres/gpu:l40s=1"
        );
        assert!(reservations_of("No reservations in the system\n").is_empty());
    }
}
