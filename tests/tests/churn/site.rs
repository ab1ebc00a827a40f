//! Three nodes with the library, a driver and a monitor each, and jobs of two users on them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use softmig_fake_node::Node as Driver;
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::enforced;
use softmig_tests::{Client, Cluster, Gpus, Node, Slurm};

use crate::churn::deck::Event;
use crate::churn::events::Undo;
use crate::churn::jobs::{self, Found};
use crate::churn::left::{control_groups, launched_twice, left, noted, without_epilog};
use crate::churn::report::Report;

/// Slurm's words for a job that no node could ever run.
const NOT_YET: &str = "Requested node configuration is not available";
const MONITOR: &str = "/usr/libexec/softmig-monitor";
const SOCKET: &str = "/var/run/softmig/arbiter.sock";
const NODES: usize = 3;
/// On each node.
pub const GPUS: u32 = 2;
/// Where jobs say what they found, in the homes of these users.
const FOLDER: &str = "churn";
pub const USERS: [&str; 2] = ["alice", "bob"];
/// How many jobs there are at a time.
const MOST_JOBS: usize = 50;
/// How long the last jobs, and what is left of them, may take to go.
const PATIENCE: Duration = Duration::from_secs(150);

pub struct Site {
    pub slurm: Slurm,
    pub cluster: Cluster,
    pub drivers: Vec<Driver>,
    pub monitors: Vec<Option<Client>>,
    /// Effects to undo, and after which job.
    pub undo: Vec<(usize, Undo)>,
    pub events: BTreeMap<Event, usize>,
    submitted: usize,
    /// Nodes that Slurm took out, by its reason.
    pub drained: BTreeMap<String, usize>,
    /// The jobs that were there when all was last given free.
    waited: Vec<(String, String)>,
    /// Jobs for whose prolog Slurm waited for ever.
    cancelled: usize,
    /// Epilogs that slurmd never ran.
    without_epilog: usize,
    /// Slurm's own remains.
    left_by_slurm: Vec<String>,
    left: Vec<String>,
}

impl Site {
    pub fn start(slurm: Slurm) -> Result<Site> {
        let cluster = enforced(slurm)
            .programs()
            .nodes(NODES)
            .gpus([Gpus::l40s(GPUS)])
            .prolog(false)
            .epilog(false)
            .file("/usr/local/sbin/prolog", noted("prolog"))
            .file("/usr/local/sbin/epilog", noted("epilog"))
            .slurm_conf("Prolog=/usr/local/sbin/prolog")
            .slurm_conf("Epilog=/usr/local/sbin/epilog")
            // A requeued job waits until its credentials have expired.
            .slurm_conf("AuthInfo=socket=/cluster/munge/munge.socket,cred_expire=5")
            .start()?;
        for user in USERS {
            let folder = format!("/home/{user}/{FOLDER}");
            cluster.run(user, &["mkdir", &folder])?.ok()?;
        }
        let mut drivers = Vec::new();
        for node in cluster.nodes() {
            // So small that they can be filled. The driver is not to feel it.
            let sizes = "mkdir -p /run/fake-gpu && mount -t tmpfs fake /run/fake-gpu\n\
                mkdir -p -m 755 /run/screen; mkdir -p /run/screen/S-alice; chown alice /run/screen/S-alice\n\
                mount -o remount,size=4m,nr_inodes=400 /run && mount -o remount,size=2m /var/log/softmig";
            node.run_as_root(&["sh", "-ec", sizes])?.ok()?;
            drivers.push(node.start_driver()?);
        }
        let monitors = cluster.nodes().iter().map(|_| None).collect();
        let mut site = Site {
            slurm,
            cluster,
            drivers,
            monitors,
            undo: Vec::new(),
            events: BTreeMap::new(),
            submitted: 0,
            drained: BTreeMap::new(),
            waited: Vec::new(),
            cancelled: 0,
            without_epilog: 0,
            left_by_slurm: Vec::new(),
            left: Vec::new(),
        };
        (0..NODES).try_for_each(|node| site.start_monitor(node))?;
        Ok(site)
    }

    pub fn start_monitor(&mut self, number: usize) -> Result<()> {
        let node = self.cluster.node(number);
        let monitor = node.command("root", &[MONITOR]).spawn()?;
        if self.monitors[number].replace(monitor).is_none() {
            self.cluster
                .wait_until("an arbiter", || node.exists(SOCKET))?;
        }
        Ok(())
    }

    /// Submits a job that is drawn.
    pub fn submit(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let kind = jobs::KINDS[rng.usize(..jobs::KINDS.len())];
        let user = USERS[rng.usize(..USERS.len())];
        let script = kind.script(rng.u32(0..1500));
        let output = format!("--output=/home/{user}/{FOLDER}/%j");
        let options = [kind.gres, &output, "--open-mode=append", "--requeue"];
        let of_user = self.cluster.user(user);
        // A slurmctld that has just started may not know the nodes' GPUs yet, and refuses what it takes a moment later.
        self.cluster.wait_until("a job to be taken", || {
            match of_user.sbatch(&options, &script) {
                Err(error) if format!("{error:#}").contains(NOT_YET) => Ok(false),
                taken => taken.map(|_| true),
            }
        })?;
        self.submitted += 1;
        Ok(())
    }

    /// The jobs that are not over, each with its state.
    pub fn jobs(&self) -> Result<Vec<(String, String)>> {
        let said = self
            .cluster
            .run("root", &["squeue", "--noheader", "--format=%i %T %r"])?
            .ok()?;
        let words = said.lines().filter_map(|line| line.split_once(' '));
        Ok(words.map(|(id, state)| (id.into(), state.into())).collect())
    }

    /// Waits until there are few enough jobs. Slurm lets some of them wait for long.
    pub fn wait_for_room(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.jobs()?.len() >= MOST_JOBS && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Makes all good, lets the jobs end, and waits until nothing of them is left.
    pub fn calm_down(&mut self) -> Result<()> {
        self.undo(usize::MAX)?;
        let deadline = Instant::now() + PATIENCE;
        let mut last = Instant::now();
        while !self.jobs()?.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(200));
            // An administrator resumes nodes after an accident; nodes report anew what they have.
            if last.elapsed() > Duration::from_secs(4) {
                last = Instant::now();
                self.give_free()?;
                self.cluster.reconfigure()?;
            }
        }
        let jobs = self.jobs()?;
        self.left = jobs
            .iter()
            .map(|(id, state)| format!("job {id} {state}"))
            .collect();
        let nodes = self.cluster.nodes();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut mopped = 0;
        loop {
            let mut found = Vec::new();
            for (node, driver) in nodes.iter().zip(&self.drivers) {
                found.extend(left(&self.cluster, node, driver)?);
            }
            if found.is_empty() || Instant::now() > deadline {
                self.left.extend(found);
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
            // By now slurmd ran the epilogs that it runs at all.
            if last.elapsed() > Duration::from_secs(3) && mopped == 0 {
                mopped = nodes.iter().map(mop).sum::<Result<usize>>()?;
            }
        }
        self.without_epilog = mopped;
        let empty = nodes
            .iter()
            .flat_map(|node| control_groups(node.name(), false));
        self.left_by_slurm = empty.collect();
        let processes = self
            .cluster
            .run("root", &["ps", "-eo", "pid=,args="])?
            .ok()?;
        for hung in launched_twice(&self.cluster)? {
            let line = processes.lines().find(|line| line.contains(&hung));
            self.left_by_slurm
                .extend(line.map(|line| format!("process {line}")));
        }
        Ok(())
    }

    /// Counts the nodes that Slurm took away, gives them back, and releases the jobs that it held.
    pub fn give_free(&mut self) -> Result<()> {
        let said = self
            .cluster
            .run("root", &["sinfo", "-h", "-N", "-o", "%N %T %E"])?
            .ok()?;
        for line in said.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(node), Some(state), Some(reason)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if state.contains("drain") || state.contains("down") {
                *self.drained.entry(reason.to_owned()).or_default() += 1;
                let update = format!("nodename={node}");
                self.cluster
                    .run("root", &["scontrol", "update", &update, "state=resume"])?;
            }
        }
        let jobs = self.jobs()?;
        // slurmd was killed before it could say that the prolog is done. Slurm waits for that for ever.
        let waits = |state: &str| state == "RUNNING Prolog";
        let still = jobs
            .iter()
            .filter(|job| waits(&job.1) && self.waited.contains(job));
        for (id, _) in still {
            self.cluster.run("root", &["scancel", id])?;
            self.cancelled += 1;
        }
        for (id, state) in &jobs {
            if state.to_lowercase().contains("held") {
                self.cluster.run("root", &["scontrol", "release", id])?;
            }
        }
        self.waited = jobs;
        Ok(())
    }

    /// All that the daemons logged, with what they logged of softmig: for who looks for the cause of what is left.
    pub fn keep_logs(&self, folder: &str) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let folder = Path::new(folder);
        std::fs::write(folder.join("slurmctld.log"), self.cluster.slurmctld_log()?)?;
        for node in self.cluster.nodes() {
            let log = self.cluster.slurmd_log(node)?;
            std::fs::write(folder.join(format!("{}.log", node.name())), log)?;
        }
        // Stacks of slurmstepd.
        let look = "for task in /proc/[0-9]*/task/*; do grep -q slurmstepd $task/comm || continue\n\
            echo $task; cat $task/comm $task/cmdline $task/wchan; echo; cat $task/syscall $task/stack; done 2>&1";
        let stacks = self.cluster.run("root", &["sh", "-c", look])?.stdout;
        std::fs::write(folder.join("stacks"), stacks)?;
        Ok(())
    }

    /// The results of all jobs' runs.
    fn found(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for user in USERS {
            let folder = format!("/home/{user}/{FOLDER}");
            let names = std::fs::read_dir(self.cluster.path(&folder)?)?;
            for name in names {
                let text = std::fs::read_to_string(name?.path()).context("what a job said")?;
                found.extend(jobs::judge(&text));
            }
        }
        Ok(found)
    }

    /// The states of the jobs, by slurmctld.
    fn states(&self) -> Result<BTreeMap<String, usize>> {
        let said = self
            .cluster
            .run("root", &["scontrol", "-o", "show", "jobs"])?
            .ok()?;
        let mut states = BTreeMap::new();
        for job in said.lines() {
            let field = |name: &str| {
                let mut words = job.split_whitespace();
                words
                    .find_map(|word| word.strip_prefix(name))
                    .unwrap_or("?")
            };
            let state = match field("JobState=") {
                state @ ("COMPLETED" | "CANCELLED") => state.to_owned(),
                state => format!("{state} ({}, {})", field("Reason="), field("ExitCode=")),
            };
            *states.entry(state).or_default() += 1;
        }
        Ok(states)
    }

    /// All that is to be told.
    pub fn report(self, seed: u64, jobs: usize, begin: Instant) -> Result<Report> {
        let mut peaks = Vec::new();
        for driver in &self.drivers {
            peaks.extend((0..GPUS as usize).map(|gpu| driver.peak(gpu) >> 20));
        }
        Ok(Report {
            slurm: self.slurm.to_string(),
            seed,
            jobs,
            submitted: self.submitted,
            seconds: begin.elapsed().as_secs(),
            found: self.found()?,
            states: self.states()?,
            events: self.events,
            drained: self.drained,
            cancelled: self.cancelled,
            without_epilog: self.without_epilog,
            left_by_slurm: self.left_by_slurm,
            left: self.left,
            peaks_mib: peaks,
            most_mib: u64::from(memory_mib(4)),
        })
    }

    pub fn node(&self, number: usize) -> &Node {
        self.cluster.node(number)
    }
}

/// Does what `softmig check` tells an administrator to do (JOB_ENDED) for the jobs whose epilog slurmd never ran. How many they
/// are.
fn mop(node: &Node) -> Result<usize> {
    let jobs = without_epilog(node)?;
    for job in &jobs {
        let line = format!("SLURM_JOB_ID={job} SLURM_JOB_UID=0 /usr/libexec/softmig-epilog");
        node.run_as_root(&["sh", "-c", &line])?.ok()?;
    }
    Ok(jobs.len())
}
