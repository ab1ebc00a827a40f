//! `[[nodes]]` and gres.conf against the nodes as Slurm has them.

use crate::settings::gres::NodeGres;
use crate::site::check::facts::{Cluster, GresLine, Node};
use crate::site::check::finding::{Code, Finding};
use crate::site::check::rules::gres::{groups, kinds, mps_and_shard};
use softmig_policy::Policy;
use softmig_policy::slurm::hostlist::{compress, expand};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = inventory(policy, cluster, now);
    found.extend(gres_conf(cluster, groups(&cluster.nodes).len() == 1));
    found
}

/// `[[nodes]]` against Slurm's nodes.
fn inventory(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for nodes in policy.nodes() {
        let names = expand(nodes.names());
        // The node may still be as it was in a window that is over. Another rule reports that.
        let [wanted, before] =
            [now, i64::MIN].map(|time| NodeGres::for_policy(policy, nodes, time));
        let mut missing = Vec::new();
        let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for name in &names {
            let Some(node) = cluster.node(name) else {
                missing.push(name.as_str());
                continue;
            };
            let own = node.counts("gpu");
            if own != wanted.counts() && own != before.counts() {
                let own = own
                    .into_iter()
                    .map(|(kind, count)| format!("gpu:{kind}:{count}").replace("::", ":"));
                let own = own.collect::<Vec<_>>().join(",");
                alike.entry(own).or_default().push(name);
            }
        }
        if !missing.is_empty() {
            found.push(Finding::new(
                Code::NodeMissing,
                compress(missing),
                "in [[nodes]] of policy.toml, and Slurm has no such node",
                "add the NodeName line that 'softmig config' prints, or correct [[nodes]]",
            ));
        }
        for (own, names) in alike {
            found.push(Finding::new(
                Code::NodeGpus,
                compress(names),
                format!(
                    "Slurm has {}, and [[nodes]] of policy.toml makes it {wanted}",
                    if own.is_empty() { "no GPUs" } else { &own }
                ),
                "take the lines that 'softmig config' prints, or correct [[nodes]]",
            ));
        }
        listed.extend(names);
    }
    let unlisted = cluster
        .nodes
        .iter()
        .filter(|node| node.has("gpu") && !listed.contains(&node.name));
    let unlisted = compress(unlisted.map(|node| node.name.as_str()));
    if !policy.nodes().is_empty() && !unlisted.is_empty() {
        found.push(Finding::new(
            Code::NodeUnlisted,
            unlisted,
            "Slurm has GPUs here that [[nodes]] of policy.toml does not have, so 'softmig config' knows nothing of them",
            "add them to [[nodes]]",
        ));
    }
    found
}

/// The lines of gres.conf about a GRES of a node. Lines without NodeName= count only if all nodes are alike, since each
/// node may have a file of its own.
pub(crate) fn lines_for<'a>(
    lines: &'a [GresLine],
    node: &Node,
    alike: bool,
    name: &str,
) -> Vec<&'a GresLine> {
    let is_its = |line: &&GresLine| {
        line.name == name && line.is_for(&node.name) && (alike || !line.nodes.is_empty())
    };
    lines.iter().filter(is_its).collect()
}

/// gres.conf against Gres= of the same nodes.
fn gres_conf(cluster: &Cluster, alike: bool) -> Vec<Finding> {
    let lines = match &cluster.gres_conf {
        Ok(lines) => lines,
        Err(why) => return vec![Finding::skip("gres.conf", why)],
    };
    let mut wrong: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut twice: Vec<&str> = Vec::new();
    for node in &cluster.nodes {
        let own = |name: &str| lines_for(lines, node, alike, name);
        if node.has("shard") && own("mps").iter().any(|line| line.count != Some(0)) {
            twice.push(&node.name);
        }
        for name in ["gpu", "shard"] {
            let lines = own(name);
            for kind in kinds(node, name) {
                let in_node = node.count(name, kind);
                let typed = lines
                    .iter()
                    .filter(|line| line.kind.as_deref() == Some(kind));
                let counts: Vec<u64> = typed
                    .map(|line| line.count.unwrap_or(line.files.len().max(1) as u64))
                    .collect();
                // Shards without a type are spread over all GPUs, and GPUs without a line are found by NVML.
                let elsewhere = match name {
                    "shard" => {
                        lines.iter().any(|line| line.kind.is_none()) || own("gpu").is_empty()
                    }
                    _ => true,
                };
                let in_file = counts.iter().sum::<u64>();
                if in_file != in_node && !(counts.is_empty() && elsewhere) {
                    let what = format!(
                        "{in_file} of {name}:{kind}, and Gres= of the NodeName line has {in_node}"
                    );
                    wrong.entry(what).or_default().push(&node.name);
                }
            }
        }
    }
    let place = |names: Vec<&str>| format!("gres.conf for {}", compress(names));
    let mut found: Vec<Finding> = wrong
        .into_iter()
        .map(|(what, names)| {
            let remedy = "make both the same; Slurm drains a node that has less than it says";
            Finding::new(Code::GresConf, place(names), what, remedy)
        })
        .collect();
    if !twice.is_empty() {
        found.push(mps_and_shard(&place(twice)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{KEPT, cluster, codes, node, policy, policy_with};

    #[test]
    fn the_inventory_is_held_against_slurms_nodes() {
        let with = |nodes: &str| codes(&check(&policy_with(nodes), &cluster(), 0));
        let entry = |names: &str, gpus: &str| {
            format!("[[nodes]]\nnames = \"{names}\"\ngpus = [\"{gpus}\"]\n")
        };
        let (l40s, h200) = (entry("gpu[1-2]", "l40s:4"), entry("gpu3", "h200:8"));
        assert!(with(&[l40s.clone(), h200.clone()].concat()).is_empty());
        assert_eq!(with(&l40s), ["NODE_UNLISTED"]);
        let more = entry("gpu[1-2,9]", "l40s:4");
        assert_eq!(with(&[more, h200.clone()].concat()), ["NODE_MISSING"]);
        let other = entry("gpu[1-2]", "l40s:2");
        assert_eq!(with(&[other, h200].concat()), ["NODE_GPUS"]);
    }

    #[test]
    fn a_node_with_a_gpu_that_is_not_given_back_yet_is_clean() {
        let entry = "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n";
        let kept = policy_with(&format!("{KEPT}{entry}"));
        let mut cluster = cluster();
        cluster.nodes = vec![node(
            "n1",
            "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:1",
        )];
        for now in [0, 90, 200] {
            assert!(check(&kept, &cluster, now).is_empty(), "{now}");
        }
        cluster.nodes = vec![node("n1", "gpu:l40s:4,shard:l40s:16")];
        assert_eq!(codes(&check(&kept, &cluster, 90)), ["NODE_GPUS"]);
        assert!(check(&kept, &cluster, 200).is_empty());
    }

    #[test]
    fn gres_conf_and_the_node_line_say_the_same() {
        let line = |nodes: &[&str], count| GresLine {
            nodes: nodes.iter().map(|name| name.to_string()).collect(),
            name: "shard".into(),
            kind: Some("l40s".into()),
            count: Some(count),
            files: Vec::new(),
        };
        let with = |lines: Vec<GresLine>| {
            let mut cluster = cluster();
            cluster.gres_conf = Ok(lines);
            codes(&check(&policy(), &cluster, 0))
        };
        assert!(with(vec![line(&["gpu1", "gpu2"], 16)]).is_empty());
        assert!(with(vec![line(&["gpu1"], 8), line(&["gpu1"], 8)]).is_empty());
        assert_eq!(with(vec![line(&["gpu1", "gpu2"], 8)]), ["GRES_CONF"]);
        let gpus = GresLine {
            name: "gpu".into(),
            count: Some(4),
            ..line(&["gpu1"], 4)
        };
        assert_eq!(with(vec![gpus]), ["GRES_CONF"]);
        let mps = GresLine {
            name: "mps".into(),
            ..line(&["gpu1"], 400)
        };
        assert_eq!(with(vec![mps]), ["MPS_AND_SHARD"]);
        // The nodes differ, so this may be the file of one node.
        assert!(with(vec![line(&[], 8)]).is_empty());
        let mut cluster = cluster();
        cluster.gres_conf = Err("no such file".into());
        assert_eq!(codes(&check(&policy(), &cluster, 0)), ["NOT_LOOKED_AT"]);
    }
}
