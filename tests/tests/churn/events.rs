//! The effect of an event, and its undoing.

use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::churn::deck::Event;
use crate::churn::site::Site;

/// An effect to undo on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    Resume(usize),
    Slurmd(usize),
    Monitor(usize),
    Run(usize),
    Limits(usize),
    Log(usize),
}

/// Bytes until no more fit.
const FILL: &str = "cat /dev/zero 2>/dev/null >";
const RUN: &str = "/run/screen/S-alice/full";
const LIMITS: &str = "/run/softmig/full";
const LOG: &str = "/var/log/softmig/full";

impl Site {
    /// Makes good what has lasted until this step.
    pub fn undo(&mut self, step: usize) -> Result<()> {
        let due: Vec<_> = self.undo.extract_if(.., |(at, _)| *at <= step).collect();
        for (_, undo) in due {
            match undo {
                Undo::Resume(node) => self.update(node, "state=resume")?,
                Undo::Slurmd(node) => self.cluster.start_slurmd(self.node(node))?,
                Undo::Monitor(node) => self.start_monitor(node)?,
                Undo::Run(node) => self.remove(node, RUN)?,
                Undo::Limits(node) => self.remove(node, LIMITS)?,
                Undo::Log(node) => self.remove(node, LOG)?,
            }
        }
        Ok(())
    }

    /// Lets an event happen; where it lasts, for some jobs.
    pub fn meet(&mut self, event: Event, step: usize, rng: &mut fastrand::Rng) -> Result<()> {
        let node = rng.usize(..self.cluster.nodes().len());
        let undo = match event {
            Event::Cancel => {
                let quick = rng.bool();
                let options: &[&str] = if quick { &["--signal=KILL"] } else { &[] };
                return self.hit_a_job(event, &[&["scancel"], options].concat(), None, rng);
            }
            Event::Requeue => {
                return self.hit_a_job(event, &["scontrol", "requeue"], Some("RUNNING"), rng);
            }
            Event::KillSlurmctld => {
                self.wait_for_saved_jobs()?;
                self.cluster.kill_slurmctld()?;
                std::thread::sleep(Duration::from_millis(rng.u64(0..400)));
                self.cluster.start_slurmctld()?;
                self.count(event);
                return Ok(());
            }
            Event::Drain | Event::Down => Undo::Resume(node),
            Event::KillSlurmd => Undo::Slurmd(node),
            Event::KillMonitor => Undo::Monitor(node),
            Event::FullRun => Undo::Run(node),
            Event::FullLimits => Undo::Limits(node),
            Event::FullLog => Undo::Log(node),
        };
        // One that lasts on this node lasts longer.
        let lasts = self.undo.iter().position(|(_, other)| *other == undo);
        let until = step + rng.usize(2..12);
        self.count(event);
        if let Some(at) = lasts {
            self.undo[at].0 = until;
            return Ok(());
        }
        self.undo.push((until, undo));
        match event {
            Event::Drain => self.update(node, "state=drain"),
            Event::Down => self.update(node, "state=down"),
            Event::KillSlurmd => self.cluster.kill_slurmd(self.node(node)),
            Event::KillMonitor => match &mut self.monitors[node] {
                Some(monitor) => monitor.kill(),
                None => Ok(()),
            },
            Event::FullRun => self.fill(node, "alice", RUN),
            Event::FullLimits => self.fill(node, "root", LIMITS),
            Event::FullLog => self.fill(node, "root", LOG),
            Event::Cancel | Event::Requeue | Event::KillSlurmctld => Ok(()),
        }
    }

    /// Waits until slurmctld has saved the last job. It does so up to five seconds late, and gives the numbers of jobs that it
    /// forgot to new ones: while both run, Slurm itself takes them for one job, and ends only one of them.
    fn wait_for_saved_jobs(&self) -> Result<()> {
        let file = self.cluster.path("/cluster/state/job_state")?;
        let now = SystemTime::now();
        self.cluster.wait_until("slurmctld saves its jobs", || {
            Ok(file.metadata()?.modified()? > now)
        })
    }

    fn count(&mut self, event: Event) {
        *self.events.entry(event).or_default() += 1;
    }

    /// Does this to a job that is drawn of those in such a state. It may be over before.
    fn hit_a_job(
        &mut self,
        event: Event,
        words: &[&str],
        state: Option<&str>,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let mut jobs = self.jobs()?;
        jobs.retain(|(_, is)| state.is_none_or(|state| is.starts_with(state)));
        if jobs.is_empty() {
            return Ok(());
        }
        let (id, _) = &jobs[rng.usize(..jobs.len())];
        if self
            .cluster
            .run("root", &[words, &[id]].concat())?
            .success()
        {
            self.count(event);
        }
        Ok(())
    }

    fn update(&self, node: usize, state: &str) -> Result<()> {
        let name = format!("nodename={}", self.node(node).name());
        let words = ["scontrol", "update", &name, state, "reason=churn"];
        // A node that is idle needs no `resume`, which Slurm calls an error.
        self.cluster.run("root", &words).map(drop)
    }

    fn fill(&self, node: usize, user: &str, file: &str) -> Result<()> {
        // Jobs that end give room back, so that only this one writer has to find none.
        let line = format!("! {FILL} {file}");
        self.node(node)
            .command(user, &["sh", "-c", &line])
            .output()?
            .ok()
            .map(drop)
    }

    fn remove(&self, node: usize, file: &str) -> Result<()> {
        self.node(node)
            .run_as_root(&["rm", "-f", file])?
            .ok()
            .map(drop)
    }
}
