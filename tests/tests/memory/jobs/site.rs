//! A cluster on whose nodes jobs and steps take device memory.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_fake_node::{Gpu, MIB, Node as Driver};
use softmig_tests::each_slurm::PerSlurm;
use softmig_tests::programs::FOLDER;
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::enforced;
use softmig_tests::{Client, Cluster, Gpus, Node, Slurm};

use crate::memory::stand::{Said, number};
use crate::memory::ways::OUT_OF_MEMORY;

/// The bytes that clients take at a time.
pub(super) const STEP: u64 = 32 * MIB;
/// The number of nodes, one for each test.
const NODES: usize = 13;

/// A cluster with one L40S on each node.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    drivers: Vec<Driver>,
}

/// The cluster with this version of Slurm.
pub(super) fn site(slurm: Slurm) -> Result<&'static Site> {
    static SITES: PerSlurm<Site> = PerSlurm::new(Site::start);
    SITES.get(slurm)
}

impl Site {
    fn start(slurm: Slurm) -> Result<Site> {
        let cluster = enforced(slurm)
            .programs()
            .nodes(NODES)
            .gpus([Gpus::l40s(1)])
            // A requeued job waits until its credentials have expired.
            .slurm_conf("AuthInfo=socket=/cluster/munge/munge.socket,cred_expire=5")
            .start()?;
        // A second group of alice's, for programs that run under it.
        let group = "echo project:x:3001:alice >>/etc/group";
        cluster.run("root", &["sh", "-c", group])?.ok()?;
        let drivers = cluster.nodes().iter().map(Node::start_driver);
        let drivers = drivers.collect::<Result<_>>()?;
        Ok(Site { cluster, drivers })
    }
}

/// A job that stays.
pub(super) struct Job {
    site: &'static Site,
    node: usize,
    user: &'static str,
    pub(super) id: u32,
    /// The memory that it may hold, in bytes.
    pub(super) limit: u64,
}

/// A step that runs.
pub(super) struct Step {
    job: &'static Site,
    client: Client,
}

impl Job {
    /// Starts a job of a quarter (1), a half (2) or all (4) of the GPU of a node.
    pub(super) fn start(slurm: Slurm, node: usize, user: &'static str, shards: u32) -> Result<Job> {
        let site = site(slurm)?;
        let gres = match shards {
            4 => "gpu:l40s:1".to_owned(),
            shards => format!("gpu:l40s.{}:1", 4 / shards),
        };
        let name = site.cluster.node(node).name();
        let options = ["--gres", &gres, "--nodelist", name, "--output=/dev/null"];
        let script = "touch $HOME/$SLURM_JOB_ID.started; exec sleep infinity";
        let id = site.cluster.user(user).sbatch(&options, script)?;
        let started = format!("/home/{user}/{id}.started");
        site.cluster.wait_until("the job's script runs", || {
            Ok(site.cluster.read(&started)?.is_some())
        })?;
        Ok(Job {
            site,
            node,
            user,
            id,
            limit: u64::from(memory_mib(shards)) * MIB,
        })
    }

    pub(super) fn node(&self) -> &'static Node {
        self.site.cluster.node(self.node)
    }

    pub(super) fn driver(&self) -> &'static Driver {
        &self.site.drivers[self.node]
    }

    /// Starts a step in the clients' folder.
    pub(super) fn begin(&self, script: &str) -> Result<Step> {
        let id = format!("--jobid={}", self.id);
        let argv = ["srun", &id, "--overlap", "--ntasks=1", "--chdir", FOLDER];
        let words = [&argv[..], &["bash", "-c", script]].concat();
        let client = self.site.cluster.command(self.user, &words).spawn()?;
        Ok(Step {
            job: self.site,
            client,
        })
    }

    /// Starts something of root's on its node, in no job.
    pub(super) fn begin_outside(&self, script: &str) -> Result<Step> {
        let words = ["bash", "-c", &format!("cd {FOLDER} && {script}")];
        let client = self.node().command("root", &words).spawn()?;
        Ok(Step {
            job: self.site,
            client,
        })
    }

    /// Runs a step.
    pub(super) fn run(&self, script: &str) -> Result<Said> {
        self.begin(script)?.end()
    }

    /// Starts a step that holds memory until the file is there, and says how many blocks it has.
    pub(super) fn hold(&self, count: u64, until: &str) -> Result<(Step, u64)> {
        let script = format!("./takes cuMemAlloc_v2 {STEP} until {count} {until}");
        let step = self.begin(&script)?;
        let took = step.hears("took: ")?;
        Ok((step, number(&took, "blocks")?))
    }

    /// The number of blocks of a step that takes all it can get.
    pub(super) fn fill(&self, script: &str) -> Result<u64> {
        let said = self.run(&format!("{script} ./takes cuMemAlloc_v2 {STEP} fill"))?;
        ensure!(said.number("took", "then")? == OUT_OF_MEMORY, "{said:#?}");
        said.number("took", "blocks")
    }

    /// The log of the job.
    pub(super) fn log(&self) -> Result<String> {
        let log = format!("/var/run/softmig/jobs/{}/log", self.id);
        self.node().read(log)?.context("no log")
    }

    /// Makes a file on its node.
    pub(super) fn touch(&self, path: &str) -> Result<()> {
        self.node().write(path, "")
    }

    /// The blocks that have room beside a context.
    pub(super) fn room(&self) -> u64 {
        (self.limit - Gpu::l40s(0).context) / STEP
    }

    /// Fails if processes ever held more of the GPU than this number of slices.
    pub(super) fn check_peak(&self, slices: u64) -> Result<()> {
        let (peak, limit) = (self.driver().peak(0), slices * self.limit);
        ensure!(peak <= limit, "{peak} bytes were taken, {limit} may be");
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        let id = self.id.to_string();
        self.site.cluster.run("root", &["scancel", &id])?.ok()?;
        Ok(())
    }
}

impl Step {
    /// Waits for a line with this beginning.
    pub(super) fn hears(&self, start: &str) -> Result<String> {
        self.job
            .cluster
            .wait_for(start, || {
                let said = self.client.stdout()?;
                let line = said.lines().find(|line| line.starts_with(start));
                Ok(line.map(str::to_owned))
            })
            .with_context(|| format!("{:?} {:?}", self.client.stdout(), self.client.stderr()))
    }

    pub(super) fn end(self) -> Result<Said> {
        let output = self.client.wait(Duration::from_secs(60))?;
        Ok(Said {
            status: output.status,
            lines: output.stdout.lines().map(str::to_owned).collect(),
            stderr: output.stderr,
        })
    }
}
