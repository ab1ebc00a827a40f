//! The test cluster itself: it says what went wrong, and leaves nothing behind. That it runs jobs as Slurm does, all other
//! tests show.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use softmig_tests::supervisor::node_cgroups;
use softmig_tests::{Accounting, Cluster, Root, Slurm, on_each_slurm};

on_each_slurm!(
    a_command_that_takes_too_long_fails,
    a_broken_slurmctld_is_told_with_its_log,
    nothing_is_left_after_drop,
    nothing_is_left_when_the_test_is_killed,
);

fn a_command_that_takes_too_long_fails(slurm: Slurm) -> Result<()> {
    let machine = Root::new(slurm).start()?;
    let slow = machine
        .command("alice", &["sleep", "987"])
        .timeout(std::time::Duration::from_millis(50));
    let error = slow.output().expect_err("a timeout").to_string();
    assert!(
        error.contains("sleep 987") && error.contains("still ran"),
        "{error}"
    );
    // Neither the shell nor what it started goes on. The kernel may take a moment to end them.
    let runs = ["pgrep", "-x", "sleep"];
    let mut looks = (0..6000).map(|_| {
        machine
            .command("root", &runs)
            .output()
            .map(|said| said.success())
    });
    assert!(
        looks.any(|runs| runs.is_ok_and(|runs| !runs)),
        "sleep is still there"
    );
    let said = machine
        .command("bob", &["cat"])
        .stdin("in")
        .env("A", "b")
        .cwd("/tmp")
        .output()?;
    assert_eq!(said.ok()?, "in");
    Ok(())
}

fn a_broken_slurmctld_is_told_with_its_log(slurm: Slurm) -> Result<()> {
    let started = Cluster::builder(slurm)
        .file("/etc/slurm/job_submit.lua", "this is no Lua")
        .start();
    let error = format!("{:#}", started.map(|_| ()).expect_err("no slurmctld"));
    assert!(
        error.contains("did not come up") && error.contains("job_submit.lua"),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_machine_that_cannot_be_made_says_why() {
    let made = Root::new(Slurm::V22_05).stage("/nowhere/at/all").start();
    let error = format!("{:#}", made.map(|_| ()).expect_err("no such stage"));
    assert!(error.contains("/nowhere/at/all"), "{error}");
}

/// The traces of a cluster that is still there.
struct Traces {
    pid_namespace: PathBuf,
    supervisor: u32,
    nodes: Vec<String>,
}

impl Traces {
    fn of(init: i32, supervisor: u32, nodes: Vec<String>) -> Result<Traces> {
        let pid_namespace = std::fs::read_link(format!("/proc/{init}/ns/pid"))?;
        ensure!(
            pid_namespace != std::fs::read_link("/proc/self/ns/pid")?,
            "the cluster has no namespace"
        );
        Ok(Traces {
            pid_namespace,
            supervisor,
            nodes,
        })
    }

    /// Processes of the cluster's namespace, mounts with its root, its control groups, its supervisor.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let namespace = std::fs::read_link(process.path().join("ns/pid"));
            if namespace.is_ok_and(|namespace| namespace == self.pid_namespace) {
                left.push(format!("{}", process.path().display()));
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains("target/roots/"))
                .map(str::to_owned),
        );
        let names: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let cgroups = node_cgroups(Path::new("/sys/fs/cgroup"), &names);
        left.extend(cgroups.iter().map(|dir| dir.display().to_string()));
        if alive(self.supervisor) {
            left.push(format!("supervisor {}", self.supervisor));
        }
        left
    }
}

/// Whether a process is there and not just waiting to be reaped by a process 1 that may never do so.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn nothing_is_left_after_drop(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm)
        .nodes(2)
        .accounting(Accounting::new())
        .start()?;
    let job = cluster
        .user("alice")
        .sbatch(&["-N2", "--gres=gpu:1"], "srun sleep 600")?;
    cluster.wait_job(job, "RUNNING")?;
    let machine = cluster.machine();
    let names = cluster
        .nodes()
        .iter()
        .map(|node| node.name().to_owned())
        .collect();
    let traces = Traces::of(machine.init(), machine.supervisor(), names)?;
    let left = traces.left();
    assert!(
        left.iter().any(|trace| trace.contains("cgroup")) == cluster.constrains_devices(),
        "{left:?}"
    );
    assert!(
        left.iter()
            .filter(|trace| trace.starts_with("/proc"))
            .count()
            > 5,
        "{left:?}"
    );
    drop(cluster);
    assert_eq!(traces.left(), Vec::<String>::new());
    Ok(())
}

fn nothing_is_left_when_the_test_is_killed(slurm: Slurm) -> Result<()> {
    // A process of its own is in the place of a test. It holds a cluster with one node and accounts until it is killed.
    let mut holder = Command::new(env!("CARGO_BIN_EXE_softmig-cluster"))
        .args(["hold", &slurm.to_string(), "1", "accounting"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().context("stdout")?).read_line(&mut line)?;
    let (init, supervisor, nodes): (i32, u32, Vec<String>) = serde_json::from_str(&line)?;
    let traces = Traces::of(init, supervisor, nodes)?;
    assert!(traces.left().len() > 4, "{:?}", traces.left());
    holder.kill()?;
    holder.wait()?;
    for _ in 0..6000 {
        if traces.left().is_empty() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    anyhow::bail!("still there: {:?}", traces.left())
}

#[test]
fn the_root_itself_is_never_written() -> Result<()> {
    let slurm = Slurm::V22_05;
    let before = slurm.root().join("etc").metadata()?.mtime();
    let said = Root::new(slurm)
        .file("/etc/softmig/policy.toml", "x")
        .run(&["sh", "-c", "cat /etc/softmig/policy.toml; for v in 5.1 5.3 5.4; do lua$v -e 'print(_VERSION)'; done"])?
        .ok()?;
    assert_eq!(said, "xLua 5.1\nLua 5.3\nLua 5.4\n");
    assert!(!slurm.root().join("etc/softmig").exists());
    assert_eq!(slurm.root().join("etc").metadata()?.mtime(), before);
    Ok(())
}
