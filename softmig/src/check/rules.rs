//! What the facts mean. Nothing here looks at anything: the same facts give the same findings.

mod accounting;
mod bypasses;
mod containers;
mod contradictions;
mod device_memory;
mod device_order;
mod duplicates;
#[cfg(test)]
mod example;
mod gates;
mod gres;
mod inventory;
mod lua;
mod machine;
mod nvml;
mod partitions;
mod principals;
mod remote_nodes;
mod settings;
mod slices;
mod whole_gpus;

use crate::check::facts::Cluster;
use crate::check::finding::Finding;
pub(crate) use machine::{check as machine, difference};
pub(crate) use partitions::windows;
pub(crate) use remote_nodes::answers;
use softmig_policy::Policy;

/// Slurm's configuration against the policy.
pub(crate) fn cluster(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    if cluster.version.is_none() {
        found.push(Finding::skip(
            "Slurm's release",
            "Slurm version unknown; some checks depend on it. Pass --slurm-version YY.MM",
        ));
    }
    found.extend(settings::check(policy, cluster));
    found.extend(device_memory::of_slurm(cluster));
    found.extend(lua::check(cluster));
    found.extend(gres::check(policy, cluster));
    found.extend(inventory::check(policy, cluster, now));
    found.extend(device_order::check(policy, cluster));
    found.extend(duplicates::check(&cluster.lines));
    found.extend(accounting::check(policy, cluster));
    found.extend(bypasses::check(policy, cluster, now));
    found.extend(contradictions::check(policy));
    found.extend(whole_gpus::check(policy, cluster));
    found.extend(partitions::check(policy, cluster));
    found.extend(principals::check(policy, cluster, now));
    found.extend(gates::check(policy, cluster));
    found
}
