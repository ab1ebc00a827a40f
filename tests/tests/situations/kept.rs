//! A GPU that is reserved for one user for a week, and given back.

use super::{cluster, end, refused, run, running, stay};
use anyhow::{Context, Result};
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    a_kept_gpu_is_its_holders_even_when_all_others_are_full,
    jobs_that_began_in_its_time_go_on_after_it,
    after_its_time_config_gives_the_gpu_back,
);

fn policy(end: &str) -> String {
    format!(
        "default_class = \"student\"\n[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
         [classes.student]\nshards = 16\nwhole_gpus = 0\n[classes.admin]\nmembers = {{ users = [\"dave\"] }}\n\
         shards = \"unlimited\"\nwhole_gpus = \"unlimited\"\npriority = 100\n\
         [[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nstart = 2020-01-01T00:00:00Z\nend = {end}\n\
         reason = \"paper deadline\"\n"
    )
}

fn kept(slurm: Slurm) -> Result<Cluster> {
    let kinds = [Gpus::l40s(3), Gpus::new("l40s_r", "NVIDIA L40S", 1)];
    cluster(
        slurm,
        &policy("2999-01-01T00:00:00Z"),
        "[\"l40s:3\", \"l40s_r:1\"]",
        &kinds,
    )
}

fn a_kept_gpu_is_its_holders_even_when_all_others_are_full(slurm: Slurm) -> Result<()> {
    let cluster = kept(slurm)?;
    for _ in 0..12 {
        run(&cluster, "bob", "--gres=gpu:l40s.4:1")?;
    }
    let slice = stay(&cluster, "bob", &["--gres=gpu:l40s.4:1"])?;
    let whole = stay(&cluster, "dave", &["--gres=gpu:l40s:1"])?;
    cluster.wait_reason(whole, "Resources")?;
    for (user, gres) in [
        ("bob", "--gres=gpu:l40s_r:1"),
        ("dave", "--gres=gpu:l40s_r:1"),
        ("dave", "--gres=gpu:1"),
        ("dave", "--gpus=1"),
    ] {
        let refusal = refused(&cluster, user, &[gres])?;
        assert!(refusal.contains("[RESERVED]"), "{user} {gres}: {refusal}");
    }
    let refusal = refused(&cluster, "dave", &["--ntasks-per-gpu=1", "-n1"])?;
    assert!(refusal.contains("[RESERVED]"), "{refusal}");
    // A job that takes all of a node is kept off the one node that there is.
    let all = cluster.user("dave").try_sbatch(&["--exclusive"], "true")?;
    assert!(!all.success(), "{all}");
    // Though her class has no whole GPUs, and others were first.
    let hers = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s_r:1", "--time=20"], "sleep 600")?;
    cluster.wait_job(hers, "RUNNING")?;
    assert_eq!(cluster.job_gpus(hers)?, [3]);
    let options = ["--gres=gpu:l40s_r:1", "--time=10"];
    let second = cluster.user("alice").sbatch(&options, "sleep 600")?;
    let waits =
        |job: u32| -> Result<bool> { Ok(cluster.job_state(job)?.as_deref() == Some("PENDING")) };
    assert!(waits(second)? && waits(slice)? && waits(whole)?);
    end(&cluster, hers)?;
    cluster.wait_job(second, "RUNNING")?;
    assert_eq!(cluster.job_gpus(second)?, [3]);
    assert!(waits(slice)? && waits(whole)?);
    Ok(())
}

/// Slurm draws all of the holder's jobs into a reservation that is MAGNETIC, and ends them with it unless it is FLEX.
fn jobs_that_began_in_its_time_go_on_after_it(slurm: Slurm) -> Result<()> {
    let cluster = kept(slurm)?;
    let jobs = [
        run(&cluster, "alice", "--gres=gpu:l40s_r:1")?,
        run(&cluster, "alice", "--gres=gpu:l40s.4:1")?,
    ];
    let show = ["scontrol", "-o", "show", "reservation"];
    let shown = cluster.run("root", &show)?.ok()?;
    let Some(name) = shown
        .split_whitespace()
        .find(|word| word.starts_with("ReservationName=softmig_"))
    else {
        assert!(slurm < Slurm::V24_11, "{shown}");
        return Ok(());
    };
    let end = ["scontrol", "update", "reservation", name, "EndTime=now+2"];
    cluster.run("root", &end)?.ok()?;
    cluster.wait_until("the reservation is over", || {
        Ok(cluster
            .run("root", &show)?
            .ok()?
            .contains("No reservations"))
    })?;
    assert_eq!(running(&cluster, &jobs)?, 2);
    Ok(())
}

fn after_its_time_config_gives_the_gpu_back(slurm: Slurm) -> Result<()> {
    // The same policy, after its time: what config prints now is four GPUs for all.
    let over = policy("2020-02-01T00:00:00Z");
    let cluster = cluster(slurm, &over, "[\"l40s:3\", \"l40s_r:1\"]", &[Gpus::l40s(4)])?;
    let conf = cluster
        .read("/etc/slurm/softmig.conf")?
        .context("softmig.conf")?;
    assert!(
        conf.contains("gpu:l40s:4") && !conf.contains("Gres=gpu:l40s_r"),
        "{conf}"
    );
    let mut gpus = Vec::new();
    for _ in 0..16 {
        let job = run(&cluster, "bob", "--gres=gpu:l40s.4:1")?;
        gpus.extend(cluster.job_gpus(job)?);
    }
    assert!(gpus.contains(&3), "{gpus:?}");
    // Her right to it has ended: her class has no whole GPUs.
    let refusal = refused(&cluster, "alice", &["--gres=gpu:l40s_r:1"])?;
    assert!(refusal.contains("[WHOLE_GPU_CLASS]"), "{refusal}");
    Ok(())
}
