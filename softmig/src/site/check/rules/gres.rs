//! The nodes' GPUs and shards, as slurm.conf has them, against the policy's types.

use crate::output::say::counted;
use crate::site::check::facts::{Cluster, Node};
use crate::site::check::finding::{Code, Finding};
use softmig_policy::Policy;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist::compress;
use softmig_policy::slurm::release::SlurmVersion;
use std::collections::{BTreeMap, BTreeSet};

const NODE_LINE: &str = "the NodeName line and gres.conf";

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let groups = groups(&cluster.nodes);
    let found = groups
        .iter()
        .flat_map(|group| group.check(policy, cluster.version));
    found.collect()
}

/// Nodes with the same GPUs and shards.
pub(crate) struct Group<'a> {
    names: String,
    node: &'a Node,
}

/// The nodes that have anything to do with GPUs.
pub(crate) fn groups(nodes: &[Node]) -> Vec<Group<'_>> {
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
    fn check(&self, policy: &Policy, version: Option<SlurmVersion>) -> Vec<Finding> {
        let mut found = Vec::new();
        let node = self.node;
        if node.has("mps") && node.has("shard") {
            found.push(mps_and_shard(&self.names));
        }
        let mut say = |code, what: String, remedy: String| {
            found.push(Finding::new(code, &self.names, what, remedy));
        };
        let untyped = |name: &str| node.items(name).find(|gres| gres.kind.is_none());
        if let Some(gpus) = untyped("gpu")
            && policy.gpus().next().is_some()
        {
            let count = gpus.count;
            let what = format!("gpu:{count} has no type, and the policy knows GPUs by type");
            say(
                Code::GpusUntyped,
                what,
                format!("write gpu:TYPE:{count} in {NODE_LINE}"),
            );
        }
        if let Some(shards) = untyped("shard") {
            let count = shards.count;
            let what =
                format!("shard:{count} has no type: jobs start, and each of their steps fails");
            say(
                Code::ShardsUntyped,
                what,
                format!("write shard:TYPE:{count} in {NODE_LINE}"),
            );
        }
        // A GRES without a type may be of any type.
        for kind in kinds(node, "shard") {
            if let Some((code, what, remedy)) = shards(policy, node, kind, untyped("gpu").is_some())
            {
                say(code, what, remedy);
            }
        }
        let drains =
            node.has("shard") && version.is_none_or(SlurmVersion::drains_without_all_shards);
        for kind in kinds(node, "gpu") {
            let gpus = node.count("gpu", kind);
            let without = node.count("shard", kind) == 0 && untyped("shard").is_none();
            let shared = policy.gpu(kind).is_some_and(|gpu| gpu.shards_per_gpu() > 1);
            let shards = gpus * per_gpu(policy, node, kind);
            let is_known = policy.gpu(kind).is_some()
                || policy.is_plain_type(kind)
                || is_reservable(policy, kind)
                || policy.gpus().next().is_none();
            if without && drains {
                say(
                    Code::ShardsOfAllTypes,
                    format!(
                        "gpu:{kind}:{gpus} has no shards beside types that have some, and this Slurm drains the node"
                    ),
                    format!(
                        "add shard:{kind}:{shards} to {NODE_LINE}{}",
                        if shared {
                            ""
                        } else {
                            "; no job can request those"
                        }
                    ),
                );
            } else if without && shared {
                say(
                    Code::ShardsMissing,
                    format!(
                        "gpu:{kind}:{gpus} without shards: no slice of {kind} ever starts here"
                    ),
                    format!("add shard:{kind}:{shards} to {NODE_LINE}"),
                );
            }
            if !is_known {
                say(
                    Code::GpusUnknown,
                    format!(
                        "gpu:{kind} is not in policy.toml, so whole GPUs of this type count as no shards in any class's limit"
                    ),
                    format!("add [gpu.{kind}], or {kind} to plain_types"),
                );
            }
        }
        found
    }
}

/// The shards that one GPU of a type should have on this node. If a node has shared GPUs, its other GPUs also have shards,
/// which no job can request: one each, or as many as a shared GPU if the node has MIG instances, because gres.conf cannot
/// name instances for shards.
fn per_gpu(policy: &Policy, node: &Node, kind: &str) -> u64 {
    let own = |kind: &str| {
        policy
            .gpu(kind)
            .map_or(0, |gpu| u64::from(gpu.shards_per_gpu()))
    };
    let most = kinds(node, "gpu").into_iter().map(own).max().unwrap_or(0);
    let mut types = kinds(node, "gpu").into_iter();
    let has_mig = types.any(|kind| policy.gpu(kind).is_some_and(|gpu| gpu.is_mig()));
    match own(kind) {
        2.. => own(kind),
        _ if most < 2 => 0,
        _ if has_mig => most,
        _ => 1,
    }
}

/// The types that a node has of a GRES.
pub(crate) fn kinds<'a>(node: &'a Node, name: &'a str) -> BTreeSet<&'a str> {
    node.items(name)
        .filter_map(|gres| gres.kind.as_deref())
        .collect()
}

fn is_reservable(policy: &Policy, kind: &str) -> bool {
    policy.reservables().iter().any(|own| own.kind() == kind)
}

/// The fault of the shards of one type on a node.
fn shards(
    policy: &Policy,
    node: &Node,
    kind: &str,
    untyped: bool,
) -> Option<(Code, String, String)> {
    let (gpus, shards) = (node.count("gpu", kind), node.count("shard", kind));
    let per_gpu = per_gpu(policy, node, kind);
    if shards == gpus * per_gpu || (gpus == 0 && untyped) {
        return None;
    }
    let gres = format!("shard:{kind}:{shards}");
    let remedy = match gpus * per_gpu {
        0 => format!("take {gres} out of {NODE_LINE}"),
        right => format!("write shard:{kind}:{right} in {NODE_LINE}"),
    };
    let uneven = format!(
        "that is not the same number for each of {}",
        counted(gpus, "GPU")
    );
    let other = format!(
        "{} there, and policy.toml has shards = {per_gpu} for each: limits and GPUs do not fit",
        counted(gpus, "GPU")
    );
    let shared = policy.gpu(kind).filter(|gpu| gpu.shards_per_gpu() > 1);
    let (code, why) = match (shared, policy.gpu(kind)) {
        (Some(_), _) if gpus == 0 => (Code::ShardsUneven, "the node has no GPU of this type"),
        (Some(_), _) if shards % gpus != 0 => (Code::ShardsUneven, uneven.as_str()),
        (Some(_), _) => (Code::ShardsPerGpu, other.as_str()),
        (None, _) if is_reservable(policy, kind) => (
            Code::ReservableShared,
            "GPUs of this type are reserved, and are not for slices",
        ),
        (None, Some(gpu)) if gpu.is_mig() => (
            Code::MigShared,
            "it is a MIG instance that policy.toml does not cut (shards = 1)",
        ),
        (None, Some(_)) => (
            Code::ShardsPerGpu,
            "policy.toml has shards = 1 for it: it is not cut",
        ),
        (None, None) if policy.is_plain_type(kind) => (
            Code::ShardsUnknown,
            "it is in plain_types of policy.toml, and not cut",
        ),
        (None, None) => (
            Code::ShardsUnknown,
            "policy.toml has no such type, so no job can use them",
        ),
    };
    Some((code, format!("{gres}: {why}"), remedy))
}

pub(crate) fn mps_and_shard(place: &str) -> Finding {
    Finding::new(
        Code::MpsAndShard,
        place,
        "mps and shard on one node: Slurm fills the same GPUs twice",
        "take mps out of Gres= and gres.conf; [legacy.mps] translates requests for it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{KEPT, cluster, codes, node, policy, policy_with};

    fn found_in(policy: &Policy, gres: &str) -> Vec<&'static str> {
        let mut cluster = cluster();
        cluster.nodes = vec![node("n1", gres)];
        codes(&check(policy, &cluster))
    }

    #[test]
    fn right_nodes_are_clean() {
        assert!(check(&policy(), &cluster()).is_empty());
    }

    #[test]
    fn gpus_and_shards_of_any_right_node_are_clean() {
        let both = "gpu:l40s:2,gpu:h200:2,shard:l40s:8,shard:h200:16";
        for gres in ["tmpdisk:4", both] {
            assert!(found_in(&policy(), gres).is_empty(), "{gres}");
        }
        let unknown = found_in(&policy(), "gpu:v100:4,shard:v100:8");
        assert_eq!(unknown, ["SHARDS_UNKNOWN", "GPUS_UNKNOWN"]);
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
        // Beside shared GPUs each instance has as many shards as they have, and no job can request them.
        let beside = "gpu:l40s:1,gpu:h100_1g.10gb:7,shard:l40s:4,shard:h100_1g.10gb:28";
        assert!(found_in(&mig(1), beside).is_empty());
        let other = "gpu:l40s:1,gpu:h100_1g.10gb:7,shard:l40s:4,shard:h100_1g.10gb:7";
        assert_eq!(found_in(&mig(1), other), ["MIG_SHARED"]);
    }

    #[test]
    fn each_type_beside_shared_ones_has_shards_from_23_11_on() {
        let plain = policy_with("plain_types = [\"v100\"]\n");
        let mut cluster = cluster();
        let mut found = |gres: &str, version: &str| {
            cluster.nodes = vec![node("n1", gres)];
            cluster.version = version.parse().ok();
            codes(&check(&plain, &cluster))
        };
        let without = "gpu:l40s:3,gpu:v100:1,shard:l40s:12";
        assert_eq!(found(without, "24.11"), ["SHARDS_OF_ALL_TYPES"]);
        assert!(found(without, "22.05").is_empty());
        let with = "gpu:l40s:3,gpu:v100:1,shard:l40s:12,shard:v100:1";
        for version in ["22.05", "24.11"] {
            assert!(found(with, version).is_empty(), "{version}");
        }
        let shared = "gpu:l40s:3,gpu:h200:1,shard:l40s:12";
        assert_eq!(found(shared, "24.11"), ["SHARDS_OF_ALL_TYPES"]);
        assert_eq!(found(shared, "22.05"), ["SHARDS_MISSING"]);
        assert!(found("gpu:v100:4", "24.11").is_empty());
        assert_eq!(
            found("gpu:v100:4,shard:v100:4", "24.11"),
            ["SHARDS_UNKNOWN"]
        );
    }

    #[test]
    fn a_gpu_that_is_kept_for_a_user_is_not_for_slices() {
        let kept = policy_with(KEPT);
        let shared = "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:4";
        assert_eq!(found_in(&kept, shared), ["RESERVABLE_SHARED"]);
        let right = "gpu:l40s:3,gpu:l40s_r:1,shard:l40s:12,shard:l40s_r:1";
        assert!(found_in(&kept, right).is_empty());
    }
}
