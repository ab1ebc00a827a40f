//! A cluster whose nodes have a GPU, the fake driver and the monitor each, for jobs that share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use softmig_fake_node::{Description, Node as Driver};
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::enforced;
use softmig_tests::{Builder, Client, Cluster, Gpus, Slurm};

/// The monitor.
pub const MONITOR: &str = "/usr/libexec/softmig-monitor";
const SOCKET: &str = "/var/run/softmig/arbiter.sock";

/// A quarter of a GPU.
pub const QUARTER: &str = "gpu:l40s.4:1";

/// The cluster.
pub struct Site {
    pub cluster: Cluster,
    /// Each node's GPU, from outside.
    pub drivers: Vec<Driver>,
    monitors: Vec<Mutex<Client>>,
    /// How a monitor is started.
    monitor: Vec<String>,
}

impl Site {
    /// Starts this number of nodes. `build` changes the cluster, `describe` the GPU of each node, and `monitor` is the
    /// command that starts the monitor.
    pub fn start(
        nodes: usize,
        build: impl FnOnce(Builder) -> Builder,
        describe: impl Fn(usize, Description) -> Description,
        monitor: &[&str],
    ) -> Result<Site> {
        let builder = enforced(Slurm::V22_05)
            .programs()
            .nodes(nodes)
            .gpus([Gpus::l40s(1)]);
        let cluster = build(builder).start()?;
        let (mut drivers, mut monitors) = (Vec::new(), Vec::new());
        for (number, node) in cluster.nodes().iter().enumerate() {
            drivers.push(node.start_driver_as(|description| describe(number, description))?);
            monitors.push(Mutex::new(node.command("root", monitor).spawn()?));
            cluster.wait_until("an arbiter", || node.exists(SOCKET))?;
        }
        Ok(Site {
            cluster,
            drivers,
            monitors,
            monitor: monitor.iter().map(|&word| word.into()).collect(),
        })
    }

    /// A node's monitor.
    pub fn monitor(&self, node: usize) -> MutexGuard<'_, Client> {
        let monitor = self.monitors[node].lock();
        monitor.unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a monitor in the place of one that has ended.
    pub fn restart_monitor(&self, node: usize) -> Result<()> {
        let there = self.cluster.node(node);
        *self.monitor(node) = there.command("root", &self.monitor).spawn()?;
        Ok(())
    }

    /// Starts a job on a node.
    pub fn start_job(&self, user: &str, node: usize, gres: &str, script: &str) -> Result<u32> {
        let name = self.cluster.node(node).name();
        let options = ["--gres", gres, "--nodelist", name];
        let script = format!("cd {FOLDER}\nexport SOFTMIG_LOG_LEVEL=2\n{script}");
        self.cluster.user(user).sbatch(&options, &script)
    }

    /// The output of a job, which has to end well.
    pub fn end_of(&self, user: &str, job: u32) -> Result<String> {
        let ended = self.cluster.wait_job(job, "COMPLETED");
        let said = self.cluster.user(user).job_output(job)?;
        ended.with_context(|| said.clone())?;
        println!("{said}");
        Ok(said)
    }

    /// Starts a job that launches kernels of 100 us until it is cancelled; its number and that of its process.
    pub fn start_greedy(&self, user: &str, node: usize, gres: &str) -> Result<(u32, u32)> {
        self.start_launching(user, node, gres, "./paced 100000 1000000 async")
    }

    /// Starts a job that runs a command until it is cancelled; its number and that of its process, which has launched something.
    pub fn start_launching(
        &self,
        user: &str,
        node: usize,
        gres: &str,
        command: &str,
    ) -> Result<(u32, u32)> {
        let script = format!("{command} & echo \"begun: $!\"\nwait");
        let job = self.start_job(user, node, gres, &script)?;
        let pid = self.cluster.wait_for("its work", || {
            let said = self.cluster.user(user).job_output(job)?;
            let pid = said.lines().find_map(|line| line.strip_prefix("begun: "));
            let pid = pid.map(str::parse).transpose()?;
            let history = self.drivers[node].history(0)?;
            Ok(pid.filter(|pid| {
                history
                    .iter()
                    .any(|one| one.own_pid == *pid && one.busy > 0)
            }))
        })?;
        Ok((job, pid))
    }

    /// Cancels a job.
    pub fn cancel(&self, job: u32) -> Result<()> {
        let job = job.to_string();
        self.cluster.run("root", &["scancel", &job])?.ok()?;
        Ok(())
    }
}
