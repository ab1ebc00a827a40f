//! Whole GPUs counted as their shards: TRESBillingWeights, and a limit on what they add up to.

use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

use super::{class, counted, end, run, stay};

on_each_slurm!(
    types_can_weigh_differently,
    an_untyped_gpu_slips_past_weights_of_types,
);

/// Weights on the line that is for all partitions that come after it.
fn weighted(slurm: Slurm, weights: &str) -> Result<Cluster> {
    let kinds = [Gpus::l40s(3), Gpus::new("h100", "NVIDIA H100", 1).shards(8)];
    super::cluster(slurm)
        .gpus(kinds)
        .slurm_conf(format!(
            "PartitionName=DEFAULT TRESBillingWeights=\"{weights}\""
        ))
        .start()
}

/// The count of a job; one that counts nothing has no such entry.
fn billing(cluster: &Cluster, job: u32) -> Result<Option<u32>> {
    let counted = counted(cluster, job)?;
    let value = counted
        .split(',')
        .find_map(|item| item.strip_prefix("billing="));
    Ok(value.map(str::parse).transpose()?)
}

fn types_can_weigh_differently(slurm: Slurm) -> Result<()> {
    let typed = "GRES/gpu:l40s=4,GRES/gpu:h100=8,GRES/shard:l40s=1,GRES/shard:h100=1";
    let cluster = weighted(slurm, typed)?;
    for (gres, expected) in [
        ("--gres=gpu:l40s:1", 4),
        ("--gres=gpu:h100:1", 8),
        ("--gres=shard:l40s:2", 2),
    ] {
        let job = run(&cluster, "alice", &[gres])?;
        assert_eq!(billing(&cluster, job)?, Some(expected), "{gres}");
        end(&cluster, job)?;
    }
    class(&cluster, "researcher", "MaxTRESPerUser=billing=8", "bob")?;
    run(&cluster, "bob", &["--gres=shard:l40s:1"])?;
    let whole = stay(&cluster, "bob", &["--gres=gpu:h100:1"])?;
    cluster.wait_reason(whole, "QOSMaxBillingPerUser")?;
    run(&cluster, "bob", &["--gres=gpu:l40s:1"])?;
    Ok(())
}

/// Why job-submit has to name the type of each request.
fn an_untyped_gpu_slips_past_weights_of_types(slurm: Slurm) -> Result<()> {
    let cluster = weighted(slurm, "GRES/gpu:l40s=4,GRES/gpu:h100=8,GRES/shard:l40s=1")?;
    class(&cluster, "researcher", "MaxTRESPerUser=billing=4", "alice")?;
    run(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    let typed = stay(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    cluster.wait_reason(typed, "QOSMaxBillingPerUser")?;
    let untyped = run(&cluster, "alice", &["--gres=gpu:1"])?;
    assert_eq!(billing(&cluster, untyped)?, Some(4));
    Ok(())
}
