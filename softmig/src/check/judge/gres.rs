//! The nodes' GPUs and shards, as slurm.conf and gres.conf have them, against the policy.

use crate::check::facts::{Cluster, Node};
use crate::check::finding::{Code, Finding};
use crate::check::hostlist::{compress, expand};
use crate::slurm::gres::NodeGres;
use softmig_policy::Policy;
use softmig_policy::configured::Configured;
use std::collections::{BTreeMap, BTreeSet};

const NODE_LINE: &str = "the NodeName line and gres.conf";

pub(crate) fn judge(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let groups = groups(&cluster.nodes);
    for group in &groups {
        found.extend(group.judge(policy));
    }
    found.extend(inventory(policy, cluster, now));
    found.extend(gres_conf(cluster, groups.len() == 1));
    found
}

/// Nodes with the same GPUs and shards.
struct Group<'a> {
    names: String,
    node: &'a Node,
}

/// The nodes that have anything to do with GPUs.
fn groups(nodes: &[Node]) -> Vec<Group<'_>> {
    let mut alike: BTreeMap<&[Configured], Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        if ["gpu", "shard", "mps"].iter().any(|name| node.has(name)) {
            alike.entry(&node.gres).or_default().push(node);
        }
    }
    let groups = alike.into_values().filter_map(|nodes| {
        Some(Group {
            names: compress(nodes.iter().map(|node| node.name.as_str())),
            node: nodes.first()?,
        })
    });
    groups.collect()
}

impl Group<'_> {
    fn judge(&self, policy: &Policy) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut say = |code, what: String, remedy: String| {
            found.push(Finding::new(code, &self.names, what, remedy));
        };
        let node = self.node;
        if node.has("mps") && node.has("shard") {
            say(
                Code::MpsAndShard,
                "mps and shard on one node: Slurm fills the same GPUs twice".into(),
                "take mps out of Gres= and gres.conf; [legacy.mps] translates requests for it"
                    .into(),
            );
        }
        if let Some(gpus) = node.of("gpu").find(|gpus| gpus.kind.is_none())
            && policy.gpus().next().is_some()
        {
            say(
                Code::GpusUntyped,
                format!(
                    "gpu:{} has no type, and the policy knows GPUs by type",
                    gpus.count
                ),
                format!("write gpu:TYPE:{} in {NODE_LINE}", gpus.count),
            );
        }
        if let Some(shards) = node.of("shard").find(|shards| shards.kind.is_none()) {
            say(
                Code::ShardsUntyped,
                format!(
                    "shard:{} has no type: jobs start, and each of their steps fails",
                    shards.count
                ),
                format!(
                    "write shard:TYPE:{} in Gres= of the NodeName line",
                    shards.count
                ),
            );
        }
        for kind in kinds(node, "shard") {
            if let Some((code, what, remedy)) = shards(policy, node, kind) {
                say(code, what, remedy);
            }
        }
        for kind in kinds(node, "gpu") {
            let gpus = node.count("gpu", kind);
            match policy.gpu(kind) {
                Some(gpu) if gpu.shards_per_gpu() > 1 && node.count("shard", kind) == 0 => say(
                    Code::ShardsMissing,
                    format!(
                        "gpu:{kind}:{gpus} without shards: no slice of {kind} ever starts here"
                    ),
                    format!(
                        "add shard:{kind}:{}",
                        gpus * u64::from(gpu.shards_per_gpu())
                    ),
                ),
                Some(_) => {}
                None if policy.is_plain_type(kind) || is_reservable(policy, kind) => {}
                None if policy.gpus().next().is_none() => {}
                None => say(
                    Code::GpusUnknown,
                    format!(
                        "gpu:{kind} is no type of policy.toml, so whole ones count as no shards in any class's limit"
                    ),
                    format!("add [gpu.{kind}], or {kind} to plain_types"),
                ),
            }
        }
        found
    }
}

/// The types that a node has of a GRES.
fn kinds<'a>(node: &'a Node, name: &'a str) -> BTreeSet<&'a str> {
    node.of(name)
        .filter_map(|gres| gres.kind.as_deref())
        .collect()
}

fn is_reservable(policy: &Policy, kind: &str) -> bool {
    policy.reservables().iter().any(|own| own.kind() == kind)
}

/// What is wrong with the shards of one type on a node.
fn shards(policy: &Policy, node: &Node, kind: &str) -> Option<(Code, String, String)> {
    let (gpus, shards) = (node.count("gpu", kind), node.count("shard", kind));
    let gres = format!("shard:{kind}:{shards}");
    let take_out = format!("take {gres} out of {NODE_LINE}");
    if is_reservable(policy, kind) {
        let what = format!(
            "{gres}: GPUs of type {kind} are kept for somebody, and with shards others' slices are on them"
        );
        return Some((Code::ReservableShared, what, take_out));
    }
    let Some(gpu) = policy.gpu(kind) else {
        let what =
            format!("{gres}, and there is no [gpu.{kind}] in policy.toml, so nobody can have them");
        return Some((
            Code::ShardsUnknown,
            what,
            format!("add [gpu.{kind}], or {take_out}"),
        ));
    };
    let per_gpu = u64::from(gpu.shards_per_gpu());
    if gpu.is_mig() && per_gpu == 1 {
        let what = format!(
            "{gres}, and {kind} is a MIG instance that policy.toml does not cut (shards = 1)"
        );
        return Some((Code::MigShared, what, take_out));
    }
    if per_gpu == 1 {
        let what = format!("{gres}, and policy.toml has shards = 1 for {kind}: it is not cut");
        return Some((Code::ShardsPerGpu, what, take_out));
    }
    let right = match gpus {
        0 => take_out,
        gpus => format!("write shard:{kind}:{} in {NODE_LINE}", gpus * per_gpu),
    };
    match shards.checked_rem(gpus) {
        None => {
            let what = format!("{gres} without any gpu:{kind}");
            Some((Code::ShardsUneven, what, right))
        }
        Some(rest) if rest != 0 => {
            let what = format!("{gres} on {gpus} GPUs is not the same number for each");
            Some((Code::ShardsUneven, what, right))
        }
        Some(_) if shards != gpus * per_gpu => {
            let what = format!(
                "{gres} is {} for each of {gpus} GPUs, and policy.toml has shards = {per_gpu}: limits and GPUs do not fit",
                shards / gpus
            );
            Some((Code::ShardsPerGpu, what, right))
        }
        Some(_) => None,
    }
}

/// [[nodes]] against Slurm's nodes.
fn inventory(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for nodes in policy.nodes() {
        let names = expand(nodes.names());
        let wanted = NodeGres::of(policy, nodes, now);
        // A window that is over is said elsewhere, and no error yet.
        let before = NodeGres::of(policy, nodes, i64::MIN);
        let is_wanted = |node: &Node| {
            [&wanted, &before].iter().any(|gres| {
                let wanted = gres.types.iter();
                let wanted: BTreeMap<&str, u64> = wanted
                    .map(|gres| (gres.kind.as_str(), u64::from(gres.gpus)))
                    .collect();
                let own = kinds(node, "gpu").into_iter();
                own.map(|kind| (kind, node.count("gpu", kind)))
                    .collect::<BTreeMap<_, _>>()
                    == wanted
            })
        };
        let in_slurm = |name: &String| cluster.nodes.iter().find(|node| node.name == *name);
        let missing = names.iter().filter(|name| in_slurm(name).is_none());
        let missing = compress(missing.map(String::as_str));
        if !missing.is_empty() {
            found.push(Finding::new(
                Code::NodeMissing,
                missing,
                "in [[nodes]] of policy.toml, and Slurm has no such node",
                "add the NodeName line that 'softmig config' prints, or correct [[nodes]]",
            ));
        }
        let wrong = names
            .iter()
            .filter_map(in_slurm)
            .filter(|node| !is_wanted(node));
        let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for node in wrong {
            let own = node.of("gpu").map(|gres| match &gres.kind {
                Some(kind) => format!("gpu:{kind}:{}", gres.count),
                None => format!("gpu:{}", gres.count),
            });
            let own: Vec<String> = own.collect();
            alike.entry(own.join(",")).or_default().push(&node.name);
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
    let unlisted = cluster.nodes.iter();
    let unlisted = unlisted.filter(|node| node.has("gpu") && !listed.contains(&node.name));
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

/// gres.conf against Gres= of the same nodes. Lines for no node in particular count only where all nodes are alike: each
/// node may have a file of its own.
fn gres_conf(cluster: &Cluster, alike: bool) -> Vec<Finding> {
    let lines = match &cluster.gres_conf {
        Ok(lines) => lines,
        Err(why) => return vec![Finding::skip("gres.conf", why)],
    };
    let mut wrong: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in &cluster.nodes {
        for name in ["gpu", "shard"] {
            for kind in kinds(node, name) {
                let own = lines.iter().filter(|line| {
                    line.name == name
                        && line.kind.as_deref() == Some(kind)
                        && line.is_for(&node.name)
                        && (alike || !line.nodes.is_empty())
                });
                let counts = own.map(|line| line.count.unwrap_or(line.files.len().max(1) as u64));
                let counts: Vec<u64> = counts.collect();
                let (in_file, in_node) = (counts.iter().sum::<u64>(), node.count(name, kind));
                if !counts.is_empty() && in_file != in_node {
                    let what = format!(
                        "{in_file} of {name}:{kind}, and Gres= of the NodeName line has {in_node}"
                    );
                    wrong.entry(what).or_default().push(&node.name);
                }
            }
        }
    }
    let found = wrong.into_iter().map(|(what, names)| {
        let place = format!("gres.conf for {}", compress(names));
        Finding::new(
            Code::GresConf,
            place,
            what,
            "make both the same; Slurm drains a node that has less than it says",
        )
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::facts::GresLine;
    use crate::check::judge::example::{cluster, codes, node, policy, policy_with};

    fn found_in(policy: &Policy, gres: &str) -> Vec<&'static str> {
        let mut cluster = cluster();
        cluster.nodes = vec![node("n1", gres)];
        codes(&judge(policy, &cluster, 0))
    }

    #[test]
    fn right_nodes_are_clean() {
        assert!(judge(&policy(), &cluster(), 0).is_empty());
    }

    #[test]
    fn wrong_gpus_and_shards_are_found() {
        for (gres, expected) in [
            (
                "gpu:l40s:4,shard:l40s:16,mps:l40s:400",
                &["MPS_AND_SHARD"][..],
            ),
            ("gpu:4,shard:l40s:16", &["GPUS_UNTYPED", "SHARDS_UNEVEN"]),
            ("gpu:l40s:4,shard:16", &["SHARDS_UNTYPED", "SHARDS_MISSING"]),
            ("gpu:l40s:4,shard:l40s:15", &["SHARDS_UNEVEN"]),
            ("gpu:l40s:4,shard:l40s:32", &["SHARDS_PER_GPU"]),
            ("gpu:l40s:4,shard:l40s:16,shard:h200:8", &["SHARDS_UNEVEN"]),
            ("gpu:l40s:4", &["SHARDS_MISSING"]),
            ("gpu:v100:4", &["GPUS_UNKNOWN"]),
            (
                "gpu:v100:4,shard:v100:8",
                &["SHARDS_UNKNOWN", "GPUS_UNKNOWN"],
            ),
            ("tmpdisk:4", &[]),
            ("gpu:l40s:2,gpu:h200:2,shard:l40s:8,shard:h200:16", &[]),
        ] {
            assert_eq!(found_in(&policy(), gres), expected, "{gres}");
        }
    }

    #[test]
    fn a_policy_that_shares_nothing_asks_for_nothing() {
        let nothing = Policy::parse("").unwrap();
        assert!(found_in(&nothing, "gpu:4").is_empty());
    }

    #[test]
    fn mig_instances_have_shards_only_where_the_policy_cuts_them() {
        let mig = |shards: u32| {
            policy_with(&format!(
                "[gpu.\"h100_1g.10gb\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = {shards}\nmig = true\n"
            ))
        };
        let gres = "gpu:h100_1g.10gb:7,shard:h100_1g.10gb:14";
        assert_eq!(found_in(&mig(1), gres), ["MIG_SHARED"]);
        assert!(found_in(&mig(2), gres).is_empty());
        assert!(found_in(&mig(1), "gpu:h100_1g.10gb:7").is_empty());
    }

    /// Kept for alice from the 60th to the 120th second.
    const KEPT: &str = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nreason = \"x\"\n\
        start = 1970-01-01T00:01:00Z\nend = 1970-01-01T00:02:00Z\n";

    #[test]
    fn a_gpu_that_is_kept_for_somebody_has_no_shards() {
        let kept = policy_with(KEPT);
        let shared = "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:4";
        assert_eq!(found_in(&kept, shared), ["RESERVABLE_SHARED"]);
        assert!(found_in(&kept, "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12").is_empty());
    }

    #[test]
    fn the_inventory_is_held_against_slurms_nodes() {
        let with = |nodes: &str| codes(&judge(&policy_with(nodes), &cluster(), 0));
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
    fn a_node_that_waits_for_its_gpu_to_be_given_back_is_no_error() {
        let entry = "[[nodes]]\nnames = \"n1\"\ngpus = [\"l40s:3\", \"l40s_r:1\"]\n";
        let kept = policy_with(&format!("{KEPT}{entry}"));
        let mut cluster = cluster();
        cluster.nodes = vec![node("n1", "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12")];
        for now in [0, 90, 200] {
            assert!(judge(&kept, &cluster, now).is_empty(), "{now}");
        }
        cluster.nodes = vec![node("n1", "gpu:l40s:4,shard:l40s:16")];
        assert_eq!(codes(&judge(&kept, &cluster, 90)), ["NODE_GPUS"]);
        assert!(judge(&kept, &cluster, 200).is_empty());
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
            codes(&judge(&policy(), &cluster, 0))
        };
        assert!(with(vec![line(&["gpu1", "gpu2"], 16)]).is_empty());
        assert!(with(vec![line(&["gpu1"], 8), line(&["gpu1"], 8)]).is_empty());
        assert_eq!(with(vec![line(&["gpu1", "gpu2"], 8)]), ["GRES_CONF"]);
        // Nodes differ, so this may be one node's own file.
        assert!(with(vec![line(&[], 8)]).is_empty());
        let mut cluster = cluster();
        cluster.gres_conf = Err("no such file".into());
        assert_eq!(codes(&judge(&policy(), &cluster, 0)), ["NOT_LOOKED_AT"]);
    }
}
