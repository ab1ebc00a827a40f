//! A job's allocation on a node, as slurmctld shows it: `scontrol -d -o show job`, for jobs that carry no tag.

use crate::slurm::conf::printed_groups;
use crate::slurm::gres_list::Configured;

/// A job's GPUs on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// None.
    Nothing,
    /// Whole ones.
    Whole,
    /// Whole ones of several types.
    Mixed,
    /// Shards.
    Shards {
        /// The GPU's type, where Slurm says it.
        kind: Option<String>,
        /// Their number on all GPUs of the node.
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
        groups(line, node)
            .into_iter()
            .map(Self::of_group)
            .min_by_key(Self::rank)
            .unwrap_or(Self::Nothing)
    }

    fn of_group(gres: &str) -> Self {
        let all = Configured::parse(gres).into_iter();
        let (shards, gpus): (Vec<_>, Vec<_>) = all
            .filter(|gres| gres.is_gpu() && gres.count > 0)
            .partition(|gres| gres.name == "shard");
        match (shards.into_iter().next(), gpus.as_slice()) {
            (Some(Configured { kind, count, .. }), _) => Self::Shards {
                kind,
                shards: count,
            },
            (None, []) => Self::Nothing,
            (None, [first, others @ ..]) if others.iter().all(|other| other.kind == first.kind) => {
                Self::Whole
            }
            _ => Self::Mixed,
        }
    }

    /// Which answer counts in doubt: the one with the lowest rank, a smaller part before a larger one.
    fn rank(&self) -> (u8, u64) {
        match self {
            Self::Shards { shards, .. } => (0, *shards),
            Self::Mixed => (1, 0),
            Self::Whole => (1, 1),
            Self::Nothing => (2, 0),
        }
    }
}

/// The `GRES=` words of the answer that may be about `node`. There are several if Slurm names nodes together, or if the
/// user chose words that look like Slurm's.
pub(crate) fn groups<'a>(line: &'a str, node: &str) -> Vec<&'a str> {
    // A range of nodes may include this one, so it always counts. The line also has words that the user chose, and a
    // `Nodes=... GRES=...` among them must not win over the real one.
    let may_be_here = |(nodes, _): &(&str, &str)| *nodes == node || nodes.contains('[');
    let (here, elsewhere): (Vec<_>, Vec<_>) = printed_groups(line).partition(may_be_here);
    // If no group names this node, any group may be its own.
    let chosen = if here.is_empty() { elsewhere } else { here };
    chosen.into_iter().map(|(_, gres)| gres).collect()
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
            (
                "GRES=gpu:l40s:1(IDX:0),gpu:l40s_r:1(IDX:3)",
                Allocation::Mixed,
            ),
            ("GRES=gpu:l40s:1(IDX:0),gpu:h200:0", Allocation::Whole),
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
    fn a_users_own_words_never_give_the_job_more() {
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
}
