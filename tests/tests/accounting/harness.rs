//! The harness: slurmdbd answers, keeps jobs, and tells slurmctld of changes before a test goes on.

use anyhow::Result;
use softmig_tests::{Accounting, Cluster, Slurm, on_each_slurm};

use super::cluster;

on_each_slurm!(
    jobs_are_kept,
    a_user_without_an_account_is_refused,
    a_limit_that_is_not_enforced_refuses_no_job,
    changes_are_known_at_once,
    a_change_that_is_refused_says_why,
    jobs_run_while_slurmdbd_is_away,
    users_of_a_course_share_their_primary_group,
);

/// Waits until sacct tells this of a job.
fn wait_sacct(cluster: &Cluster, job: u32, columns: &str, expected: &str) -> Result<()> {
    let sacct = ["sacct", "--noheader", "--parsable2", "--allocations"];
    let which = [format!("--jobs={job}"), format!("--format={columns}")];
    let argv: Vec<&str> = sacct
        .into_iter()
        .chain(which.iter().map(String::as_str))
        .collect();
    cluster.wait_until(&format!("sacct says {expected}"), || {
        Ok(cluster.run("root", &argv)?.ok()?.trim() == expected)
    })
}

fn jobs_are_kept(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    let job = cluster
        .user("carol")
        .sbatch(&["--gres=shard:l40s:2"], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    let columns = "user,account,qos,state,alloctres";
    let expected = "carol|science|normal|COMPLETED|\
                    billing=1,cpu=1,gres/shard:l40s=2,gres/shard=2,mem=100M,node=1";
    wait_sacct(&cluster, job, columns, expected)
}

fn a_user_without_an_account_is_refused(slurm: Slurm) -> Result<()> {
    let accounts = Accounting::new().account("physics", &["alice"]);
    let cluster = Cluster::builder(slurm).accounting(accounts).start()?;
    let job = cluster.user("alice").sbatch(&[], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    assert_eq!(
        cluster.job_field(job, "Account")?.as_deref(),
        Some("physics")
    );
    let said = cluster.user("bob").try_sbatch(&[], "true")?.refused()?;
    assert!(said.contains("Invalid account"), "{said}");
    Ok(())
}

fn a_limit_that_is_not_enforced_refuses_no_job(slurm: Slurm) -> Result<()> {
    let accounts = Accounting::new()
        .account("physics", &["alice"])
        .enforce("")
        .tres(&[]);
    let cluster = Cluster::builder(slurm).accounting(accounts).start()?;
    let job = cluster
        .user("bob")
        .sbatch(&["--gres=shard:l40s:1"], "sleep 600")?;
    cluster.wait_job(job, "RUNNING")?;
    assert!(!super::counted(&cluster, job)?.contains("gres/"));
    Ok(())
}

fn changes_are_known_at_once(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    for number in 0..10 {
        super::class(
            &cluster,
            &format!("q{number}"),
            "MaxTRESPerUser=gres/shard=2",
            "alice",
        )?;
        let job = cluster.user("alice").sbatch(&["--hold"], "true")?;
        let qos = cluster.job_field(job, "QOS")?;
        assert_eq!(qos, Some(format!("q{number}")));
    }
    Ok(())
}

fn a_change_that_is_refused_says_why(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    let said = cluster
        .sacctmgr("modify user alice set qos=nosuch")
        .map(drop);
    let error = format!("{:#}", said.expect_err("no such QOS"));
    assert!(
        error.contains("sacctmgr modify user alice") && error.contains("bad qos 'nosuch'"),
        "{error}"
    );
    Ok(())
}

fn jobs_run_while_slurmdbd_is_away(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm).start()?;
    cluster.stop_slurmdbd()?;
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=shard:l40s:1"], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    cluster.start_slurmdbd()?;
    wait_sacct(&cluster, job, "user,state", "alice|COMPLETED")
}

fn users_of_a_course_share_their_primary_group(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    for (user, expected) in [
        ("dave", "dave dave\n"),
        ("erin", "erin course\n"),
        ("frank", "frank course\n"),
    ] {
        let said = cluster
            .user(user)
            .srun(&["sh", "-c", "echo $(id -un) $(id -gn)"])?;
        assert_eq!(said.ok()?, expected);
    }
    Ok(())
}
