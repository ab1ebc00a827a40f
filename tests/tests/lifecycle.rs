//! From submission to the limits on the node, and back to nothing.

mod files;
mod ledger;
mod left_behind;
mod room;

use anyhow::{Context, Result};
use files::{as_slurmd, cancel, conf, left_over, memory, path, wait_for_start, wait_until_clean};
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::{installed, record};
use softmig_tests::{Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    the_limits_appear_with_the_job_and_go_with_it,
    a_late_epilog_of_an_earlier_run_leaves_the_new_one_alone,
    a_requeued_job_has_its_limits_again,
    a_job_from_before_the_installation_gets_what_slurmctld_knows;
    others:
    the_limits_belong_to_root_and_no_user_can_change_them,
    a_whole_gpu_job_has_no_limits_but_a_conf,
    gpus_of_several_types_are_all_of_the_job_or_unknown,
    a_job_without_gpus_leaves_nothing_on_the_node,
    each_array_task_has_its_own_limits,
    each_part_of_a_het_job_has_its_own_limits,
    a_suspended_job_keeps_its_limits,
    two_users_share_one_gpu_and_see_no_other,
    running_jobs_keep_their_limits_when_slurmctld_restarts,
    a_prolog_killed_at_any_moment_leaves_no_half_written_limits,
    an_epilog_without_a_prolog_touches_nothing_of_other_jobs,
    shards_spread_over_gpus_are_one_shard_of_each,
    a_job_whose_prolog_is_told_of_no_gpu_has_its_limits,
);

fn the_limits_appear_with_the_job_and_go_with_it(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let conf = wait_for_start(&cluster, node, job)?;
    let limits = conf.limits.context("no limits")?;
    assert_eq!(
        (limits.memory_mib(), limits.percent().to_string().as_str()),
        (11366, "25")
    );
    assert_eq!(conf.uid, 2001);
    let gpus: Vec<&str> = conf.gpus.iter().map(|uuid| uuid.as_str()).collect();
    assert_eq!(gpus, [node.gpus()[0].uuid.as_str()]);
    assert!(node.exists(format!("/var/run/softmig/jobs/{job}/log"))?);
    assert!(node.exists(format!("/var/run/softmig/uid/2001/{job}"))?);
    assert!(node.exists(format!("/var/run/softmig/gpu/{}/{job}", gpus[0]))?);
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)
}

fn the_limits_belong_to_root_and_no_user_can_change_them(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let script = "for f in /var/run/softmig/$SLURM_JOB_ID.conf; do\n\
         stat -c '%U %a' $f\n(echo x > $f) 2>&1\nrm -f $f 2>&1\nmv $f /tmp/ 2>&1\ntouch /var/run/softmig/x 2>&1\ndone\nstat -c '%U %a' /var/run/softmig/$SLURM_JOB_ID.conf\ntrue";
    let user = cluster.user("alice");
    let job = user.sbatch(&["--gres=gpu:l40s.4:1"], script)?;
    cluster.wait_job(job, "COMPLETED")?;
    let said = user.job_output(job)?;
    assert_eq!(said.matches("root 644").count(), 2, "{said}");
    assert_eq!(
        said.to_lowercase().matches("permission denied").count(),
        4,
        "{said}"
    );
    Ok(())
}

fn a_whole_gpu_job_has_no_limits_but_a_conf(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s:2"], "sleep 100")?;
    let conf = wait_for_start(&cluster, node, job)?;
    assert_eq!(conf.limits, None);
    assert_eq!(conf.gpus.iter().count(), 2);
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)
}

/// Slurm names the prolog the GPUs of one type only. A list that lacks some would make the job's other GPUs another's.
fn gpus_of_several_types_are_all_of_the_job_or_unknown(slurm: Slurm) -> Result<()> {
    let kinds = [Gpus::l40s(3), Gpus::new("l40s_r", "NVIDIA L40S", 1)];
    let cluster = installed(slurm).gpus(kinds).start()?;
    let node = cluster.node(0);
    let alice = cluster.user("alice");
    let listed = |job: u32| -> Result<usize> {
        let conf = wait_for_start(&cluster, node, job)?;
        assert_eq!(conf.limits, None);
        cancel(&cluster, job)?;
        wait_until_clean(&cluster, node)?;
        Ok(conf.gpus.iter().count())
    };
    for (option, count) in [
        ("--gres=gpu:l40s:1,gpu:l40s_r:1", 0),
        ("--gpus=l40s:2,l40s_r:1", 0),
        ("--exclusive", 0),
        ("--gres=gpu:4", 0),
        ("--gres=gpu:1", 1),
        ("--gres=gpu:l40s:2", 2),
        ("--gres=gpu:l40s_r:1", 1),
    ] {
        let job = alice.sbatch(&[option, "--nodes=1"], "sleep 100")?;
        assert_eq!(listed(job)?, count, "{option}");
    }
    // After a change the prolog asks slurmctld.
    let job = alice.sbatch(&["--gres=gpu:l40s:1", "--hold"], "sleep 100")?;
    let id = job.to_string();
    let more = "gres=gpu:l40s:1,gpu:l40s_r:1";
    cluster
        .run("root", &["scontrol", "update", "jobid", &id, more])?
        .ok()?;
    cluster.run("root", &["scontrol", "release", &id])?.ok()?;
    assert_eq!(listed(job)?, 0);
    Ok(())
}

fn a_job_without_gpus_leaves_nothing_on_the_node(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    // A conf of an earlier job of the same number is not this job's.
    node.run_as_root(&[
        "bash",
        "-c",
        "mkdir -p /var/run/softmig; echo stale > /var/run/softmig/1.conf",
    ])?
    .ok()?;
    let job = cluster.user("alice").sbatch(&[], "sleep 100")?;
    assert_eq!(job, 1);
    cluster.wait_job(job, "RUNNING")?;
    // Slurm calls a job running as soon as it has its nodes, before its prolog.
    cluster.wait_until(
        "the prolog left nothing",
        || Ok(left_over(node)?.is_empty()),
    )
}

fn each_array_task_has_its_own_limits(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let user = cluster.user("alice");
    let array = user.sbatch(
        &["--array=0-2", "--gres=gpu:l40s.2:1"],
        "echo id=$SLURM_JOB_ID\nsleep 100",
    )?;
    let ids = cluster.wait_for("three running tasks", || {
        let listed = cluster
            .run("root", &["squeue", "-h", "-t", "R", "-O", "JobID:20"])?
            .ok()?;
        let ids: Vec<u32> = listed
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        Ok((ids.len() == 3).then_some(ids))
    })?;
    for id in ids {
        wait_for_start(&cluster, node, id)?;
        assert_eq!(memory(node, id)?, Some(memory_mib(2)));
    }
    cancel(&cluster, array)?;
    wait_until_clean(&cluster, node)
}

fn each_part_of_a_het_job_has_its_own_limits(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).nodes(2).start()?;
    let user = cluster.user("alice");
    let first = user.sbatch(
        &["--gres=gpu:l40s.4:1", ":", "--gres=gpu:l40s.2:1"],
        "sleep 100",
    )?;
    cluster.wait_job(first, "RUNNING")?;
    for (id, shards) in [(first, 1), (first + 1, 2)] {
        let node = cluster.wait_for("the part's conf", || {
            let mut nodes = cluster.nodes().iter();
            Ok(nodes.find(|node| node.exists(path(id)).unwrap_or(false)))
        })?;
        assert_eq!(memory(node, id)?, Some(memory_mib(shards)));
    }
    cancel(&cluster, first)?;
    cluster
        .nodes()
        .iter()
        .try_for_each(|node| wait_until_clean(&cluster, node))
}

fn a_requeued_job_has_its_limits_again(slurm: Slurm) -> Result<()> {
    // Slurm keeps a requeued job waiting until its old credential has expired; 22.05 runs no second prolog before that.
    let cluster = installed(slurm)
        .slurm_conf("AuthInfo=socket=/cluster/munge/munge.socket,cred_expire=5")
        .start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let first = wait_for_start(&cluster, node, job)?;
    cluster
        .run("root", &["scontrol", "requeue", &job.to_string()])?
        .ok()?;
    let again = cluster.wait_for("the second run", || {
        let restarted = cluster.job_field(job, "Restarts")?.as_deref() == Some("1");
        Ok(conf(node, job)
            .ok()
            .filter(|conf| restarted && conf.run == 1))
    })?;
    assert_eq!(again.limits, first.limits);
    cancel(&cluster, job)?;
    wait_until_clean(&cluster, node)
}

fn a_suspended_job_keeps_its_limits(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let before = wait_for_start(&cluster, node, job)?;
    for (verb, state) in [("suspend", "SUSPENDED"), ("resume", "RUNNING")] {
        cluster
            .run("root", &["scontrol", verb, &job.to_string()])?
            .ok()?;
        cluster.wait_job(job, state)?;
        assert_eq!(conf(node, job)?, before);
    }
    Ok(())
}

fn two_users_share_one_gpu_and_see_no_other(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let mut gpus = Vec::new();
    for (name, uid) in [("alice", 2001), ("bob", 2002)] {
        let look = "for i in 0 1 2 3; do head -c0 /dev/nvidia$i 2>/dev/null && echo opens=$i; done\nsleep 100";
        let user = cluster.user(name);
        let job = user.sbatch(&["--gres=gpu:l40s.4:1"], look)?;
        let conf = wait_for_start(&cluster, node, job)?;
        assert_eq!(conf.uid, uid);
        gpus.push(conf.gpus);
        let held = record(&cluster, job)?;
        assert!(held.contains("shard:l40s:1"), "{held}");
    }
    assert_eq!(gpus[0], gpus[1]);
    Ok(())
}

fn running_jobs_keep_their_limits_when_slurmctld_restarts(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let user = cluster.user("alice");
    let job = user.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let before = wait_for_start(&cluster, node, job)?;
    cluster.restart_slurmctld()?;
    cluster.wait_job(job, "RUNNING")?;
    assert_eq!(conf(node, job)?, before);
    // The nodes have to register first.
    let next = cluster.wait_for("an accepted job", || {
        Ok(user.sbatch(&["--gres=gpu:l40s.2:1"], "sleep 100").ok())
    })?;
    wait_for_start(&cluster, node, next)?;
    assert_eq!(memory(node, next)?, Some(memory_mib(2)));
    cancel(&cluster, job)?;
    cancel(&cluster, next)?;
    wait_until_clean(&cluster, node)
}

fn a_prolog_killed_at_any_moment_leaves_no_half_written_limits(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    // Killed after 0 to 3 ms, which is before, within and after its work.
    let storm = "for i in $(seq 1001 1150); do\n\
         SLURM_JOB_ID=$i SLURM_JOB_UID=2001 SLURM_JOB_GPUS=0 SLURM_JOB_COMMENT=softmig=1:l40s:1/4:11366:hard /usr/libexec/softmig-prolog & p=$!\n\
         sleep 0.00$((i % 4))$((i % 7))\nkill -9 $p 2>/dev/null\nwait $p 2>/dev/null\ndone; true";
    node.run_as_root(&["bash", "-c", storm])?.ok()?;
    let mut whole = 0;
    for name in node.list("/var/run/softmig")? {
        if let Some(id) = name
            .strip_suffix(".conf")
            .filter(|name| !name.starts_with('.'))
        {
            assert_eq!(memory(node, id.parse()?)?, Some(11366));
            whole += 1;
        }
    }
    assert!(whole > 0, "the storm never let a prolog finish");
    // Whatever a killed prolog left, the job's epilog takes away.
    let mop = "for i in $(seq 1001 1150); do SLURM_JOB_ID=$i SLURM_JOB_UID=2001 SLURM_JOB_GPUS=0 /usr/libexec/softmig-epilog; done";
    node.run_as_root(&["bash", "-c", mop])?.ok()?;
    wait_until_clean(&cluster, node)
}

fn an_epilog_without_a_prolog_touches_nothing_of_other_jobs(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    as_slurmd(node, "epilog", "SLURM_JOB_ID=7 SLURM_JOB_UID=2001")?;
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=gpu:l40s.4:1"], "sleep 100")?;
    let before = wait_for_start(&cluster, node, job)?;
    for other in [7, job * 10, job * 10 + 1, job * 100 + 1] {
        as_slurmd(
            node,
            "epilog",
            &format!("SLURM_JOB_ID={other} SLURM_JOB_UID=2001 SLURM_JOB_GPUS=0"),
        )?;
    }
    assert_eq!(conf(node, job)?, before);
    assert!(node.exists(format!("/var/run/softmig/uid/2001/{job}"))?);
    Ok(())
}

fn a_late_epilog_of_an_earlier_run_leaves_the_new_one_alone(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = "SLURM_JOB_ID=500 SLURM_JOB_UID=2001 SLURM_JOB_GPUS=0 SLURM_JOB_COMMENT=softmig=1:l40s:1/4:11366:hard";
    // The words of these releases: the epilog of a requeued run has the next run's count, and from 23.02 on its own
    // start.
    let (first, late, second) = match slurm {
        Slurm::V22_05 => ("0", "1", "2"),
        Slurm::V24_11 | Slurm::V26_05 => (
            "0 SLURM_JOB_START_TIME=1795239133",
            "1 SLURM_JOB_START_TIME=1795239133",
            "1 SLURM_JOB_START_TIME=1795239142",
        ),
    };
    let run = |program: &str, count: &str| {
        as_slurmd(
            node,
            program,
            &format!("{job} SLURM_JOB_RESTART_COUNT={count}"),
        )
    };
    run("prolog", first)?;
    run("prolog", second)?;
    let before = conf(node, 500)?;
    run("epilog", late)?;
    assert_eq!(conf(node, 500)?, before);
    run("epilog", second)?;
    wait_until_clean(&cluster, node)
}

fn shards_spread_over_gpus_are_one_shard_of_each(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = "SLURM_JOB_ID=600 SLURM_JOB_UID=2001 SLURM_JOB_GPUS=0,1 SLURM_JOB_COMMENT=softmig=1:l40s:2/4:22732:hard";
    as_slurmd(node, "prolog", job)?;
    let conf = conf(node, 600)?;
    let limits = conf.limits.context("no limits")?;
    assert_eq!((limits.memory_mib(), limits.share().shards()), (11366, 1));
    assert_eq!(conf.gpus.iter().count(), 2);
    as_slurmd(node, "epilog", job)
}

fn a_job_from_before_the_installation_gets_what_slurmctld_knows(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm)
        .job_submit(false)
        .cli_filter(false)
        .start()?;
    let node = cluster.node(0);
    let user = cluster.user("alice");
    let half = user.sbatch(&["--gres=shard:l40s:2"], "sleep 100")?;
    let whole = user.sbatch(&["--gres=gpu:l40s:1"], "sleep 100")?;
    wait_for_start(&cluster, node, half)?;
    wait_for_start(&cluster, node, whole)?;
    assert_eq!(memory(node, half)?, Some(memory_mib(2)));
    assert_eq!(memory(node, whole)?, None);
    Ok(())
}

fn a_job_whose_prolog_is_told_of_no_gpu_has_its_limits(slurm: Slurm) -> Result<()> {
    // As slurmd 24.11 runs it for some seconds after a start of slurmctld.
    let prolog = "#!/bin/sh\nunset SLURM_JOB_GPUS CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL\n\
        exec /usr/libexec/softmig-prolog\n";
    let cluster = installed(slurm)
        .prolog(false)
        .file("/usr/local/sbin/prolog", prolog)
        .slurm_conf("Prolog=/usr/local/sbin/prolog")
        .start()?;
    let node = cluster.node(0);
    let alice = cluster.user("alice");
    for (gres, memory, gpus) in [
        ("--gres=gpu:l40s.4:1", Some(memory_mib(1)), 0..1),
        ("--gres=gpu:l40s:2", None, 1..3),
    ] {
        let job = alice.sbatch(&[gres], "sleep 100")?;
        let conf = wait_for_start(&cluster, node, job)?;
        assert_eq!(conf.limits.map(|limits| limits.memory_mib()), memory);
        let found: Vec<&str> = conf.gpus.iter().map(|uuid| uuid.as_str()).collect();
        let expected = node.gpus()[gpus].iter().map(|gpu| gpu.uuid.as_str());
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
    Ok(())
}
