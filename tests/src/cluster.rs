//! A running Slurm cluster: its nodes, its users, its files, its logs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::accounting::Accounting;
use crate::builder::Builder;
use crate::command::{Call, Output};
use crate::config::Config;
use crate::each_slurm;
use crate::machine::Machine;
use crate::node::Node;
use crate::slurm::Slurm;
use crate::user::User;

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

    pub(crate) fn start(
        machine: Machine,
        config: &Config,
        accounting: Option<&Accounting>,
    ) -> Result<Cluster> {
        let cluster = Cluster {
            slurm: config.slurm,
            cgroups: config.cgroups,
            machine,
        };
        if let Some(accounting) = accounting {
            accounting.start(&cluster)?;
        }
        cluster.start_slurmctld()?;
        if accounting.is_some() {
            cluster.wait_for_registration()?;
        }
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
        if let Ok(Some(log)) = self.read("/cluster/log/slurmdbd.log") {
            logs.push(("slurmdbd".into(), Ok(log)));
        }
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

    pub(crate) fn with_logs(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!("{what}\n{}", self.log_tails())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let logs = self.log_tails();
        match std::thread::panicking() {
            true => eprintln!("{logs}"),
            // The test may yet end with an error: a `?` drops the cluster first.
            false => each_slurm::keep_logs(&logs),
        }
    }
}
