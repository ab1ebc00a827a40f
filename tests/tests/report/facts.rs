//! Facts about Slurm that the line and the summary rely on.

use anyhow::Result;
use softmig_tests::{Accounting, Cluster, Slurm, on_each_slurm};

on_each_slurm!(
    a_task_epilog_reaches_the_jobs_output_by_stderr_alone,
    slurmctld_takes_no_comment_of_a_job_that_has_ended,
);

const SPEAKS: &str = "#!/bin/sh\necho out\necho err >&2\n";

fn a_task_epilog_reaches_the_jobs_output_by_stderr_alone(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm)
        .slurm_conf("TaskEpilog=/etc/slurm/speaks.sh")
        .file("/etc/slurm/speaks.sh", SPEAKS)
        .start()?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(&[], "echo words")?;
    cluster.wait_job(job, "COMPLETED")?;
    assert_eq!(alice.job_output(job)?, "words\nerr\n");
    let said = alice.srun(&["echo", "words"])?;
    assert_eq!((&*said.stdout, &*said.stderr), ("words\n", "err\n"));
    Ok(())
}

/// Neither in the node's epilog nor in slurmctld's, and by sacctmgr only after that.
fn slurmctld_takes_no_comment_of_a_job_that_has_ended(slurm: Slurm) -> Result<()> {
    let update = |name: &str| {
        format!(
            "#!/bin/sh\nscontrol update jobid=$SLURM_JOB_ID admincomment=Words >/cluster/log/{name} 2>&1\n"
        )
    };
    let cluster = Cluster::builder(slurm)
        .accounting(Accounting::new())
        .slurm_conf("Epilog=/etc/slurm/epilog.sh")
        .slurm_conf("EpilogSlurmctld=/etc/slurm/epilog_ctld.sh")
        .file("/etc/slurm/epilog.sh", update("epilog"))
        .file("/etc/slurm/epilog_ctld.sh", update("epilog_ctld"))
        .start()?;
    let job = cluster.user("alice").sbatch(&[], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    for name in ["epilog", "epilog_ctld"] {
        let said = cluster.read(format!("/cluster/log/{name}"))?;
        let said = said.unwrap_or_default();
        assert!(said.contains("Job has already finished"), "{name}: {said}");
    }
    let set = format!("modify job where jobid={job} set AdminComment=Words");
    let sacct = [
        "sacct",
        "-X",
        "-n",
        "-P",
        "--format=AdminComment",
        "--allusers",
    ];
    let mut there = String::new();
    cluster.wait_until("slurmdbd knows the job", || {
        // Before that, nothing is modified.
        drop(cluster.try_sacctmgr(&set)?);
        there = cluster.run("root", &sacct)?.ok()?;
        Ok(!there.trim().is_empty())
    })?;
    let expected = match slurm {
        Slurm::V22_05 => "words",
        Slurm::V24_11 | Slurm::V26_05 => "Words",
    };
    assert_eq!(there.trim(), expected);
    Ok(())
}
