//! A cluster as one of its users sees it.

use std::ffi::OsStr;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::command::{Call, Output};

/// A user of a cluster. Commands run in the user's home, which all nodes share.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    cluster: &'a Cluster,
    name: &'a str,
}

impl<'a> User<'a> {
    pub(crate) fn new(cluster: &'a Cluster, name: &'a str) -> User<'a> {
        User { cluster, name }
    }

    /// The cluster.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// The user's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// A command on the controller.
    pub fn command(&self, argv: &[impl AsRef<OsStr>]) -> Call {
        self.cluster.command(self.name, argv)
    }

    /// Runs a command to its end.
    pub fn run(&self, argv: &[impl AsRef<OsStr>]) -> Result<Output> {
        self.command(argv).output()
    }

    /// Submits a script, with or without a `#!` line, and returns the job's id.
    pub fn sbatch(&self, options: &[&str], script: &str) -> Result<u32> {
        let said = self.try_sbatch(options, script)?.ok().context("sbatch")?;
        // A policy may speak before the number, and a federation after it.
        let last = said.lines().last().unwrap_or_default();
        last.split(';')
            .next()
            .unwrap_or_default()
            .parse()
            .with_context(|| format!("sbatch said {said:?}"))
    }

    /// Submits a script that may be refused.
    pub fn try_sbatch(&self, options: &[&str], script: &str) -> Result<Output> {
        let argv = [&["sbatch", "--parsable"], options].concat();
        let script = match script.starts_with("#!") {
            true => script.to_owned(),
            false => format!("#!/bin/bash\n{script}\n"),
        };
        self.command(&argv).stdin(script).output()
    }

    /// Runs a job to its end: `srun` with these words.
    ///
    /// slurmctld tells a job's end to the port where its srun listened. The next srun may have that port by then, and ends its own job for
    /// it (seen in 24.11): such a job is run again.
    pub fn srun(&self, words: &[&str]) -> Result<Output> {
        const TRIES: usize = 3;
        let run = || self.run(&[&["srun"], words].concat());
        for _ in 1..TRIES {
            let output = run()?;
            if !output.stderr.contains("srun: Force Terminated") {
                return Ok(output);
            }
        }
        run()
    }

    /// Takes an allocation without any process, which stays until it is cancelled, and returns the job's id once it runs.
    ///
    /// It starts at once, where a batch job waits up to a second for Slurm's next round.
    pub fn allocate(&self, options: &[&str]) -> Result<u32> {
        let mut salloc = self
            .command(&[&["salloc", "--no-shell"], options].concat())
            .spawn()?;
        let job = self.cluster.wait_for("an allocation", || {
            let ended = !salloc.runs()?;
            let said = salloc.stderr()?;
            let granted = said.split_once("Granted job allocation ");
            match granted.and_then(|(_, rest)| rest.split_once('\n')) {
                Some((id, _)) => Ok(Some(id.trim().parse::<u32>().context(said)?)),
                None if ended => bail!("{said}"),
                None => Ok(None),
            }
        })?;
        // It asks whether the nodes are ready, and slurmctld looks when it is asked. In 22.05 it asks once in three seconds.
        self.cluster.wait_job(job, "RUNNING")?;
        salloc.kill()?;
        Ok(job)
    }

    /// The text that a batch job has written to its `slurm-ID.out` so far.
    pub fn job_output(&self, job: u32) -> Result<String> {
        let path = format!("/home/{}/slurm-{job}.out", self.name);
        Ok(self.cluster.read(path)?.unwrap_or_default())
    }
}
