//! Limits of a QOS: who waits, who is refused, and what counts as what.

use anyhow::Result;
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use super::{class, cluster, counted, run, stay};

on_each_slurm!(
    shards_are_no_gpus,
    shards_of_all_nodes_count,
    a_type_can_have_a_limit_of_its_own,
);

fn shards_are_no_gpus(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    class(&cluster, "one", "MaxTRESPerUser=gres/gpu=1", "alice")?;
    let slice = run(&cluster, "alice", &["--gres=shard:l40s:4"])?;
    let whole = run(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    let (slice, whole) = (counted(&cluster, slice)?, counted(&cluster, whole)?);
    assert!(
        slice.ends_with(",gres/shard=4,gres/shard:l40s=4") && !slice.contains("gpu"),
        "{slice}"
    );
    assert!(
        whole.ends_with(",gres/gpu=1,gres/gpu:l40s=1") && !whole.contains("shard"),
        "{whole}"
    );
    let second = stay(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    cluster.wait_reason(second, "QOSMaxGRESPerUser")?;
    run(&cluster, "alice", &["--gres=shard:l40s:4"])?;
    Ok(())
}

fn shards_of_all_nodes_count(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).nodes(2).start()?;
    class(&cluster, "three", "MaxTRESPerUser=gres/shard=3", "alice")?;
    let two = ["--nodes=2", "--gres=shard:l40s:1"];
    let first = run(&cluster, "alice", &two)?;
    let first = counted(&cluster, first)?;
    assert!(first.contains(",gres/shard=2,"), "{first}");
    let second = stay(&cluster, "alice", &two)?;
    cluster.wait_reason(second, "QOSMaxGRESPerUser")?;
    run(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    Ok(())
}

fn a_type_can_have_a_limit_of_its_own(slurm: Slurm) -> Result<()> {
    let kinds = [Gpus::l40s(2), Gpus::new("h100", "NVIDIA H100", 1).shards(8)];
    let cluster = cluster(slurm).gpus(kinds).start()?;
    let limits = "MaxTRESPerUser=gres/shard:l40s=1,gres/shard:h100=4,gres/gpu:h100=0";
    class(&cluster, "student", limits, "alice")?;
    run(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    let second = stay(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    cluster.wait_reason(second, "QOSMaxGRESPerUser")?;
    run(&cluster, "alice", &["--gres=shard:h100:4"])?;
    let third = stay(&cluster, "alice", &["--gres=shard:h100:1"])?;
    cluster.wait_reason(third, "QOSMaxGRESPerUser")?;
    let whole = stay(&cluster, "alice", &["--gres=gpu:h100:1"])?;
    cluster.wait_reason(whole, "QOSMaxGRESPerUser")?;
    run(&cluster, "alice", &["--gres=gpu:l40s:1"])?;
    Ok(())
}
