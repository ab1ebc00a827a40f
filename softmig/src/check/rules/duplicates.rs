//! Nodes and partitions that are defined twice in slurm.conf and what it includes.

use crate::check::facts::{Declared, Line, Lines};
use crate::check::finding::{Code, Finding};
use softmig_policy::slurm::hostlist::compress;
use std::collections::{BTreeMap, HashMap};

pub(crate) fn check(lines: &Lines) -> Vec<Finding> {
    let nodes = twice(&lines.nodes).into_iter().map(|(at, names)| {
        let what = both(at, "NodeName", "the node");
        let remedy = remedy(at, "[[nodes]]");
        Finding::new(Code::NodeTwice, compress(names), what, remedy)
    });
    let partitions = twice(&lines.partitions).into_iter().map(|(at, names)| {
        let place = format!("partition {}", names.join(", "));
        let what = both(at, "PartitionName", "the partition");
        let remedy = remedy(at, "[[route]]");
        Finding::new(Code::PartitionTwice, place, what, remedy)
    });
    nodes.chain(partitions).collect()
}

/// The first of the lines about something, and another one.
type Pair<'a> = (&'a Line, &'a Line);

fn twice(all: &[Declared]) -> BTreeMap<Pair<'_>, Vec<&str>> {
    let mut first: HashMap<&str, &Line> = HashMap::new();
    let mut twice: BTreeMap<Pair<'_>, Vec<&str>> = BTreeMap::new();
    for Declared { name, at } in all {
        match first.get(name.as_str()) {
            Some(before) => {
                let names = twice.entry((before, at)).or_default();
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
            None => {
                first.insert(name, at);
            }
        }
    }
    twice
}

fn both((first, second): Pair<'_>, key: &str, what: &str) -> String {
    let lines = match first == second {
        true => format!("{first} has {key}= for it twice, or is read twice"),
        false => format!("{first} and {second} both have {key}= for it"),
    };
    format!("{lines}; {what} is defined twice, so slurmctld will not start")
}

fn remedy((first, second): Pair<'_>, table: &str) -> String {
    // softmig.conf is made anew each time; the other line is the site's.
    let own = match (first.is_softmigs(), second.is_softmigs()) {
        (true, false) => second,
        (false, true) => first,
        _ => return "write it once, and include each file once".to_string(),
    };
    format!(
        "take it out of {own}; what else that line says goes into slurm of {table} in policy.toml"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str, file: &str, number: usize) -> Declared {
        Declared {
            name: name.into(),
            at: Line {
                file: file.into(),
                number,
            },
        }
    }

    fn told(lines: &Lines) -> Vec<String> {
        check(lines).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn nodes_defined_twice_are_named_with_both_lines() {
        let nodes = vec![
            declared("gpu1", "/s/softmig.conf", 40),
            declared("gpu2", "/s/softmig.conf", 40),
            declared("gpu3", "/s/softmig.conf", 41),
            declared("gpu1", "/s/slurm.conf", 9),
            declared("gpu2", "/s/slurm.conf", 9),
            declared("gpu4", "/s/slurm.conf", 9),
        ];
        let mut lines = Lines {
            nodes,
            ..Lines::default()
        };
        assert_eq!(
            told(&lines),
            [
                "ERROR NODE_TWICE gpu[1-2]: /s/softmig.conf line 40 and /s/slurm.conf line 9 both have NodeName= for it; the node \
                 is defined twice, so slurmctld will not start; take it out of /s/slurm.conf line 9; what else that line says goes into \
                 slurm of [[nodes]] in policy.toml"
            ]
        );
        lines.nodes.truncate(3);
        assert!(told(&lines).is_empty());
    }

    #[test]
    fn partitions_defined_twice_are_named_with_both_lines() {
        let partitions = vec![
            declared("quick", "slurm.conf", 3),
            declared("slow", "slurm.conf", 4),
            declared("slow", "slurm.conf", 5),
            declared("quick", "softmig.conf", 50),
            declared("quick", "softmig.conf", 50),
        ];
        let lines = Lines {
            partitions,
            ..Lines::default()
        };
        let told = told(&lines);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(
            told[0],
            "ERROR PARTITION_TWICE partition quick: slurm.conf line 3 and softmig.conf line 50 both have PartitionName= for \
             it; the partition is defined twice, so slurmctld will not start; take it out of slurm.conf line 3; what else that line \
             says goes into slurm of [[route]] in policy.toml"
        );
        assert!(told[1].ends_with("; write it once, and include each file once"));
    }

    #[test]
    fn a_file_that_is_included_twice_is_told() {
        let nodes = vec![declared("n1", "a.conf", 1), declared("n1", "a.conf", 1)];
        let lines = Lines {
            nodes,
            ..Lines::default()
        };
        let told = told(&lines).remove(0);
        assert!(
            told.starts_with(
                "ERROR NODE_TWICE n1: a.conf line 1 has NodeName= for it twice, or is read twice; "
            ),
            "{told}"
        );
    }
}
