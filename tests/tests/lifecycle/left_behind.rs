//! Limits of a job whose epilog was killed.

use crate::lifecycle::files::{path, wait_for_start};
use anyhow::Result;
use softmig_tests::softmig::installed;
use softmig_tests::{Node, Slurm, on_each_slurm};
use std::time::Duration;

on_each_slurm!(limits_of_a_killed_epilog_go_with_the_next_one);

const EPILOG: &str = "/usr/libexec/softmig-epilog";

/// Makes a job's conf as old as one of an hour ago.
fn age(node: &Node, job: u32) -> Result<()> {
    let touch = ["touch", "--date", "1 hour ago", &path(job)];
    node.run_as_root(&touch)?.ok().map(drop)
}

/// Whether `softmig check` says that Slurm does not know the job.
fn is_told(node: &Node, job: u32) -> Result<bool> {
    let said = node.run_as_root(&["softmig", "check", "--node"])?.stdout;
    let line = said.lines().find(|line| line.contains(" JOB_ENDED "));
    let numbers = line.map(|line| line.split(|letter: char| !letter.is_ascii_digit()));
    Ok(numbers.is_some_and(|mut numbers| numbers.any(|number| number == job.to_string())))
}

fn limits_of_a_killed_epilog_go_with_the_next_one(slurm: Slurm) -> Result<()> {
    let cluster = installed(slurm).slurm_conf("MinJobAge=2").start()?;
    let node = cluster.node(0);
    let alice = cluster.user("alice");
    let root =
        |script: &str| -> Result<()> { node.run_as_root(&["bash", "-c", script])?.ok().map(drop) };
    root(&format!(
        "mv {EPILOG} {EPILOG}.own && printf '#!/bin/sh\\nkill -9 $$\\n' >{EPILOG} && chmod 755 {EPILOG}"
    ))?;
    let left = alice.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 2")?;
    wait_for_start(&cluster, node, left)?;
    cluster.wait_job(left, "COMPLETED")?;
    cluster.wait_until("a drained node", || {
        let states = cluster.sinfo_states()?;
        Ok(states.iter().any(|state| state.starts_with("drain")))
    })?;
    root(&format!("mv {EPILOG}.own {EPILOG}"))?;
    let name = format!("nodename={}", node.name());
    let resume = ["scontrol", "update", &name, "state=resume"];
    cluster.run("root", &resume)?.ok()?;
    age(node, left)?;

    // A job that runs, and whose conf is as old.
    let runs = alice.sbatch(&["--gres=gpu:l40s.4:1"], "sleep 600")?;
    wait_for_start(&cluster, node, runs)?;
    age(node, runs)?;
    let next = || -> Result<()> {
        let job = alice.sbatch(&[], "true")?;
        cluster.wait_job(job, "COMPLETED")
    };
    // slurmctld looks for old jobs once a minute.
    cluster.wait_for("slurmctld to forget", || {
        std::thread::sleep(Duration::from_secs(1));
        let shown = cluster.run("root", &["scontrol", "show", "job", &left.to_string()])?;
        Ok((!shown.success()).then_some(()))
    })?;
    assert!(node.exists(path(left))?);
    assert!(is_told(node, left)?);
    assert!(!is_told(node, runs)?);
    next()?;
    cluster.wait_until("the files are gone", || Ok(!node.exists(path(left))?))?;
    assert!(!is_told(node, left)?);
    assert!(!node.exists(format!("/var/run/softmig/uid/2001/{left}"))?);
    assert!(node.exists(path(runs))?);
    assert!(node.exists(format!("/var/run/softmig/uid/2001/{runs}"))?);
    Ok(())
}
