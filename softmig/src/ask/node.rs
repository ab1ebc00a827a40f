//! Nodes with GPUs, and how much of each is used.

use crate::ask::scontrol;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::placed::{Placed, Places};
use std::collections::BTreeMap;

/// A node with GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its host name, which the site may have named otherwise (NodeHostname).
    pub(crate) host: String,
    /// Its state, as Slurm says it: `IDLE+DRAIN`.
    pub(crate) state: String,
    /// Why it is not available, as an administrator or Slurm wrote it.
    pub(crate) reason: Option<String>,
    /// Its partitions.
    pub(crate) partitions: Vec<String>,
    /// Its GPUs, by index.
    pub(crate) gpus: Vec<NodeGpu>,
    /// CPUs that no job has.
    pub(crate) free_cpus: Option<u64>,
    /// By type: shards that are used on GPUs that Slurm does not say.
    pub(crate) unplaced: BTreeMap<String, u64>,
    /// By type: shards in use, where slurmctld counts them.
    pub(crate) allocated: BTreeMap<String, u64>,
}

/// A GPU, or an instance of MIG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeGpu {
    /// Its index on the node, as Slurm counts.
    pub(crate) index: u32,
    /// Its type; empty where Slurm knows none.
    pub(crate) kind: String,
    /// Its shards; 0 or 1 where it is not shared.
    pub(crate) shards: u64,
    /// Whether a job has it as a whole.
    pub(crate) whole: bool,
    /// The shards that jobs have; `None` where some have, and Slurm does not say how many.
    pub(crate) used: Option<u64>,
    /// The jobs that have it or a part of it, as far as they are shown.
    pub(crate) jobs: Vec<u32>,
    /// Whether the node's line says its shards: not before 23.11.
    pub(crate) is_told: bool,
    /// Whether the node's line says that some of its shards are used.
    pub(crate) is_touched: bool,
}

impl NodeGpu {
    /// The shards that no job has; `None` where that is not known.
    pub(crate) fn free(&self) -> Option<u64> {
        if self.whole {
            Some(0)
        } else {
            Some(self.shards.saturating_sub(self.used?))
        }
    }

    /// Whether no job has any of it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.whole && self.used == Some(0)
    }
}

/// The states that keep jobs off a node: a word of Slurm's, and ours.
const CLOSED: [(&str, &str); 14] = [
    ("DRAIN", "drained"),
    ("DOWN", "down"),
    ("FAIL", "failing"),
    ("FAILING", "failing"),
    ("ERROR", "down"),
    ("MAINT", "in maintenance"),
    ("MAINTENANCE", "in maintenance"),
    ("RESERVED", "in a reservation"),
    ("NOT_RESPONDING", "does not answer"),
    ("FUTURE", "not there yet"),
    ("UNKNOWN", "in an unknown state"),
    (
        "INVALID_REG",
        "registered with other hardware than slurm.conf says",
    ),
    ("REBOOT_ISSUED", "restarting"),
    ("POWERING_DOWN", "being switched off"),
];

impl Node {
    /// Whether this is the host name of the node, with its domain or without.
    pub(crate) fn is_machine(&self, hostname: &str) -> bool {
        fn short(name: &str) -> &str {
            name.split('.').next().unwrap_or_default()
        }
        let own = [&self.host, &self.name]
            .into_iter()
            .find(|own| !own.is_empty());
        own.is_some_and(|own| short(own) == short(hostname))
    }

    /// Why no job starts here; `None` where jobs start.
    pub(crate) fn closed(&self) -> Option<&'static str> {
        let words = || {
            self.state
                .split('+')
                .map(|word| word.trim_end_matches(MARKS))
        };
        // The one that is first in our list says most.
        let known = CLOSED
            .iter()
            .find(|(word, _)| words().any(|own| own == *word));
        match known {
            Some(("DRAIN", _)) if self.is_busy() => Some("draining"),
            Some((_, told)) => Some(told),
            None if self.state.contains('*') => Some("does not answer"),
            None => None,
        }
    }

    fn is_busy(&self) -> bool {
        self.state.starts_with("MIXED") || self.state.starts_with("ALLOC")
    }
}

/// Marks behind a state, such as `DOWN*`.
const MARKS: [char; 9] = ['*', '~', '#', '!', '%', '$', '@', '^', '-'];

/// Those that have GPUs.
pub(super) fn with_gpus(nodes: Vec<scontrol::Node>) -> Vec<Node> {
    let nodes = nodes.into_iter().map(Node::from);
    nodes.filter(|node| !node.gpus.is_empty()).collect()
}

impl From<scontrol::Node> for Node {
    fn from(node: scontrol::Node) -> Self {
        Self {
            gpus: gpus_of(&node.gres, &node.used),
            free_cpus: (node.usable_cpus.zip(node.used_cpus))
                .map(|(all, used)| all.saturating_sub(used)),
            unplaced: BTreeMap::new(),
            allocated: allocated(&node.allocated, &node.configured, &node.gres),
            name: node.name,
            host: node.host,
            state: node.state,
            reason: node.reason,
            partitions: node.partitions,
        }
    }
}

/// The GPUs by index. Slurm numbers them type by type.
fn gpus_of(configured: &[Configured], used: &[Placed]) -> Vec<NodeGpu> {
    let of = |name: &'static str| configured.iter().filter(move |gres| gres.name == name);
    let all_gpus: u64 = of("gpu").map(|gres| gres.count).sum();
    let mut gpus = Vec::new();
    for gres in of("gpu") {
        let shards_of = |kind: &Option<String>| {
            let shards = of("shard").filter(|shard| shard.kind == *kind);
            shards.map(|shard| shard.count).sum::<u64>()
        };
        // Shards without a type are those of all GPUs.
        let per_gpu = match shards_of(&gres.kind) {
            0 => shards_of(&None).checked_div(all_gpus),
            shards => shards.checked_div(gres.count),
        };
        let first = gpus.len();
        for at in 0..gres.count.min(MOST_GPUS) {
            let (Ok(index), Ok(place)) = (u32::try_from(first as u64 + at), u32::try_from(at))
            else {
                break;
            };
            let mut gpu = NodeGpu {
                index,
                kind: gres.kind.clone().unwrap_or_default(),
                shards: per_gpu.unwrap_or(0),
                used: Some(0),
                ..NodeGpu::default()
            };
            for placed in used
                .iter()
                .filter(|placed| placed.gres.kind == gres.kind || placed.gres.kind.is_none())
            {
                read_use(&mut gpu, placed, place);
            }
            gpus.push(gpu);
        }
    }
    gpus
}

/// No node has more GPUs of a type.
const MOST_GPUS: u64 = 1024;

/// The use of a GPU by `GresUsed`; `place` is its index among those of its type.
fn read_use(gpu: &mut NodeGpu, placed: &Placed, place: u32) {
    match (placed.gres.name.as_str(), &placed.places) {
        ("gpu", _) => gpu.whole |= placed.on(gpu.index).is_some_and(|count| count > 0),
        ("shard", Places::Parts(parts)) => {
            // Without a type, the list is that of all GPUs.
            let place = match placed.gres.kind {
                Some(_) => place,
                None => gpu.index,
            };
            if let Some(part) = parts.get(place as usize) {
                gpu.is_told = true;
                gpu.used = Some(part.used.unwrap_or(0));
                gpu.shards = part.of;
            }
        }
        ("shard", Places::Indices(indices)) => gpu.is_touched |= indices.contains(&gpu.index),
        _ => {}
    }
}

/// The shards in use by type, where slurmctld counts them (AccountingStorageTRES has gres/shard).
fn allocated(
    used: &[Configured],
    all: &[Configured],
    gpus: &[Configured],
) -> BTreeMap<String, u64> {
    let count = |list: &[Configured], kind: &Option<String>| {
        let own = list
            .iter()
            .find(|gres| gres.name == "shard" && gres.kind == *kind);
        own.map(|gres| gres.count)
    };
    let kinds: Vec<&Configured> = gpus.iter().filter(|gres| gres.name == "gpu").collect();
    let of_kind = kinds.iter().filter_map(|gres| {
        let kind = gres.kind.clone().unwrap_or_default();
        if count(all, &gres.kind).is_some() {
            return Some((kind, count(used, &gres.kind).unwrap_or(0)));
        }
        // All types together are those of the one that there is.
        (kinds.len() == 1 && count(all, &None).is_some())
            .then(|| (kind, count(used, &None).unwrap_or(0)))
    });
    of_kind.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_host_name() {
        let line = "NodeName=a17 Arch=x86_64 Gres=gpu:l40s:1 NodeAddr=192.0.2.17 NodeHostName=gpu17 Version=24.11.5";
        let nodes = with_gpus(scontrol::nodes_of(line));
        for (hostname, is_it) in [
            ("gpu17", true),
            ("gpu17.cluster.example", true),
            ("a17", false),
            ("gpu1", false),
            ("", false),
        ] {
            assert_eq!(nodes[0].is_machine(hostname), is_it, "{hostname}");
        }
    }
}
