//! Whole GPUs counted as their shards: TRESBillingWeights, and a limit on what they add up to.

use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

use super::{class, counted, end, run, stay};

on_each_slurm!(
    a_whole_gpu_counts_as_its_shards,
    types_can_weigh_differently,
    weights_with_and_without_type_add_up,
    an_untyped_gpu_slips_past_weights_of_types,
    without_weights_processors_are_counted,
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

fn a_whole_gpu_counts_as_its_shards(slurm: Slurm) -> Result<()> {
    let cluster = weighted(slurm, "GRES/gpu=4,GRES/shard=1")?;
    class(&cluster, "researcher", "MaxTRESPerUser=billing=8", "alice")?;
    let whole = run(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    let slice = run(&cluster, "alice", &["--gres=shard:l40s:3"])?;
    assert_eq!(billing(&cluster, whole)?, Some(4));
    assert_eq!(billing(&cluster, slice)?, Some(3));
    // At 7 of 8: a GPU more does not fit, typed or not; two shards do not; one does.
    let mut waiting = Vec::new();
    for gres in ["--gres=gpu:l40s:1", "--gres=gpu:1", "--gres=shard:l40s:2"] {
        let job = stay(&cluster, "alice", &[gres])?;
        cluster.wait_reason(job, "QOSMaxBillingPerUser")?;
        waiting.push(job);
    }
    run(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    // A job without GPUs counts nothing, however many processors it has.
    let plain = run(&cluster, "alice", &["--ntasks=4"])?;
    assert_eq!(billing(&cluster, plain)?, None);
    end(&cluster, whole)?;
    cluster.wait_job(waiting[0], "RUNNING")
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

fn weights_with_and_without_type_add_up(slurm: Slurm) -> Result<()> {
    let both = "GRES/gpu=4,GRES/gpu:l40s=4,GRES/shard=1,GRES/shard:l40s=1";
    let cluster = weighted(slurm, both)?;
    let whole = run(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    assert_eq!(billing(&cluster, whole)?, Some(8));
    let slice = run(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    assert_eq!(billing(&cluster, slice)?, Some(2));
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

fn without_weights_processors_are_counted(slurm: Slurm) -> Result<()> {
    let cluster = super::cluster(slurm).start()?;
    let job = run(&cluster, "alice", &["--ntasks=3", "--gres=shard:l40s:1"])?;
    assert_eq!(billing(&cluster, job)?, Some(3));
    Ok(())
}
