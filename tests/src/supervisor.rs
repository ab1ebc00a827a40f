//! The process between a test and its machine: it outlives the test just long enough to leave nothing behind.
//!
//! It reads one line, the [`Spec`], then waits for its standard input to end. That happens when the test drops
//! its [`crate::Machine`], fails, or is killed: the kernel closes the pipe for it. Then the machine's process 1 is
//! killed, with it every process and mount of the machine, and the control groups that Slurm made are removed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{WaitOptions, set_child_subreaper, wait};

use crate::command::PATIENCE;
use crate::spec::Spec;
use crate::{Accounting, Cluster, Node, Slurm, holder, init};

/// The whole of the `softmig-cluster` program: one of its roles, by its first argument.
pub fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    let done = match role.as_deref() {
        Some("supervise") => supervise(),
        Some("init") => init::main(),
        Some("node") => holder::main(),
        Some("hold") => hold(),
        _ => Err(anyhow::anyhow!(
            "started by softmig's tests; by hand: hold 22.05|24.11|26.05 [NODES [accounting]]"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softmig-cluster {}: {error:#}", role.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// Holds a plain cluster until standard input ends, for a look around by hand.
fn hold() -> Result<()> {
    let mut words = std::env::args().skip(2);
    let slurm: Slurm = words
        .next()
        .context("which version: 22.05, 24.11 or 26.05?")?
        .parse()?;
    let nodes = words
        .next()
        .map_or(Ok(1), |count| count.parse())
        .context("how many nodes?")?;
    let mut builder = Cluster::builder(slurm).nodes(nodes);
    match words.next().as_deref() {
        None => {}
        Some("accounting") => builder = builder.accounting(Accounting::new()),
        Some(word) => bail!("{word}: not known; `accounting` adds slurmdbd"),
    }
    let cluster = builder.start()?;
    let names: Vec<&str> = cluster.nodes().iter().map(Node::name).collect();
    let machine = cluster.machine();
    init::say(&(machine.init(), machine.supervisor(), names))?;
    eprintln!(
        "nsenter --target {} --mount --pid --net --uts --ipc --wd=/ -- bash",
        machine.init()
    );
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).context("waiting")?;
    Ok(())
}

fn supervise() -> Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).context("reading what to make")?;
    let spec: Spec = serde_json::from_str(&line).context("reading what to make")?;

    // Whatever loses its parent inside comes to this process, so that waiting for all children waits for all.
    set_child_subreaper(Some(rustix::process::getpid())).context("becoming the reaper")?;
    // Every namespace but the cgroup one: Slurm and the hook look for jobs from the hierarchy's root.
    let mut machine = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--net",
            "--uts",
            "--ipc",
            "--",
        ])
        .arg(std::env::current_exe().context("finding this program")?)
        .arg("init")
        .stdin(Stdio::piped())
        .spawn()
        .context("starting unshare")?;
    let mut pipe = machine.stdin.take().context("talking to the machine")?;
    // A machine that died at once has said why on standard output; its end is noticed below.
    let _ = pipe.write_all(line.as_bytes());

    std::io::copy(&mut stdin.by_ref(), &mut std::io::sink()).ok();

    machine.kill().context("ending the machine")?;
    while let Ok(Some(_)) | Err(rustix::io::Errno::INTR) = wait(WaitOptions::empty()) {}
    drop(pipe);
    let names: Vec<&str> = spec.nodes.iter().map(|node| node.name.as_str()).collect();
    remove_cgroups(Path::new("/sys/fs/cgroup"), &names)
}

/// Removes `slurm_NODE` of these nodes from every control group hierarchy.
///
/// Its processes are gone, but the kernel may take a moment to let go of the last of them.
fn remove_cgroups(hierarchies: &Path, nodes: &[&str]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<PathBuf> = node_cgroups(hierarchies, nodes)
            .into_iter()
            .filter(|dir| !remove_tree(dir))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("control groups that cannot be removed: {left:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The control groups of these nodes, in whichever hierarchies there are.
pub fn node_cgroups(hierarchies: &Path, nodes: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(hierarchies) else {
        return Vec::new();
    };
    entries
        .flatten()
        .flat_map(|hierarchy| {
            nodes
                .iter()
                .map(move |node| hierarchy.path().join(format!("slurm_{node}")))
        })
        .filter(|dir| dir.is_dir())
        .collect()
}

/// Removes a control group and those below it; says whether all are gone.
fn remove_tree(dir: &Path) -> bool {
    // The files of a control group go with its directory; only the directories are ours to remove.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    std::fs::remove_dir(dir).is_ok()
}
