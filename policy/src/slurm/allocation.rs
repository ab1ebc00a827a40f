//! What slurmctld says a job got on a node: `scontrol -d -o show job`, for jobs that carry no tag.

use crate::config::gpu_types::GpuType;
use crate::config::node_policy::NodePolicy;
use crate::node::limits::Limits;
use crate::slurm::gres::{Item, Name, items};

/// A job's GPUs on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// None.
    Nothing,
    /// Whole ones.
    Whole,
    /// Shards.
    Shards {
        /// The GPU's type, where Slurm says it.
        kind: Option<String>,
        /// How many in all.
        shards: u64,
    },
}

impl Allocation {
    /// Reads the answer for `node`.
    ///
    /// Slurm prints one `Nodes=... GRES=...` group for nodes with equal parts, and the parts as `shard:3(IDX:0)`,
    /// from 23.11 on as `shard:l40s:1(1/4,0/4)`.
    ///
    /// ```
    /// use softmig_policy::slurm::allocation::Allocation;
    /// let line = "JobId=7 Nodes=n1 CPU_IDs=0 Mem=500 GRES=shard:l40s:1(IDX:0)";
    /// assert_eq!(
    ///     Allocation::parse(line, "n1"),
    ///     Allocation::Shards { kind: Some("l40s".into()), shards: 1 }
    /// );
    /// ```
    pub fn parse(line: &str, node: &str) -> Self {
        let mut here = Vec::new();
        let mut elsewhere = Vec::new();
        let mut nodes = "";
        for word in line.split_ascii_whitespace() {
            if let Some(list) = word.strip_prefix("Nodes=") {
                nodes = list;
            } else if let Some(gres) = word.strip_prefix("GRES=") {
                // A range of nodes may hold this one. It is never passed over: the line also has words that the
                // user chose, and a `Nodes=... GRES=...` among them must not win over the real one.
                if nodes == node || nodes.contains('[') {
                    here.push(gres);
                } else {
                    elsewhere.push(gres);
                }
            }
        }
        // No group says it is this node's: any may be.
        let groups = if here.is_empty() { elsewhere } else { here };
        groups
            .into_iter()
            .map(Self::of_group)
            .min_by_key(Self::rank)
            .unwrap_or(Self::Nothing)
    }

    fn of_group(gres: &str) -> Self {
        let mut found = Self::Nothing;
        for (_, item) in items(&without_places(gres)) {
            match item {
                Item::Gpu(gres) if gres.count() == 0 => {}
                Item::Gpu(gres) if gres.name == Name::Shard => {
                    return Self::Shards {
                        kind: gres.kind.map(str::to_string),
                        shards: gres.count(),
                    };
                }
                Item::Gpu(_) => found = Self::Whole,
                Item::Malformed(_) | Item::Other(_) => {}
            }
        }
        found
    }

    /// The smaller part first: in doubt a job gets less.
    fn rank(&self) -> (u8, u64) {
        match self {
            Self::Shards { shards, .. } => (0, *shards),
            Self::Whole => (1, 0),
            Self::Nothing => (2, 0),
        }
    }
}

/// Without `(IDX:0)` and the like, which hold commas of their own.
pub(crate) fn without_places(gres: &str) -> String {
    let mut depth = 0u32;
    gres.chars()
        .filter(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

impl NodePolicy {
    /// The limits of so many shards of a type. A part that is spread over several GPUs counts as the smallest part
    /// of each: which GPU holds how much is not known here.
    pub fn allocated(&self, kind: Option<&str>, shards: u64) -> Option<Limits> {
        let gpu = match kind {
            Some(kind) => self.gpu(kind)?,
            None => self.only_type()?,
        };
        u32::try_from(shards)
            .ok()
            .and_then(|shards| gpu.limits(shards).ok())
            .or_else(|| gpu.limits(1).ok())
    }

    /// The smallest part of the type that the driver's name for a card (`NVIDIA L40S`, `NVIDIA TITAN RTX`) belongs to,
    /// or of any type when none does: a type's name need not be in its cards' name.
    pub fn smallest(&self, model: Option<&str>) -> Option<Limits> {
        let is_model = |gpu: &&GpuType| model.is_some_and(|model| names(model, gpu.name()));
        let smallest = |gpu: &GpuType| {
            let size = gpu.slices().last().copied().unwrap_or(1);
            gpu.limits(gpu.shards_per_gpu() / size).ok()
        };
        self.gpus().find(is_model).and_then(smallest).or_else(|| {
            self.gpus()
                .filter_map(smallest)
                .min_by_key(Limits::memory_mib)
        })
    }

    fn only_type(&self) -> Option<&GpuType> {
        let mut types = self.gpus();
        types.next().filter(|_| types.next().is_none())
    }
}

/// Whether one or more words of `model` in a row are `name`, but for case and punctuation.
fn names(model: &str, name: &str) -> bool {
    let letters = |text: &str| -> String {
        let plain = text.chars().filter(char::is_ascii_alphanumeric);
        plain.map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let words: Vec<String> = model.split([' ', '-']).map(letters).collect();
    let name = letters(name);
    (0..words.len())
        .any(|first| (first..words.len()).any(|last| words[first..=last].concat() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_slurm_prints_is_read() {
        let shards = |kind: Option<&str>, shards| Allocation::Shards {
            kind: kind.map(str::to_string),
            shards,
        };
        for (gres, expected) in [
            ("GRES=shard:3(IDX:0)", shards(None, 3)),
            ("GRES=shard:l40s:1(0/4,1/4,0/4)", shards(Some("l40s"), 1)),
            ("GRES=gres/shard:l40s:1(IDX:0)", shards(Some("l40s"), 1)),
            ("GRES=gpu:l40s:2(IDX:0-1),license:x:1", Allocation::Whole),
            ("GRES=license:x:1,gpu:0(IDX:N/A)", Allocation::Nothing),
            ("GRES=", Allocation::Nothing),
            ("", Allocation::Nothing),
        ] {
            let line =
                format!("JobId=1 TresPerNode=gres:gpu:9 Nodes=n1 CPU_IDs=0 {gres} NtasksPerTRES:0");
            assert_eq!(Allocation::parse(&line, "n1"), expected, "{gres}");
        }
    }

    #[test]
    fn a_job_on_several_nodes_is_read_for_this_one() {
        let line = "JobId=1 Nodes=n1 GRES=gpu:1(IDX:0) Nodes=n2 GRES=shard:2(IDX:0)";
        assert_eq!(Allocation::parse(line, "n1"), Allocation::Whole);
        let elsewhere = Allocation::parse("Nodes=n[1-2] GRES=shard:2(IDX:0)", "n1");
        assert_eq!(
            elsewhere,
            Allocation::Shards {
                kind: None,
                shards: 2
            }
        );
    }

    #[test]
    fn a_users_own_words_never_give_him_more() {
        let real = [
            "Nodes=n1 CPU_IDs=0 GRES=shard:l40s:1(IDX:0)",
            "Nodes=n[1-2] CPU_IDs=0 GRES=shard:l40s:1(0/4)",
        ];
        let words = "Comment=x Nodes=n1 GRES=gpu:l40s:4(IDX:0-3)";
        for real in real {
            for line in [format!("{words} {real}"), format!("{real} {words}")] {
                let allocation = Allocation::parse(&line, "n1");
                assert!(
                    matches!(allocation, Allocation::Shards { shards: 1, .. }),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn in_doubt_a_job_gets_the_smallest_part() {
        let policy = NodePolicy::parse(
            "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
             [gpu.big]\nmemory_mib = 100000\nreserved_mib = 0\nshards = 10\nslices = [2]\n\
             [gpu.titanrtx]\nmemory_mib = 24220\nreserved_mib = 0\nshards = 2\n",
        )
        .unwrap();
        let memory = |limits: Option<Limits>| limits.unwrap().memory_mib();
        assert_eq!(memory(policy.smallest(Some("NVIDIA L40S"))), 11366);
        assert_eq!(memory(policy.smallest(Some("NVIDIA Big-80GB"))), 50000);
        assert_eq!(memory(policy.smallest(Some("NVIDIA TITAN RTX"))), 12110);
        assert_eq!(memory(policy.smallest(Some("Other"))), 11366);
        assert_eq!(memory(policy.allocated(Some("l40s"), 2)), 22732);
        assert_eq!(memory(policy.allocated(Some("l40s"), 6)), 11366);
        assert_eq!(policy.allocated(None, 1), None);
    }
}
