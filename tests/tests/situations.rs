//! Everyday situations at the sites whose systems softmig takes over, on Slurm as `softmig config` sets it up, with a real
//! slurmdbd.

mod classes;
mod courses;
mod kept;
mod mig;

use anyhow::{Context, Result};
use softmig_tests::builder::unique_tag;
use softmig_tests::site::{NODE, site, site_with_accounts};
use softmig_tests::{Accounting, Cluster, Gpus, Slurm};

/// One node that has the GPUs of `kinds`. The policy says that it has `gpus`.
fn cluster(slurm: Slurm, policy: &str, gpus: &str, kinds: &[Gpus]) -> Result<Cluster> {
    let tag = unique_tag();
    let policy =
        format!("{policy}\n[[nodes]]\nnames = \"{tag}n1\"\ngpus = {gpus}\nslurm = \"{NODE}\"\n");
    let accounts = Accounting::new()
        .account("teaching", &["alice", "bob", "dave", "erin", "frank"])
        .account("research", &["carol"]);
    let builder = site(slurm, &tag, &policy)?.gpus(kinds.iter().cloned());
    site_with_accounts(builder, accounts)
}

/// Submits a job that stays until it is cancelled.
fn stay(cluster: &Cluster, user: &str, options: &[&str]) -> Result<u32> {
    // With a time limit: Slurm starts nothing on a node where another job is expected in that time.
    let options = [options, &["--time=30"]].concat();
    cluster
        .user(user)
        .sbatch(&options, "sleep 600")
        .with_context(|| format!("{user}: {options:?}"))
}

/// Submits one and waits until it runs.
fn run(cluster: &Cluster, user: &str, gres: &str) -> Result<u32> {
    let job = stay(cluster, user, &[gres])?;
    cluster.wait_job(job, "RUNNING")?;
    Ok(job)
}

/// Ends a job and waits until its GPU is free.
fn end(cluster: &Cluster, job: u32) -> Result<()> {
    cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    cluster.wait_job(job, "CANCELLED")
}

/// How many of these jobs run.
fn running(cluster: &Cluster, jobs: &[u32]) -> Result<usize> {
    let mut running = 0;
    for job in jobs {
        running += usize::from(cluster.job_state(job)?.as_deref() == Some("RUNNING"));
    }
    Ok(running)
}

/// The message to a user whose job is refused.
fn refused(cluster: &Cluster, user: &str, options: &[&str]) -> Result<String> {
    cluster.user(user).try_sbatch(options, "true")?.refused()
}
