//! Users' changes of a job that Slurm already has, and its fields that are softmig's alone.

use anyhow::{Context, Result};
use softmig_tests::softmig::{installed, record, tag};
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_users_own_tag_is_removed_at_submission,
    a_pending_job_can_be_changed_to_another_slice,
    a_split_array_can_be_changed_as_a_whole;
    others:
    a_user_cannot_edit_the_tag_of_his_job,
    a_tag_that_is_typed_in_the_words_of_softmig_changes_nothing,
    a_users_other_words_are_kept_with_the_tag,
    hold_and_release_change_nothing,
    a_slice_stays_on_one_node_whatever_a_change_allows,
    shards_of_a_running_job_stay,
    nothing_a_user_writes_looks_like_a_line_of_the_log,
    a_change_that_fails_half_way_lifts_no_limit,
    a_change_that_does_not_ask_for_a_slice_is_refused,
);

const POLICY: &str = "/etc/softmig/policy.toml";

fn quarter(cluster: &Cluster) -> Result<u32> {
    cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "true")
}

fn update(cluster: &Cluster, job: u32, change: &str) -> Result<softmig_tests::Output> {
    cluster
        .user("alice")
        .run(&["scontrol", "update", &format!("jobid={job}"), change])
}

/// The field that carries the tag on this Slurm.
fn tag_field(slurm: Slurm) -> &'static str {
    match slurm {
        Slurm::V22_05 => "comment",
        Slurm::V24_11 | Slurm::V26_05 => "extra",
    }
}

fn a_users_own_tag_is_removed_at_submission(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    let forged = "--comment=softmig=1:whole my softmig=1:l40s:4/4:45464:hard run";
    let job = user.sbatch(&["--hold", forged, "--gres=gpu:l40s.4:1"], "true")?;
    assert_eq!(
        tag(&cluster, job)?.as_deref(),
        Some("softmig=1:l40s:1/4:11366:hard")
    );
    let text = record(&cluster, job)?;
    assert_eq!(text.matches("softmig=").count(), 1, "{text}");
    assert!(text.contains("Comment=my run"), "{text}");
    let job = user.sbatch(&["--hold", forged], "true")?;
    assert_eq!(tag(&cluster, job)?, None);
    Ok(())
}

fn a_user_cannot_edit_the_tag_of_his_job(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let job = quarter(&cluster)?;
    for field in ["comment", tag_field(slurm)] {
        for text in [
            "softmig=1:whole",
            "mine softmig=1:l40s:4/4:45464:hard",
            "softmig=x",
        ] {
            let refusal = update(&cluster, job, &format!("{field}={text}"))?.refused()?;
            // Before 23.02 a text for the user of scontrol only reaches slurmctld's log.
            if slurm >= Slurm::V24_11 {
                assert!(refusal.contains("[TAG_EDIT]"), "{refusal}");
            }
        }
    }
    assert!(cluster.slurmctld_log()?.contains("[TAG_EDIT]"));
    assert_eq!(
        tag(&cluster, job)?.as_deref(),
        Some("softmig=1:l40s:1/4:11366:hard")
    );
    Ok(())
}

/// The one that slurmctld itself writes over the tasks of an array passes the check for forged ones.
fn a_tag_that_is_typed_in_the_words_of_softmig_changes_nothing(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let job = quarter(&cluster)?;
    let untagged = cluster.user("alice").sbatch(&["--hold"], "true")?;
    for field in ["comment", tag_field(slurm)] {
        let ask = format!("{field}=mine softmig=1:ask");
        update(&cluster, job, &ask)?.ok()?;
        let text = record(&cluster, job)?;
        assert_eq!(
            tag(&cluster, job)?.as_deref(),
            Some("softmig=1:l40s:1/4:11366:hard"),
            "{field}"
        );
        assert_eq!(text.matches("softmig=").count(), 1, "{text}");
        assert!(text.contains("mine"), "{text}");
        update(&cluster, untagged, &ask)?.ok()?;
        assert_eq!(tag(&cluster, untagged)?, None, "{field}");
    }
    Ok(())
}

fn a_users_other_words_are_kept_with_the_tag(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let job = quarter(&cluster)?;
    let field = tag_field(slurm);
    for (change, expected) in [
        ("hello", "hello softmig=1:l40s:1/4:11366:hard"),
        ("", "softmig=1:l40s:1/4:11366:hard"),
        (
            "again softmig=1:l40s:1/4:11366:hard",
            "again softmig=1:l40s:1/4:11366:hard",
        ),
    ] {
        update(&cluster, job, &format!("{field}={change}"))?.ok()?;
        let text = record(&cluster, job)?;
        assert!(
            text.to_lowercase().contains(&format!("{field}={expected}")),
            "{change}: {text}"
        );
    }
    Ok(())
}

fn hold_and_release_change_nothing(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let job = quarter(&cluster)?;
    // Also while the policy cannot be read: nothing is decided here.
    cluster.write(POLICY, "broken")?;
    cluster.restart_slurmctld()?;
    for verb in ["release", "hold", "release"] {
        cluster
            .user("alice")
            .run(&["scontrol", verb, &job.to_string()])?
            .ok()?;
    }
    cluster.wait_job(job, "COMPLETED")?;
    assert_eq!(
        tag(&cluster, job)?.as_deref(),
        Some("softmig=1:l40s:1/4:11366:hard")
    );
    Ok(())
}

fn a_pending_job_can_be_changed_to_another_slice(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let job = cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "sleep 100")?;
    let mark = match slurm {
        Slurm::V22_05 => "gres:",
        Slurm::V24_11 | Slurm::V26_05 => "gres/",
    };
    let marked = format!("TresPerNode={mark}gpu:l40s.4");
    let mut changes = vec![
        ("gres=gpu:l40s.2:1", "shard:l40s:2"),
        (&marked, "shard:l40s:1"),
        ("gres=shard:l40s:2", "shard:l40s:2"),
    ];
    // 22.05 itself refuses to change shards into GPUs.
    if slurm >= Slurm::V24_11 {
        changes.insert(1, ("gres=gpu:l40s:1", "gpu:l40s:1"));
    }
    for (change, tres) in changes {
        update(&cluster, job, change)?
            .ok()
            .with_context(|| change.to_string())?;
        assert_eq!(
            cluster.job_field(job, "TresPerNode")?,
            Some(format!("{mark}{tres}")),
            "{change}"
        );
        // Its prolog will ask slurmctld what it really got.
        assert_eq!(
            tag(&cluster, job)?.as_deref(),
            Some("softmig=1:ask"),
            "{change}"
        );
    }
    cluster
        .run("root", &["scontrol", "release", &job.to_string()])?
        .ok()?;
    cluster.wait_job(job, "RUNNING")?;
    cluster.wait_for("the job's conf", || {
        Ok(node
            .exists(format!("/var/run/softmig/{job}.conf"))?
            .then_some(()))
    })?;
    let conf = node
        .read(format!("/var/run/softmig/{job}.conf"))?
        .context("no conf")?;
    assert!(
        conf.starts_with("CUDA_DEVICE_MEMORY_LIMIT=22732M\n"),
        "{conf}"
    );
    Ok(())
}

fn a_slice_stays_on_one_node_whatever_a_change_allows(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).nodes(2).start()?;
    let job = cluster
        .user("alice")
        .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "sleep 100")?;
    update(&cluster, job, "numnodes=1-2")?.ok()?;
    cluster
        .run("root", &["scontrol", "release", &job.to_string()])?
        .ok()?;
    cluster.wait_job(job, "RUNNING")?;
    assert_eq!(cluster.job_field(job, "NumNodes")?.as_deref(), Some("1"));
    Ok(())
}

/// Slurm's own word, without softmig: it changes no GRES of a job that runs.
fn shards_of_a_running_job_stay(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let job = cluster.user("alice").allocate(&["--gres=shard:l40s:2"])?;
    let before = cluster.job_field(job, "TresPerNode")?;
    for change in ["gres=shard:l40s:1", "gres=shard:l40s:4", "gres="] {
        let said = update(&cluster, job, change)?.refused()?;
        assert!(
            said.contains("Job is no longer pending execution"),
            "{said}"
        );
        assert_eq!(cluster.job_field(job, "TresPerNode")?, before, "{change}");
    }
    Ok(())
}

fn a_split_array_can_be_changed_as_a_whole(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let user = cluster.user("alice");
    let array = user.sbatch(&["--hold", "--array=0-2", "--gres=gpu:l40s.4:1"], "true")?;
    let change = |job: String, change: &str| {
        user.run(&["scontrol", "update", &format!("jobid={job}"), change])?
            .ok()
    };
    change(format!("{array}_1"), "name=x")?;
    change(array.to_string(), "gres=gpu:l40s.2:1")?;
    let shown = user
        .run(&["scontrol", "-o", "show", "job", &array.to_string()])?
        .ok()?;
    // Slurm itself changes the GPUs of the first task only; what each task has and what its tag says agree.
    let mut changed = 0;
    for task in shown.lines() {
        let tag = if task.contains("shard:l40s:2") {
            changed += 1;
            "softmig=1:ask"
        } else {
            "softmig=1:l40s:1/4:11366:hard"
        };
        assert!(task.contains(tag), "{task}");
    }
    assert!(changed > 0, "{shown}");
    Ok(())
}

fn nothing_a_user_writes_looks_like_a_line_of_the_log(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let job = quarter(&cluster)?;
    let forged = "gres=gpu:l40s.2:1,x\n[2030-01-01T00:00:00] lua: softmig: FORGED \u{1b}[31m";
    update(&cluster, job, forged)?;
    let log = cluster.slurmctld_log()?;
    let lines = log.lines().filter(|line| line.contains("softmig: FORGED"));
    for line in lines {
        assert!(line.contains("job_modify"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
    Ok(())
}

fn a_change_that_fails_half_way_lifts_no_limit(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).start()?;
    let node = cluster.node(0);
    let mut checked = 0;
    for (larger, second) in [
        ("gres=gpu:l40s:1", "numcpus=9999"),
        ("gres=gpu:l40s.2:1", "numcpus=9999"),
        ("gres=gpu:l40s.2:1", "reservationname=none_such"),
        ("gres=gpu:l40s.2:1", "dependency=afterok:x"),
        ("gres=gpu:l40s.2:1", "licenses=none_such"),
        ("gres=gpu:l40s:1", "nice=-1000"),
    ] {
        let job = cluster
            .user("alice")
            .sbatch(&["--hold", "--gres=gpu:l40s.4:1"], "sleep 100")?;
        let change = [
            "scontrol",
            "update",
            &format!("jobid={job}"),
            larger,
            second,
        ];
        cluster.user("alice").run(&change)?;
        let released = cluster.run("root", &["scontrol", "release", &job.to_string()])?;
        let tres = cluster.job_field(job, "TresPerNode")?.context("no TRES")?;
        // This test passes over jobs that Slurm changed, or that can never run.
        if !tres.ends_with("shard:l40s:1") || !released.success() {
            cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
            continue;
        }
        cluster.wait_job(job, "RUNNING")?;
        let conf = cluster.wait_for("the job's conf", || {
            node.read(format!("/var/run/softmig/{job}.conf"))
        })?;
        assert!(
            conf.starts_with("CUDA_DEVICE_MEMORY_LIMIT=11366M\n"),
            "{larger} {second}: {conf}"
        );
        cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
        checked += 1;
    }
    assert!(checked > 0, "no change failed half way");
    Ok(())
}

fn a_change_that_does_not_ask_for_a_slice_is_refused(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).nodes(2).start()?;
    let job = quarter(&cluster)?;
    let before = record(&cluster, job)?;
    for (change, code) in [
        ("gres=gpu:l40s.3:1", "SLICE_SIZE"),
        ("gres=shard:l40s:9", "RAW_SHARD"),
        ("gres=shard:4", "RAW_SHARD"),
    ] {
        let refusal = update(&cluster, job, change)?
            .refused()
            .with_context(|| change.to_string())?;
        if slurm >= Slurm::V24_11 {
            assert!(refusal.contains(code), "{refusal}");
        }
        assert!(
            cluster.slurmctld_log()?.contains(&format!("[{code}]")),
            "{change}"
        );
    }
    assert_eq!(record(&cluster, job)?, before);
    Ok(())
}
