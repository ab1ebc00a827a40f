//! The job that gets a freed shard, and the GPU of a new one.

use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

use super::{class, cluster, end, run, stay};

on_each_slurm!(
    seams:
    shards_are_spread_where_slurm_can;
    others:
    the_higher_qos_gets_the_freed_shard,
    shards_are_packed,
    shards_of_one_moment_are_spread_where_slurm_can,
);

fn the_higher_qos_gets_the_freed_shard(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).gpus([Gpus::l40s(1).shards(2)]).start()?;
    class(&cluster, "student", "priority=10", "bob")?;
    class(&cluster, "researcher", "priority=50", "carol")?;
    class(&cluster, "admin", "priority=100", "dave")?;
    let shard = ["--gres=shard:l40s:1"];
    let held = [
        run(&cluster, "alice", &shard)?,
        run(&cluster, "alice", &shard)?,
    ];
    // Asked for in the order of what they are worth, lowest first.
    let mut waiting = Vec::new();
    for user in ["bob", "carol", "dave"] {
        waiting.push(stay(&cluster, user, &shard)?);
    }
    let [student, researcher, admin] = waiting[..] else {
        unreachable!("three were submitted");
    };
    cluster.wait_reason(admin, "Resources")?;
    cluster.wait_reason(student, "Priority")?;
    end(&cluster, held[0])?;
    cluster.wait_job(admin, "RUNNING")?;
    assert_eq!(cluster.job_state(researcher)?.as_deref(), Some("PENDING"));
    end(&cluster, held[1])?;
    cluster.wait_job(researcher, "RUNNING")?;
    assert_eq!(cluster.job_state(student)?.as_deref(), Some("PENDING"));
    end(&cluster, admin)?;
    cluster.wait_job(student, "RUNNING")
}

/// The GPU of each of `jobs` jobs of one shard, started one after the other.
fn placed(cluster: &Cluster, jobs: usize) -> Result<Vec<u32>> {
    let mut gpus = Vec::new();
    for _ in 0..jobs {
        let job = run(cluster, "alice", &["--gres=shard:l40s:1"])?;
        gpus.extend(cluster.job_gpus(job)?);
    }
    Ok(gpus)
}

/// A cluster whose Slurm takes the least loaded GPU; nothing where Slurm does not know how.
fn spreading(slurm: Slurm) -> Result<Option<Cluster>> {
    let started = cluster(slurm)
        .select("CR_Core_Memory,LL_SHARED_GRES")
        .start();
    if slurm >= Slurm::V24_11 {
        return started.map(Some);
    }
    let error = format!(
        "{:#}",
        started.map(drop).expect_err("22.05 does not know it")
    );
    assert!(
        error.contains("Bad SelectTypeParameter: LL_SHARED_GRES"),
        "{error}"
    );
    Ok(None)
}

fn shards_are_packed(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    assert_eq!(placed(&cluster, 5)?, [0, 0, 0, 0, 1]);
    Ok(())
}

fn shards_are_spread_where_slurm_can(slurm: Slurm) -> Result<()> {
    let Some(cluster) = spreading(slurm)? else {
        return Ok(());
    };
    assert_eq!(placed(&cluster, 5)?, [0, 1, 2, 3, 0]);
    Ok(())
}

fn shards_of_one_moment_are_spread_where_slurm_can(slurm: Slurm) -> Result<()> {
    let Some(cluster) = spreading(slurm)? else {
        return Ok(());
    };
    let gpus = std::thread::scope(|scope| {
        let users = ["alice", "bob", "carol", "dave"];
        let jobs = users.map(|user| scope.spawn(|| run(&cluster, user, &["--gres=shard:l40s:1"])));
        let gpus = jobs.map(|job| match job.join() {
            Ok(job) => cluster.job_gpus(job?),
            Err(_) => panic!("a submission panicked"),
        });
        gpus.into_iter().collect::<Result<Vec<_>>>()
    })?;
    let mut gpus = gpus.concat();
    gpus.sort();
    assert_eq!(gpus, [0, 1, 2, 3]);
    Ok(())
}
