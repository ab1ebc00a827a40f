//! The test cluster itself: it comes up, runs jobs, and leaves nothing behind.

use anyhow::Result;
use softmig_tests::{Cluster, Slurm, on_each_slurm};

on_each_slurm!(a_batch_job_runs);

fn a_batch_job_runs(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(&[], "id -un; pwd; hostname; echo $SLURMD_NODENAME")?;
    cluster.wait_job(job, "COMPLETED")?;
    let expected = format!("alice\n/home/alice\nsoftmig\n{}\n", cluster.node(0).name());
    assert_eq!(alice.job_output(job)?, expected);
    Ok(())
}
