//! A running Slurm cluster: its daemons, its jobs, its logs.

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::builder::Builder;
use crate::command::{Call, Output, PATIENCE};
use crate::config::{CONTROLLER_PORT, Config};
use crate::machine::Machine;
use crate::node::Node;
use crate::slurm::Slurm;
use crate::user::User;

/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Where slurmctld writes its process number.
const SLURMCTLD_PID: &str = "/cluster/run/slurmctld.pid";

/// A real Slurm cluster. Nothing of it remains once it is dropped, or once this process ends in any way.
#[derive(Debug)]
pub struct Cluster {
    slurm: Slurm,
    cgroups: bool,
    machine: Machine,
}

impl Cluster {
    /// Describes a cluster with this version of Slurm.
    pub fn builder(slurm: Slurm) -> Builder {
        Builder::new(slurm)
    }

    pub(crate) fn start(machine: Machine, config: &Config) -> Result<Cluster> {
        let cluster = Cluster {
            slurm: config.slurm,
            cgroups: config.cgroups,
            machine,
        };
        cluster.start_slurmctld()?;
        for node in cluster.nodes() {
            cluster.start_slurmd(node)?;
        }
        cluster.wait_until("every node is idle", || {
            let states = cluster.sinfo_states()?;
            Ok(states.len() == cluster.nodes().len() && states.iter().all(|state| state == "idle"))
        })?;
        Ok(cluster)
    }

    /// Its version of Slurm.
    pub fn slurm(&self) -> Slurm {
        self.slurm
    }

    /// Whether jobs are held in control groups and cannot open other jobs' GPUs.
    pub fn constrains_devices(&self) -> bool {
        self.cgroups
    }

    /// The machine it runs in.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        self.machine.nodes()
    }

    /// One node, counted from 0.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes()[index]
    }

    /// The same cluster as one of its users, `alice` or `bob`, sees it.
    pub fn user<'a>(&'a self, name: &'a str) -> User<'a> {
        User::new(self, name)
    }

    /// A command on the controller, as `root`, `alice` or `bob`, with what it reads, its environment and so on.
    pub fn command(&self, user: &str, argv: &[impl AsRef<OsStr>]) -> Call {
        self.machine.command(user, argv)
    }

    /// Runs a command on the controller to its end.
    pub fn run(&self, user: &str, argv: &[impl AsRef<OsStr>]) -> Result<Output> {
        self.command(user, argv).output()
    }

    /// Where a path of the controller is found from here. `/run` and `/tmp` of the nodes are others: [`Node::path`].
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.machine.path(path)
    }

    /// The text of a file of the controller, or nothing when it is not there.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        self.machine.read(path)
    }

    /// Writes a file for the controller and all nodes: mode 0755 if it begins with `#!`, else 0644.
    pub fn write(&self, path: impl AsRef<Path>, contents: &str) -> Result<()> {
        self.machine.write(path, contents)
    }

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

    /// What `sinfo` says of each node.
    pub fn sinfo_states(&self) -> Result<Vec<String>> {
        let said = self
            .run("root", &["sinfo", "--noheader", "--Node", "--format=%T"])?
            .ok()?;
        Ok(said.lines().map(|line| line.trim().to_owned()).collect())
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
        self.wait_until("slurmctld is gone", || self.is_gone(&pid))
    }

    /// The process a pid file names, if it is there.
    fn alive(&self, pid_file: &str) -> Result<Option<String>> {
        let text = self.read(pid_file)?.unwrap_or_default();
        let pid = text.trim();
        Ok(if pid.is_empty() || self.is_gone(pid)? {
            None
        } else {
            Some(pid.into())
        })
    }

    fn is_gone(&self, pid: &str) -> Result<bool> {
        Ok(!self.path(format!("/proc/{pid}/stat"))?.exists())
    }

    /// Whether slurmctld takes requests.
    fn answers(&self) -> Result<bool> {
        Ok(self
            .run("root", &["scontrol", "ping"])?
            .stdout
            .contains(" is UP"))
    }

    /// Whether somebody listens on this port of the cluster's own network.
    fn listens(&self, port: u16) -> Result<bool> {
        let wanted = format!(":{port:04X}");
        let table = format!("/proc/{}/net/tcp", self.machine.init());
        let table = std::fs::read_to_string(&table).with_context(|| format!("reading {table}"))?;
        Ok(table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&wanted))
                && fields.nth(1) == Some("0A")
        }))
    }

    /// A job's state, such as `PENDING`; nothing when slurmctld does not know it.
    pub fn job_state(&self, job: impl Display) -> Result<Option<String>> {
        self.job_field(job, "JobState")
    }

    /// One field of what `scontrol -d show job` says of a job. A value ends at the next blank.
    pub fn job_field(&self, job: impl Display, field: &str) -> Result<Option<String>> {
        let said = self.run(
            "root",
            &["scontrol", "-d", "-o", "show", "job", &job.to_string()],
        )?;
        if !said.success() && said.stderr.contains("Invalid job id") {
            return Ok(None);
        }
        let wanted = format!("{field}=");
        let said = said.ok()?;
        let mut words = said.split_whitespace();
        Ok(words
            .find_map(|word| word.strip_prefix(&wanted))
            .map(str::to_owned))
    }

    /// Waits until a job is in this state.
    pub fn wait_job(&self, job: impl Display, state: &str) -> Result<()> {
        let mut seen = None;
        let waited = self.wait_until(&format!("job {job} is {state}"), || {
            seen = self.job_state(&job)?;
            // Nothing leads out of these, so there is nothing more to wait for.
            let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"];
            match seen.as_deref() {
                Some(now) if now == state => Ok(true),
                Some(now) if over.contains(&now) => bail!("job {job} is {now}, not {state}"),
                _ => Ok(false),
            }
        });
        waited.with_context(|| format!("job {job} was last seen as {seen:?}"))
    }

    /// Waits for something to become true, looking every 20 ms, and fails naming `what` after a minute.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait_for(what, PATIENCE, || Ok(holds()?.then_some(())))
    }

    /// Waits for something to be there, and fails naming `what` after `timeout`.
    pub fn wait_for<T>(
        &self,
        what: &str,
        timeout: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            match look() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => {
                    return Err(self.with_logs(&format!("waited {timeout:?} in vain: {what}")));
                }
                Err(error) => {
                    return Err(self.with_logs(&format!("while waiting: {what}: {error:#}")));
                }
            }
        }
    }

    /// All that slurmctld has logged.
    pub fn slurmctld_log(&self) -> Result<String> {
        Ok(self.read("/cluster/log/slurmctld.log")?.unwrap_or_default())
    }

    /// All that a node's slurmd has logged.
    pub fn slurmd_log(&self, node: &Node) -> Result<String> {
        Ok(self
            .read(format!("/cluster/log/slurmd.{}.log", node.name()))?
            .unwrap_or_default())
    }

    /// The last lines of every daemon's log.
    pub fn log_tails(&self) -> String {
        let mut logs = vec![("slurmctld".to_owned(), self.slurmctld_log())];
        logs.extend(
            self.nodes()
                .iter()
                .map(|node| (node.name().to_owned(), self.slurmd_log(node))),
        );
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        logs.into_iter()
            .map(|(name, text)| match text {
                Ok(text) => format!("--- {name}\n{}\n", tail(&text)),
                Err(error) => format!("--- {name}: {error:#}\n"),
            })
            .collect()
    }

    fn with_logs(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("{what}\n{}", self.log_tails())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tails());
        }
    }
}
