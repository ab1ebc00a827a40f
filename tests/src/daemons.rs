//! The daemons of a cluster: started, stopped and killed as an administrator or an accident would.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::command::PATIENCE;
use crate::config::CONTROLLER_PORT;
use crate::node::Node;

/// Where slurmctld writes its process number.
const SLURMCTLD_PID: &str = "/cluster/run/slurmctld.pid";

impl Cluster {
    /// Starts slurmctld and waits until it takes requests.
    pub fn start_slurmctld(&self) -> Result<()> {
        let file = self.path(SLURMCTLD_PID)?;
        // One that was killed leaves its own, and would be taken for one that died while it started.
        let _ = std::fs::remove_file(&file);
        self.run("root", &["slurmctld"])?
            .ok()
            .context("starting slurmctld")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // In this order: a number that is written names a process that is there, or that died.
            let written = file.metadata().is_ok_and(|file| file.len() > 0);
            let alive = self.slurmctld_pid()?.is_some();
            // It may listen long before it answers (24.11), and die in between.
            if alive && self.listens(CONTROLLER_PORT)? && self.answers()? {
                return Ok(());
            }
            if (written && !alive) || Instant::now() > deadline {
                return Err(self.with_logs("slurmctld did not come up"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills slurmctld without giving it time to save anything.
    pub fn kill_slurmctld(&self) -> Result<()> {
        self.end_slurmctld("KILL")
    }

    /// Stops slurmctld as an administrator does.
    pub fn stop_slurmctld(&self) -> Result<()> {
        self.end_slurmctld("TERM")
    }

    /// Stops slurmctld and starts it again.
    pub fn restart_slurmctld(&self) -> Result<()> {
        self.stop_slurmctld()?;
        self.start_slurmctld()
    }

    /// Has slurmctld and the nodes read their files again.
    pub fn reconfigure(&self) -> Result<()> {
        self.run("root", &["scontrol", "reconfigure"])?
            .ok()
            .context("scontrol reconfigure")?;
        Ok(())
    }

    /// Starts a node's slurmd.
    pub fn start_slurmd(&self, node: &Node) -> Result<()> {
        let started = node.run_as_root(&["slurmd", "-N", node.name()])?;
        started
            .ok()
            .with_context(|| format!("starting slurmd of {}", node.name()))?;
        Ok(())
    }

    /// Kills a node's slurmd; its jobs run on.
    pub fn kill_slurmd(&self, node: &Node) -> Result<()> {
        let file = format!("/cluster/run/slurmd.{}.pid", node.name());
        let pid = self
            .alive(&file)?
            .with_context(|| format!("{} has no slurmd", node.name()))?;
        self.run("root", &["kill", "-KILL", &pid])?.ok()?;
        self.wait_until("slurmd is gone", || Ok(self.alive(&file)?.is_none()))
    }

    /// slurmctld's process, as numbered in the machine.
    pub fn slurmctld_pid(&self) -> Result<Option<String>> {
        self.alive(SLURMCTLD_PID)
    }

    fn end_slurmctld(&self, signal: &str) -> Result<()> {
        let Some(pid) = self.slurmctld_pid()? else {
            bail!("slurmctld does not run");
        };
        self.run("root", &["kill", &format!("-{signal}"), &pid])?
            .ok()?;
        // Slurm's own: one that is told to end within a second of its start may wait for slurmdbd without end.
        let mut patience = Some(Instant::now() + Duration::from_secs(60));
        self.wait_until("slurmctld is gone", || {
            if patience.is_some_and(|until| Instant::now() > until) {
                patience = None;
                self.run("root", &["kill", "-KILL", &pid])?;
            }
            self.is_gone(&pid)
        })
    }

    /// The process a pid file names, if it is there.
    pub(crate) fn alive(&self, pid_file: &str) -> Result<Option<String>> {
        let text = self.read(pid_file)?.unwrap_or_default();
        let pid = text.trim();
        Ok(if pid.is_empty() || self.is_gone(pid)? {
            None
        } else {
            Some(pid.into())
        })
    }

    pub(crate) fn is_gone(&self, pid: &str) -> Result<bool> {
        Ok(!self.path(format!("/proc/{pid}/stat"))?.exists())
    }

    /// Whether slurmctld takes requests.
    fn answers(&self) -> Result<bool> {
        Ok(self
            .run("root", &["scontrol", "ping"])?
            .stdout
            .contains(" is UP"))
    }

    /// Whether a process listens on this port of the cluster's own network.
    pub(crate) fn listens(&self, port: u16) -> Result<bool> {
        let wanted = format!(":{port:04X}");
        let table = format!("/proc/{}/net/tcp", self.machine().init());
        let table = std::fs::read_to_string(&table).with_context(|| format!("reading {table}"))?;
        Ok(table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&wanted))
                && fields.nth(1) == Some("0A")
        }))
    }
}
