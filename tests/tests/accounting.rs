//! Accounts, QOS and limits on a real slurmdbd: what Slurm does of its own.
//!
//! softmig's classes are made of what these tests show: each is a fact about Slurm that the configuration relies on.

mod limits;
mod reservations;
mod weights;

use anyhow::Result;
use softmig_tests::{Accounting, Builder, Cluster, Slurm};

/// A cluster with accounts.
fn cluster(slurm: Slurm) -> Builder {
    Cluster::builder(slurm).accounting(Accounting::new())
}

/// Submits a job that stays until it is cancelled.
fn stay(cluster: &Cluster, user: &str, options: &[&str]) -> Result<u32> {
    cluster.user(user).sbatch(options, "sleep 600")
}

/// Starts a job that stays until it is cancelled.
fn run(cluster: &Cluster, user: &str, options: &[&str]) -> Result<u32> {
    cluster.user(user).allocate(options)
}

/// Ends a job and waits until it is gone from its GPU.
fn end(cluster: &Cluster, job: u32) -> Result<()> {
    cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    cluster.wait_job(job, "CANCELLED")
}

/// Slurm's count of a running job: `cpu=1,mem=100M,...`.
fn counted(cluster: &Cluster, job: u32) -> Result<String> {
    let field = match cluster.slurm() {
        Slurm::V22_05 => "TRES",
        Slurm::V24_11 | Slurm::V26_05 => "AllocTRES",
    };
    Ok(cluster.job_field(job, field)?.unwrap_or_default())
}

/// A new QOS, which the user gets in the place of any other.
fn class(cluster: &Cluster, qos: &str, limits: &str, user: &str) -> Result<()> {
    cluster.sacctmgr(&format!("add qos {qos} {limits}"))?;
    cluster.sacctmgr(&format!(
        "modify user {user} set qos={qos} defaultqos={qos}"
    ))?;
    Ok(())
}
