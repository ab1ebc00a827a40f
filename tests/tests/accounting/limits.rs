//! Limits of a QOS: who waits, who is refused, and what counts as what.

use anyhow::Result;
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use super::{class, cluster, counted, end, run, stay};

on_each_slurm!(
    the_third_shard_waits_until_one_ends,
    shards_are_no_gpus,
    a_job_beyond_the_limit_alone_waits_for_ever,
    deny_on_limit_refuses_what_is_too_large_alone,
    a_type_can_have_a_limit_of_its_own,
);

fn the_third_shard_waits_until_one_ends(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    class(&cluster, "student", "MaxTRESPerUser=gres/shard=2", "alice")?;
    let shard = ["--gres=shard:l40s:1"];
    let first = run(&cluster, "alice", &shard)?;
    run(&cluster, "alice", &shard)?;
    let third = stay(&cluster, "alice", &shard)?;
    cluster.wait_reason(third, "QOSMaxGRESPerUser")?;
    // Neither a job without GPUs nor another user waits for it.
    run(&cluster, "alice", &[])?;
    run(&cluster, "bob", &shard)?;
    assert_eq!(cluster.job_state(third)?.as_deref(), Some("PENDING"));
    end(&cluster, first)?;
    cluster.wait_job(third, "RUNNING")
}

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

fn a_job_beyond_the_limit_alone_waits_for_ever(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    class(&cluster, "student", "MaxTRESPerUser=gres/shard=2", "alice")?;
    let large = stay(&cluster, "alice", &["--gres=shard:l40s:3"])?;
    cluster.wait_reason(large, "QOSMaxGRESPerUser")
}

fn deny_on_limit_refuses_what_is_too_large_alone(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    class(
        &cluster,
        "student",
        "MaxTRESPerUser=gres/shard=2 flags=DenyOnLimit",
        "alice",
    )?;
    let alice = cluster.user("alice");
    let said = alice
        .try_sbatch(&["--gres=shard:l40s:3"], "true")?
        .refused()?;
    assert!(said.contains("QOSMaxGRESPerUser"), "{said}");
    assert!(
        said.contains("Job violates accounting/QOS policy"),
        "{said}"
    );
    // A job that fits but for the user's others waits as without the flag.
    run(&cluster, "alice", &["--gres=shard:l40s:2"])?;
    let second = stay(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    cluster.wait_reason(second, "QOSMaxGRESPerUser")
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
