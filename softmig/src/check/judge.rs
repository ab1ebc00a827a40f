//! What the facts mean. Nothing here looks at anything: the same facts give the same findings.

mod accounting;
#[cfg(test)]
mod example;
mod gates;
mod gres;
mod inventory;
mod known;
mod lua;
mod machine;
mod names;
mod nvml;
mod order;
mod others;
mod people;
mod possible;
mod settings;
mod site;
mod twice;

use crate::check::facts::{Cluster, Node};
use crate::check::finding::Finding;
pub(crate) use machine::{difference, judge as machine};
pub(crate) use names::windows;
pub(crate) use others::answers;
use softmig_policy::Policy;

/// Slurm's configuration against the policy.
pub(crate) fn cluster(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    if cluster.version.is_none() {
        found.push(Finding::skip(
            "Slurm's release",
            "it is not known, and settings mean different things to different ones: --slurm-version YY.MM says it",
        ));
    }
    found.extend(settings::judge(policy, cluster));
    found.extend(lua::judge(cluster));
    found.extend(gres::judge(policy, cluster));
    found.extend(inventory::judge(policy, cluster, now));
    found.extend(order::judge(policy, cluster));
    found.extend(twice::judge(&cluster.lines));
    found.extend(accounting::judge(policy, cluster));
    found.extend(people::judge(policy, cluster, now));
    found.extend(possible::judge(policy));
    found.extend(site::judge(policy, cluster));
    found.extend(names::judge(policy, cluster));
    found.extend(known::judge(policy, cluster, now));
    found.extend(gates::judge(policy, cluster));
    found
}

/// Whether any GPUs are cut.
fn shares(policy: &Policy) -> bool {
    policy.gpus().any(|gpu| gpu.shards_per_gpu() > 1)
}

/// Whether slices of a type can be on a node. Types that are not shared may have shards that nobody can ask for.
fn has_slices(policy: &Policy, node: &Node, kind: &str) -> bool {
    let gpu = policy.gpu(kind);
    gpu.is_some_and(|gpu| gpu.shards_per_gpu() > 1) && node.count("shard", kind) > 0
}
