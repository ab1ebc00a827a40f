//! The rules that turn facts into findings. They use nothing but the facts, so the same facts give the same findings.

/// A table: in each row first what it is about, then a code, then texts.
macro_rules! rows {
    ($($first:expr, $code:ident, $($text:expr),+;)+) => { [$(($first, Code::$code, $($text),+)),+] };
}

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
mod in_force;
mod inventory;
mod lua;
mod machine;
mod nvml;
mod partitions;
mod principals;
mod remote_nodes;
mod settings;
mod slices;
mod upkeep;
mod whole_gpus;
#[cfg(test)]
mod wording_tests;

use crate::site::check::facts::{Cluster, Machine};
use crate::site::check::finding::{Code, Finding};
pub(crate) use lua::check as lua_plugins;
pub(crate) use machine::{check as machine, difference};
pub(crate) use partitions::windows;
pub(crate) use remote_nodes::answers;
use softmig_policy::Policy;

/// A policy that cannot be read, with the reason.
pub(crate) fn no_policy(why: &anyhow::Error) -> Finding {
    Finding::new(
        Code::PolicyMissing,
        "policy.toml",
        format!("{why:#}"),
        "copy the controller's to all nodes and login nodes, as /etc/softmig/policy.toml with mode 0644",
    )
}

/// The rules for a machine that has no readable policy.
pub(crate) fn without_policy(machine: Option<&Machine>, cluster: Option<&Cluster>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(cluster) = cluster {
        found.extend(lua::check(&cluster.lua));
        found.extend(cluster.in_force.iter().flat_map(in_force::check));
    }
    found.extend(machine.map(machine::without_policy).unwrap_or_default());
    found
}

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
    found.extend(lua::check(&cluster.lua));
    found.extend(cluster.in_force.iter().flat_map(in_force::check));
    found.extend(gres::check(policy, cluster));
    found.extend(inventory::check(policy, cluster, now));
    found.extend(device_order::check(policy, cluster));
    found.extend(duplicates::check(&cluster.lines));
    found.extend(duplicates::settings(&cluster.lines, cluster.version));
    found.extend(accounting::check(policy, cluster));
    found.extend(bypasses::check(policy, cluster, now));
    found.extend(contradictions::check(policy));
    found.extend(whole_gpus::check(policy, cluster));
    found.extend(partitions::check(policy, cluster));
    found.extend(principals::check(policy, cluster, now));
    found.extend(gates::check(policy, cluster));
    found
}
