//! Settings of the site that are made for whole GPUs and have no effect on slices: Slurm does not know that a shard is
//! a part of a GPU.

use crate::site::check::facts::{Cluster, Node, Partition, Settings};
use crate::site::check::finding::{Code, Finding, listed};
use crate::site::check::rules::accounting::{called, is_weighed, partitions_with_gpus, weights};
use crate::site::check::rules::slices::{has_slices, shares};
use softmig_policy::Policy;
use softmig_policy::slurm::hostlist::compress;

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if !shares(policy) {
        return found;
    }
    defaults(policy, cluster, &mut found);
    cpus(policy, cluster, &mut found);
    limits(policy, cluster, &mut found);
    // If the policy has weights, another rule compares them one by one.
    let has = |partition: &Partition, name: &str| {
        weights(partition).keys().any(|own| own.starts_with(name))
    };
    let light = partitions_with_gpus(cluster)
        .filter(|partition| has(partition, "gres/gpu") && !has(partition, "gres/shard"));
    if !is_weighed(policy)
        && let Some(place) = called(light)
    {
        found.push(Finding::new(
            Code::BillingGpuOnly,
            place,
            "TRESBillingWeights has a weight for GPUs and none for shards, so slices cost nothing",
            "add GRES/shard with a GPU's weight divided by its shards",
        ));
    }
    weights_without_gpus(cluster, &mut found);
    found
}

/// Weights of GPUs alone make jobs on CPUs free in fair share.
fn weights_without_gpus(cluster: &Cluster, found: &mut Vec<Finding>) {
    let of_gpus = cluster.partitions.iter().filter(|partition| {
        let weights = weights(partition);
        !weights.is_empty() && weights.keys().all(|name| name.starts_with("gres/"))
    });
    for partition in of_gpus {
        let nodes = cluster.nodes_of(partition);
        let cpus: Vec<&str> = nodes
            .filter(|node| !node.has("gpu"))
            .map(|node| node.name.as_str())
            .collect();
        if !cpus.is_empty() {
            found.push(Finding::new(
                Code::BillingWithoutGpus,
                format!("partition {}", partition.name),
                format!(
                    "{} in it has no GPUs, and TRESBillingWeights has weights of GPUs alone: jobs there count nothing in fair \
                     share",
                    compress(cpus)
                ),
                "write TRESBillingWeights in the lines of partitions with GPUs, and not in PartitionName=DEFAULT; give nodes \
                 without GPUs a partition of their own",
            ));
        }
    }
}

/// DefCpuPerGPU and DefMemPerGPU.
fn defaults(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let quotas = || policy.standings().iter().map(|standing| &standing.quota);
    for (key, own, is_replaced) in [
        (
            "DefCpuPerGPU",
            "cpus_per_shard",
            quotas().all(|own| own.cpus_per_shard.is_some()),
        ),
        (
            "DefMemPerGPU",
            "host_memory_mib_per_shard",
            quotas().all(|own| own.host_memory_mib_per_shard.is_some()),
        ),
    ] {
        let sets = |settings: &Settings| {
            let mut defaults = settings.words("JobDefaults");
            !settings.get(key).is_empty()
                || defaults.any(|word| word.split('=').next() == Some(key))
        };
        let everywhere = sets(&cluster.settings).then(|| "slurm.conf".to_string());
        let places =
            called(partitions_with_gpus(cluster).filter(|partition| sets(&partition.settings)));
        if let Some(place) = listed(everywhere.into_iter().chain(places))
            && !is_replaced
        {
            found.push(Finding::new(
                Code::DefPerGpu,
                place,
                format!("{key} does not hold for slices, which get Slurm's other defaults"),
                format!("set {own} in [defaults] of policy.toml"),
            ));
        }
    }
}

/// The number of smallest slices that a node has room for.
fn slices(policy: &Policy, node: &Node) -> u64 {
    let gpus = policy
        .gpus()
        .filter(|gpu| has_slices(policy, node, gpu.name()));
    let slices = gpus.map(|gpu| {
        let finest = gpu.slices().iter().max().copied().unwrap_or(1);
        node.count("gpu", gpu.name()) * u64::from(finest)
    });
    slices.sum()
}

/// Each job has at least one CPU, so a node with fewer CPUs than slices cannot use all its slices.
fn cpus(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let nodes = cluster
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.cpus?)));
    let few: Vec<(&Node, u64)> = nodes
        .filter(|(node, cpus)| *cpus < slices(policy, node))
        .collect();
    if let Some((first, cpus)) = few.first() {
        found.push(Finding::new(
            Code::CpusBelowSlices,
            compress(few.iter().map(|(node, _)| node.name.as_str())),
            format!(
                "{cpus} CPUs for {} of the smallest slices: the CPUs are gone before the GPUs are",
                slices(policy, first)
            ),
            "offer fewer small slices (slices = [...] of the type in policy.toml), or leave it so",
        ));
    }
    for partition in &cluster.partitions {
        let nodes = cluster.nodes_of(partition);
        let slices = nodes.map(|node| slices(policy, node)).max().unwrap_or(0);
        let most = partition.settings.get("MaxCPUsPerNode");
        if most.parse::<u64>().is_ok_and(|most| most < slices) {
            found.push(Finding::new(
                Code::CpusBelowSlices,
                format!("partition {}", partition.name),
                format!("MaxCPUsPerNode={most} for up to {slices} slices of a node: the CPUs are gone before the GPUs are"),
                "raise MaxCPUsPerNode, or leave it so",
            ));
        }
    }
}

/// Limits on GPUs without one on shards.
fn limits(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let Ok(accounting) = &cluster.accounting else {
        return;
    };
    let gpus_only = |limits: &str| {
        let has = |name: &str| limits.split(',').any(|limit| limit.starts_with(name));
        has("gres/gpu") && !has("gres/shard")
    };
    // The QOS of classes limit billing, and another rule compares them one by one.
    let own = accounting
        .qos
        .iter()
        .filter(|qos| !policy.is_qos(&qos.name));
    let qos = own.filter(|qos| qos.fields.values().any(gpus_only));
    let associations = accounting
        .associations
        .iter()
        .filter(|own| gpus_only(&own.limits));
    let places = qos.map(|qos| format!("QOS {}", qos.name));
    if let Some(place) = listed(places.chain(associations.map(|own| own.called()))) {
        found.push(Finding::new(
            Code::LimitGpuOnly,
            place,
            "a limit on gres/gpu, and none on gres/shard, so slices slip past it",
            "limit gres/shard as well, or move the limit to a class in policy.toml",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{cluster, codes, policy, policy_with, qos};

    fn found(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = cluster();
        change(&mut cluster);
        codes(&check(&policy(), &cluster))
    }

    #[test]
    fn a_site_without_such_settings_is_clean() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn defaults_for_each_gpu_do_not_hold_for_slices() {
        let set = |key: &'static str, value: &'static str| {
            found(move |cluster| cluster.settings.set(key, value))
        };
        assert_eq!(set("DefCpuPerGPU", "4"), ["DEF_PER_GPU"]);
        assert_eq!(
            set("JobDefaults", "DefCpuPerGPU=4,DefMemPerGPU=100"),
            ["DEF_PER_GPU", "DEF_PER_GPU"]
        );
        let in_partition = |at: usize| {
            found(move |cluster| {
                cluster.partitions[at]
                    .settings
                    .set("JobDefaults", "DefMemPerGPU=100")
            })
        };
        assert_eq!(in_partition(0), ["DEF_PER_GPU"]);
        assert!(in_partition(1).is_empty());
        let mut cluster = cluster();
        cluster.settings.set("DefCpuPerGPU", "4");
        let own = policy_with("[defaults]\ncpus_per_shard = 2\n");
        assert!(check(&own, &cluster).is_empty());
    }

    #[test]
    fn as_many_cpus_as_slices_are_enough() {
        let most =
            |cluster: &mut Cluster| cluster.partitions[0].settings.set("MaxCPUsPerNode", "64");
        assert!(found(most).is_empty());
    }

    #[test]
    fn partitions_without_gpus_keep_the_weight_of_cpus() {
        let with = |weights: &'static str| {
            found(move |cluster| {
                cluster.partitions[1]
                    .settings
                    .set("TRESBillingWeights", weights);
            })
        };
        assert_eq!(with("GRES/gpu=4,GRES/shard=1"), ["BILLING_WITHOUT_GPUS"]);
        assert!(with("CPU=1.0,GRES/gpu=4").is_empty());
        assert!(with("").is_empty());
        let together = |weights: &'static str| {
            found(move |cluster| {
                cluster.partitions[0].nodes.push("cpu1".into());
                let settings = &mut cluster.partitions[0].settings;
                settings.set("TRESBillingWeights", weights);
            })
        };
        assert_eq!(
            together("GRES/gpu=4,GRES/shard=1"),
            ["BILLING_WITHOUT_GPUS"]
        );
        assert!(together("CPU=1.0,GRES/gpu=4,GRES/shard=1").is_empty());
    }

    #[test]
    fn limits_and_weights_on_shards_as_well_are_right() {
        let clean = found(|cluster| {
            let weights = "CPU=1.0,GRES/gpu=10.0,GRES/shard=2.5";
            cluster.partitions[0]
                .settings
                .set("TRESBillingWeights", weights);
            if let Ok(accounting) = &mut cluster.accounting {
                let limit = [("GrpTRES", "gres/gpu=4,gres/shard=16")];
                accounting.qos.push(qos("long", &limit));
            }
        });
        assert!(clean.is_empty());
        let association = found(|cluster| {
            if let Ok(accounting) = &mut cluster.accounting {
                accounting.associations[1].limits = "gres/gpu:l40s=1".into();
            }
        });
        assert_eq!(association, ["LIMIT_GPU_ONLY"]);
    }
}
