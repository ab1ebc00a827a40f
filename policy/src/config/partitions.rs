//! Which partitions have no GPUs. slurmctld asks under its locks, and a user writes the list that it asks about.

use crate::config::inventory::Nodes;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The most partitions of a job that are looked at.
const MOST: usize = 64;

/// What is known of partitions. To expand a list of nodes takes long, so each list is expanded once.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    /// The nodes of the inventory.
    with_gpus: Option<HashSet<String>>,
    /// By name: the nodes of a partition as Slurm had them, and true if none of them has GPUs.
    known: HashMap<String, (String, bool)>,
}

impl Partitions {
    /// True if no node of these partitions is in the inventory; false where that is not known. `expand` makes names of a
    /// list.
    pub(crate) fn are_without_gpus(
        &mut self,
        inventory: &[Nodes],
        names: &str,
        nodes_of: impl Fn(&str) -> Option<String>,
        expand: impl Fn(&str) -> Vec<String>,
    ) -> bool {
        if inventory.is_empty() {
            return false;
        }
        let mut distinct = BTreeSet::new();
        for name in names.split(',') {
            distinct.insert(name);
            if distinct.len() > MOST {
                return false;
            }
        }
        let with_gpus = self.with_gpus.get_or_insert_with(|| {
            let names = inventory.iter().map(Nodes::names);
            names.flat_map(&expand).collect()
        });
        distinct.into_iter().all(|name| {
            let Some(nodes) = nodes_of(name) else {
                return false;
            };
            match self.known.get(name) {
                Some((known, is_without)) if *known == nodes => *is_without,
                _ => {
                    let each = expand(&nodes);
                    let is_without = |node: &String| {
                        !node.eq_ignore_ascii_case("ALL") && !with_gpus.contains(node)
                    };
                    let is_without = !each.is_empty() && each.iter().all(is_without);
                    self.known.insert(name.to_string(), (nodes, is_without));
                    is_without
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::slurm::hostlist;
    use std::cell::Cell;

    /// A cluster whose partition `cpu` has 1000 nodes, and how often lists of nodes were expanded for it.
    struct Cluster {
        policy: Policy,
        partitions: Partitions,
        expansions: Cell<usize>,
    }

    impl Cluster {
        fn new() -> Self {
            let text = "[gpu.a]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n\
                        [[nodes]]\nnames = \"gpu[1-4]\"\ngpus = [\"a:1\"]\n";
            Self {
                policy: Policy::parse(text).unwrap(),
                partitions: Partitions::default(),
                expansions: Cell::new(0),
            }
        }

        fn ask(&mut self, names: &str, cpu: &str) -> bool {
            let nodes_of = |name: &str| {
                let nodes = match name {
                    "cpu" => cpu,
                    "gpu" => "gpu[2-3]",
                    "all" => "ALL",
                    "empty" => "",
                    name => return name.strip_prefix('p').map(str::to_string),
                };
                Some(nodes.to_string())
            };
            let expand = |list: &str| {
                self.expansions.set(self.expansions.get() + 1);
                hostlist::expand(list)
            };
            self.partitions
                .are_without_gpus(self.policy.nodes(), names, nodes_of, expand)
        }
    }

    #[test]
    fn a_partition_named_often_costs_no_more_than_once() {
        let mut cluster = Cluster::new();
        for _ in 0..3 {
            assert!(cluster.ask(&["cpu"; 5000].join(","), "n[1-1000]"));
            // The inventory's, and the partition's.
            assert_eq!(cluster.expansions.get(), 2);
        }
        // An administrator adds a node with GPUs to it.
        assert!(!cluster.ask("cpu", "n[1-1000],gpu1"));
        assert_eq!(cluster.expansions.get(), 3);
    }

    #[test]
    fn more_partitions_than_are_looked_at_may_have_gpus() {
        let mut cluster = Cluster::new();
        let list = |count: usize| {
            let names: Vec<_> = (0..count).map(|number| format!("p{number}")).collect();
            names.join(",")
        };
        assert!(!cluster.ask(&list(MOST + 1), ""));
        assert_eq!(cluster.expansions.get(), 0);
        assert!(cluster.ask(&list(MOST), ""));
    }

    #[test]
    fn what_is_not_known_may_have_gpus() {
        let mut cluster = Cluster::new();
        for (names, is_without) in [
            ("cpu", true),
            ("gpu", false),
            ("cpu,gpu", false),
            ("cpu,all", false),
            ("empty", false),
            ("other", false),
            ("cpu,", false),
            ("", false),
        ] {
            assert_eq!(cluster.ask(names, "n[1-9]"), is_without, "{names}");
        }
        cluster.policy = Policy::parse("").unwrap();
        assert!(!cluster.ask("cpu", "n[1-9]"));
    }
}
