//! Jobs that take turns: each has its share beside another that wants all there is, and nobody hangs whose launches wait
//! for each other while they wait for a turn.

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use softmig_fake_node::Node as Driver;
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::installed;
use softmig_tests::{Client, Cluster, Gpus, Slurm};

use crate::liveness::{OVERRUN, took};
use crate::stand::{in_some_try, share_in};

const MONITOR: &str = "/usr/libexec/softmig-monitor";
const SOCKET: &str = "/var/run/softmig/arbiter.sock";

/// A node for each test, with a GPU and the arbiter.
struct Site {
    cluster: Cluster,
    drivers: Vec<Driver>,
    _monitors: Vec<Client>,
}

const NODES: usize = 4;

const QUARTER: &str = "gpu:l40s.4:1";

fn site() -> Result<&'static Site> {
    static SITE: LazyLock<Result<Site>> = LazyLock::new(Site::start);
    SITE.as_ref().map_err(|error| anyhow!("{error:#}"))
}

impl Site {
    fn start() -> Result<Site> {
        let cluster = installed(Slurm::V22_05)
            .programs()
            .nodes(NODES)
            .gpus([Gpus::l40s(1)])
            .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
            .file(PRELOAD, format!("{LIBRARY}\n"))
            .start()?;
        let (mut drivers, mut monitors) = (Vec::new(), Vec::new());
        for node in cluster.nodes() {
            drivers.push(node.start_driver()?);
            monitors.push(node.command("root", &[MONITOR]).spawn()?);
            cluster.wait_until("an arbiter", || node.exists(SOCKET))?;
        }
        Ok(Site {
            cluster,
            drivers,
            _monitors: monitors,
        })
    }

    /// Starts a job on a node.
    fn start_job(&self, user: &str, node: usize, gres: &str, script: &str) -> Result<u32> {
        let name = self.cluster.node(node).name();
        let options = ["--gres", gres, "--nodelist", name];
        let script = format!("cd {FOLDER}\nexport SOFTMIG_LOG_LEVEL=2\n{script}");
        self.cluster.user(user).sbatch(&options, &script)
    }

    /// What a job says until it ends, which has to be well.
    fn end_of(&self, user: &str, job: u32) -> Result<String> {
        let ended = self.cluster.wait_job(job, "COMPLETED");
        let said = self.cluster.user(user).job_output(job)?;
        ended.with_context(|| said.clone())?;
        println!("{said}");
        Ok(said)
    }

    /// Starts a job that launches kernels of 100 us until it is cancelled; its number and that of its process.
    fn start_greedy(&self, user: &str, node: usize, gres: &str) -> Result<(u32, u32)> {
        let script = "./paced 100000 1000000 async & echo \"begun: $!\"\nwait";
        let job = self.start_job(user, node, gres, script)?;
        let pid = self
            .cluster
            .wait_for("its work", Duration::from_secs(60), || {
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

    fn cancel(&self, job: u32) -> Result<()> {
        let job = job.to_string();
        self.cluster.run("root", &["scancel", &job])?.ok()?;
        Ok(())
    }
}

#[test]
fn two_jobs_have_their_shares_beside_each_other() -> Result<()> {
    let site = site()?;
    let jobs = [("alice", 25.0, QUARTER), ("bob", 50.0, "gpu:l40s.2:1")];
    let mut begun = Vec::new();
    for (user, share, gres) in jobs {
        begun.push((share, site.start_greedy(user, 0, gres)?));
    }
    for (share, (job, pid)) in &begun {
        let measure = || share_in(&site.drivers[0], 0, Some(*pid), Duration::from_millis(500));
        let is_right = |got: f64| got > share / 2.0 && got < share + 2.0;
        let got = in_some_try(&format!("job {job} of {share} %"), measure, is_right)?;
        println!("job {job}: {got:.1} of {share} %");
    }
    begun.iter().try_for_each(|(_, (job, _))| site.cancel(*job))
}

/// The cases end beside a job that wants all there is, in a job of a quarter.
fn end_beside_a_greedy_job(node: usize, cases: &str) -> Result<()> {
    let site = site()?;
    let (greedy, _) = site.start_greedy("alice", node, QUARTER)?;
    let script = format!("./waits {cases} && cat /var/run/softmig/jobs/$SLURM_JOB_ID/log");
    let job = site.start_job("bob", node, QUARTER, &script)?;
    let said = site.end_of("bob", job)?;
    for case in cases.split(' ') {
        took(&said, case)?;
    }
    ensure!(said.contains(OVERRUN), "{said}");
    site.cancel(greedy)
}

#[test]
fn nobody_hangs_beside_a_job_that_wants_all_there_is() -> Result<()> {
    end_beside_a_greedy_job(
        1,
        "later_launch wait_value wait_for_host host_callback persistent",
    )
}

#[test]
fn kernels_of_two_streams_wait_for_each_other_beside_a_job_that_wants_all_there_is() -> Result<()> {
    end_beside_a_greedy_job(2, "both_ways")
}

#[test]
fn kernels_of_processes_wait_for_each_other_beside_a_job_that_wants_all_there_is() -> Result<()> {
    let site = site()?;
    let (greedy, _) = site.start_greedy("alice", 3, QUARTER)?;
    let ring = |rank: u32| format!("./waits ring $HOME {rank}");
    let both = format!("{} &\n{} && wait $!\nrm $HOME/ring.*", ring(0), ring(1));
    let job = site.start_job("bob", 3, QUARTER, &both)?;
    let said = site.end_of("bob", job)?;
    ensure!(said.matches("ring took").count() == 2, "{said}");
    // Of two jobs.
    let start = |rank| site.start_job("bob", 3, QUARTER, &ring(rank));
    let jobs = [start(0)?, start(1)?];
    for job in jobs {
        took(&site.end_of("bob", job)?, "ring")?;
    }
    site.cancel(greedy)
}
