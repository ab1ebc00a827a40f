//! Nodes, and how much of their GPUs is used.

use serde::Serialize;
use softmig_policy::slurm::conf::printed_value as value;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::placed::{Placed, Places};
use std::collections::BTreeMap;

/// A node, as Slurm's configuration has it or as a running Slurm prints it. What is written of it as JSON is documented
/// (docs/status.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its host name, which the site may have named otherwise (NodeHostname).
    #[serde(skip)]
    pub(crate) host: String,
    /// Its state, as Slurm says it: `IDLE+DRAIN`. Files say none.
    pub(crate) state: String,
    /// Why it is not available, as an administrator or Slurm wrote it.
    pub(crate) reason: Option<String>,
    /// Its partitions.
    pub(crate) partitions: Vec<String>,
    /// Its GRES.
    #[serde(skip)]
    pub(crate) gres: Vec<Configured>,
    /// Its CPUs, where they are known.
    #[serde(skip)]
    pub(crate) cpus: Option<u64>,
    /// Its GPUs, by index.
    #[serde(skip)]
    pub(crate) gpus: Vec<NodeGpu>,
    /// CPUs that no job has.
    #[serde(skip)]
    pub(crate) free_cpus: Option<u64>,
    /// By type: shards that are used on GPUs that Slurm does not say.
    #[serde(rename = "unplaced_shards")]
    pub(crate) unplaced: BTreeMap<String, u64>,
    /// By type: shards in use, where slurmctld counts them.
    #[serde(skip)]
    pub(crate) allocated: BTreeMap<String, u64>,
}

/// A GPU, or an instance of MIG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NodeGpu {
    /// Its index on the node, as Slurm counts.
    pub(crate) index: u32,
    /// Its type; empty where Slurm knows none.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Its shards; 0 or 1 where it is not shared.
    pub(crate) shards: u64,
    /// Whether a job has it as a whole.
    #[serde(rename = "used_whole")]
    pub(crate) whole: bool,
    /// The shards that jobs have; `None` where some have, and Slurm does not say how many.
    #[serde(rename = "shards_used")]
    pub(crate) used: Option<u64>,
    /// The jobs that have it or a part of it, as far as they are shown.
    pub(crate) jobs: Vec<u32>,
    /// Whether the node's line says its shards: not before 23.11.
    #[serde(skip)]
    pub(crate) is_told: bool,
    /// Whether the node's line says that some of its shards are used.
    #[serde(skip)]
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
    /// Reads a line of `scontrol -d -o show node`.
    pub(crate) fn read(line: &str) -> Self {
        let number = |key: &str| value(line, key).parse::<u64>().ok();
        let list = |key: &str| Configured::parse(value(line, key));
        let gres = list("Gres");
        let usable = number("CPUEfctv").or_else(|| number("CPUTot"));
        Self {
            name: value(line, "NodeName").to_string(),
            host: value(line, "NodeHostName").to_string(),
            state: value(line, "State").to_string(),
            reason: reason(line),
            partitions: words(value(line, "Partitions")),
            cpus: number("CPUTot"),
            gpus: gpus_of(&gres, &Placed::parse(value(line, "GresUsed"))),
            free_cpus: (usable.zip(number("CPUAlloc"))).map(|(all, used)| all.saturating_sub(used)),
            unplaced: BTreeMap::new(),
            allocated: allocated(&list("AllocTRES"), &list("CfgTRES"), &gres),
            gres,
        }
    }

    /// How many of a GRES and type it has.
    pub(crate) fn count(&self, name: &str, kind: &str) -> u64 {
        let of_kind = |gres: &&Configured| gres.name == name && gres.kind.as_deref() == Some(kind);
        self.gres
            .iter()
            .filter(of_kind)
            .map(|gres| gres.count)
            .sum()
    }

    /// How many of a GRES it has of each type; those without a type are of the type "".
    pub(crate) fn counts(&self, name: &str) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for gres in self.items(name) {
            *counts
                .entry(gres.kind.as_deref().unwrap_or_default())
                .or_default() += gres.count;
        }
        counts
    }

    /// Whether it has any of a GRES.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.items(name).next().is_some()
    }

    /// Its items of a GRES.
    pub(crate) fn items(&self, name: &str) -> impl Iterator<Item = &Configured> {
        let named = move |gres: &&Configured| gres.name == name && gres.count > 0;
        self.gres.iter().filter(named)
    }

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

fn words(list: &str) -> Vec<String> {
    let words = list.split(',').filter(|word| !word.is_empty());
    words.map(str::to_string).collect()
}

/// `Reason=fan broken [root@2026-11-23T20:38:36]`, which is in no word of its own.
fn reason(line: &str) -> Option<String> {
    let (_, reason) = line.split_once(" Reason=")?;
    let reason = reason.split(" [").next().unwrap_or_default().trim();
    let plain: String = reason
        .chars()
        .filter(|letter| !letter.is_control())
        .collect();
    (!plain.is_empty()).then_some(plain)
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
        let node = Node::read(line);
        for (hostname, is_it) in [
            ("gpu17", true),
            ("gpu17.cluster.example", true),
            ("a17", false),
            ("gpu1", false),
            ("", false),
        ] {
            assert_eq!(node.is_machine(hostname), is_it, "{hostname}");
        }
    }
}
