//! The clusters that the tests share, one for each version of Slurm, with jobs that last as long as the tests.

use anyhow::{Context, Result, anyhow};
use softmig_tests::each_slurm::PerSlurm;
use softmig_tests::programs::{FOLDER, tree};
use softmig_tests::requests::memory_mib;
use softmig_tests::softmig::enforced;
use softmig_tests::{Builder, Cluster, Node, Output, Slurm};

use crate::identity::answer::Answer;

/// The memory and the share of time that the example policy gives to a quarter and to a half of an l40s.
pub const QUARTER: (u32, &str) = (memory_mib(1), "25");
/// See [`QUARTER`].
pub const HALF: (u32, &str) = (memory_mib(2), "50");

/// A cluster and its jobs.
pub struct Site {
    /// The cluster. On its first node are the jobs below; the second is for tests that bring jobs of their own.
    pub cluster: Cluster,
    /// Alice's quarter of the first GPU: the smallest slice on the node.
    pub quarter: u32,
    /// Bob's half of the same GPU.
    pub bobs: u32,
    /// Alice's half of the second GPU.
    pub half: u32,
    /// Alice's whole GPU, the third.
    pub whole: u32,
    /// Alice's job without GPUs.
    pub none: u32,
}

/// The cluster with this version of Slurm.
pub fn site(slurm: Slurm) -> Result<&'static Site> {
    static SITES: PerSlurm<Site> = PerSlurm::new(Site::start);
    SITES.get(slurm)
}

/// A cluster of softmig's with the library in every process, slurmctld's and slurmd's included, and the client.
pub fn loaded(slurm: Slurm) -> Builder {
    let client = tree().join("opt/programs");
    let clients = [
        "whose",
        "libaudit.so",
        "liballocator.so",
        "libcalls.so",
        "libfixed.so",
        "libinterposer.so",
        "libolder.so",
    ];
    let place = |builder: Builder, name: &str| {
        builder.install(client.join(name), format!("{FOLDER}/{name}"), 0o755)
    };
    clients.into_iter().fold(enforced(slurm), place).install(
        client.join("libbare.so"),
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        0o755,
    )
}

impl Site {
    fn start(slurm: Slurm) -> Result<Site> {
        let cluster = loaded(slurm).nodes(2).start()?;
        // A second group of alice's, for programs that run under it.
        cluster
            .run(
                "root",
                &["sh", "-c", "echo project:x:3001:alice >>/etc/group"],
            )?
            .ok()?;
        let first = cluster.node(0).name();
        let stay = |user, gres| stay(&cluster, first, user, gres);
        let quarter = stay("alice", "gpu:l40s.4:1")?;
        let bobs = stay("bob", "gpu:l40s.2:1")?;
        let half = stay("alice", "gpu:l40s.2:1")?;
        let whole = stay("alice", "gpu:l40s:1")?;
        let none = stay("alice", "none")?;
        for (job, user) in [
            (quarter, "alice"),
            (bobs, "bob"),
            (half, "alice"),
            (whole, "alice"),
            (none, "alice"),
        ] {
            wait_for_start(&cluster, user, job)?;
        }
        Ok(Site {
            cluster,
            quarter,
            bobs,
            half,
            whole,
            none,
        })
    }

    /// The node with the jobs.
    pub fn crowded(&self) -> &Node {
        self.cluster.node(0)
    }

    /// The node for jobs of a test's own, all of alice's: bob has never any there.
    pub fn empty(&self) -> &Node {
        self.cluster.node(1)
    }

    /// Starts a job of alice's on the second node.
    pub fn job(&self, gres: &str) -> Result<u32> {
        start_job(&self.cluster, self.empty().name(), "alice", gres)
    }

    /// Ends a job of a test's own.
    pub fn end(&self, job: u32) -> Result<()> {
        let cancelled = self.cluster.run("root", &["scancel", &job.to_string()])?;
        cancelled.ok().map(drop)
    }

    /// The answers in a step of a job of alice's.
    pub fn step(&self, job: u32, script: &str) -> Result<Vec<Answer>> {
        step(&self.cluster, "alice", job, script)
    }

    /// Asserts that alice's half is known each time that the client looks: her quarter is what it would get otherwise.
    pub fn assert_known(&self, script: &str) -> Result<()> {
        let answers = self.step(self.half, script)?;
        assert!(!answers.is_empty(), "the client never ran: {script}");
        for answer in answers {
            assert_eq!(answer, self.half_answer(), "{script}");
        }
        Ok(())
    }

    /// The answer in alice's quarter.
    pub fn quarter_answer(&self) -> Answer {
        Answer::limited(self.quarter, QUARTER.0, QUARTER.1)
    }

    /// The answer under the limits of alice's half.
    pub fn half_answer(&self) -> Answer {
        Answer::limited(self.half, HALF.0, HALF.1)
    }

    /// The answer under the limits of bob's half.
    pub fn bobs(&self) -> Answer {
        Answer::limited(self.bobs, HALF.0, HALF.1)
    }
}

/// Starts a job that stays, and waits until its own processes run.
pub fn start_job(cluster: &Cluster, node: &str, user: &str, gres: &str) -> Result<u32> {
    let job = stay(cluster, node, user, gres)?;
    wait_for_start(cluster, user, job)?;
    Ok(job)
}

/// Submits a job that stays.
fn stay(cluster: &Cluster, node: &str, user: &str, gres: &str) -> Result<u32> {
    let script = "touch $HOME/$SLURM_JOB_ID.started; exec sleep infinity";
    cluster.user(user).sbatch(
        &["--gres", gres, "--nodelist", node, "--output=/dev/null"],
        script,
    )
}

/// Waits until a job's own processes run, and its prolog has.
fn wait_for_start(cluster: &Cluster, user: &str, job: u32) -> Result<()> {
    let started = format!("/home/{user}/{job}.started");
    cluster.wait_until("the job's script runs", || {
        Ok(cluster.read(&started)?.is_some())
    })
}

/// The answers in a step of a job.
pub fn step(cluster: &Cluster, user: &str, job: u32, script: &str) -> Result<Vec<Answer>> {
    let job = format!("--jobid={job}");
    let argv = ["srun", &job, "--overlap", "--ntasks=1", "bash", "-c"];
    let call = cluster.command(user, &[&argv[..], &[&with_words(script)]].concat());
    let output = call.output()?;
    said(script, &output)
}

/// The answers on a node outside every job.
pub fn outside(node: &Node, user: &str, script: &str) -> Result<Vec<Answer>> {
    let output = node
        .command(user, &["bash", "-c", &with_words(script)])
        .output()?;
    said(script, &output)
}

/// Lets the library say what it finds, in the order of what the client says.
fn with_words(script: &str) -> String {
    format!("export SOFTMIG_LOG_LEVEL=3 PATH={FOLDER}:$PATH\nexec 2>&1\n{script}")
}

fn said(script: &str, output: &Output) -> Result<Vec<Answer>> {
    if !output.success() {
        return Err(anyhow!("{script}: {output}"));
    }
    Answer::all(&output.stdout).with_context(|| format!("{script}: {output}"))
}
