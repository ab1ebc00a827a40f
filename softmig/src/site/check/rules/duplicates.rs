//! Nodes, partitions and settings that are defined twice in slurm.conf and what it includes, and nodes that are not defined.

use crate::site::check::facts::{Declared, Line, Lines, Setting};
use crate::site::check::finding::{Code, Finding};
use softmig_policy::slurm::hostlist::compress;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::{BTreeMap, HashMap};

pub(crate) fn check(lines: &Lines) -> Vec<Finding> {
    let nodes = twice(&lines.nodes).into_iter().map(|(at, names)| {
        let (what, remedy) = (both(at, "NodeName", "node"), remedy(at, "[[nodes]]"));
        Finding::new(Code::NodeTwice, compress(names), what, remedy)
    });
    let partitions = twice(&lines.partitions).into_iter().map(|(at, names)| {
        let place = format!("partition {}", names.join(", "));
        let (what, remedy) = (
            both(at, "PartitionName", "partition"),
            remedy(at, "[[route]]"),
        );
        Finding::new(Code::PartitionTwice, place, what, remedy)
    });
    nodes.chain(partitions).chain(undefined(lines)).collect()
}

/// Nodes of partitions without a NodeName line.
fn undefined(lines: &Lines) -> impl Iterator<Item = Finding> {
    let mut by_line: BTreeMap<&Line, Vec<&str>> = BTreeMap::new();
    for Declared { name, at } in &lines.undefined {
        by_line.entry(at).or_default().push(name);
    }
    by_line.into_iter().map(|(at, names)| {
        Finding::new(
            Code::PartitionNodes,
            compress(names),
            format!(
                "{at} has them in Nodes=, and no NodeName line defines them, so slurmctld will not start"
            ),
            "correct the names, or add their NodeName line: for nodes with GPUs by [[nodes]] in policy.toml",
        )
    })
}

/// Settings of which slurmctld and slurmd of all releases take every line.
const REPEATED: [&str; 2] = ["SlurmctldHost", "NodeSet"];
/// Settings of which newer releases take every line.
const PROGRAMS: [&str; 2] = ["Prolog", "Epilog"];

/// Settings of softmig.conf that slurm.conf has with another value.
pub(crate) fn settings(lines: &Lines, version: Option<SlurmVersion>) -> Vec<Finding> {
    let adds_up = version.is_some_and(SlurmVersion::adds_programs_up);
    let all = &lines.settings;
    let ours = all.iter().filter(|setting| setting.at.is_softmigs());
    let found = ours.filter_map(|ours| {
        let is = |name: &&str| name.eq_ignore_ascii_case(&ours.key);
        if REPEATED.iter().any(is) || (adds_up && PROGRAMS.iter().any(is)) {
            return None;
        }
        let of_key = |setting: &&Setting| setting.key.eq_ignore_ascii_case(&ours.key);
        let last = all.iter().rfind(of_key)?;
        let other = all
            .iter()
            .filter(of_key)
            .find(|other| other.value != ours.value)?;
        Some(Finding::new(
            Code::SettingTwice,
            &ours.key,
            format!(
                "{} at {}, and {} at {}: the last one counts, {}",
                ours.value, ours.at, other.value, other.at, last.value
            ),
            format!(
                "take it out of {}; in a list, add your own words by [slurm] in policy.toml",
                other.at
            ),
        ))
    });
    found.collect()
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
    let lines = if first == second {
        format!("{first} has {key}= for it twice, or is read twice")
    } else {
        format!("{first} and {second} both have {key}= for it")
    };
    format!("{lines}; the {what} is defined twice, so slurmctld will not start")
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
    use crate::site::check::rules::example::{declared, setting};

    #[test]
    fn a_setting_of_softmigs_with_another_value_is_told_with_both() {
        let lines = |first: Setting, second: Setting| Lines {
            settings: vec![first, second],
            ..Lines::default()
        };
        let version = |text: &str| text.parse().ok();
        let ours = || setting("TaskPlugin", "task/cgroup", "softmig.conf", 3);
        let site = || setting("taskplugin", "task/affinity", "slurm.conf", 9);
        let told = settings(&lines(ours(), site()), version("24.11"));
        assert_eq!(
            told[0].to_string(),
            "WARN  SETTING_TWICE TaskPlugin: task/cgroup at softmig.conf line 3, and task/affinity at slurm.conf line 9: the \
             last one counts, task/affinity; take it out of slurm.conf line 9; in a list, add your own words by [slurm] in \
             policy.toml"
        );
        let told = settings(&lines(site(), ours()), version("24.11"));
        assert!(told[0].what.ends_with("counts, task/cgroup"), "{told:?}");
        let same = setting("TaskPlugin", "task/cgroup", "slurm.conf", 9);
        assert!(settings(&lines(ours(), same), version("24.11")).is_empty());
        // Neither is softmig's.
        let other = setting("TaskPlugin", "task/none", "slurm.conf", 1);
        assert!(settings(&lines(other, site()), version("24.11")).is_empty());
        let prolog = || {
            lines(
                setting("Prolog", "/usr/libexec/softmig-prolog", "softmig.conf", 3),
                setting("Prolog", "/etc/slurm/prolog", "slurm.conf", 9),
            )
        };
        assert!(settings(&prolog(), version("24.11")).is_empty());
        assert_eq!(settings(&prolog(), version("22.05")).len(), 1);
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
}
