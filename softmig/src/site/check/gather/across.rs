//! The nodes, each asked by a step of its own: `srun` runs `softmig check --node` there, with the policy of this machine to
//! compare with.
//!
//! This needs no daemon and no shared folder. The step is a job of the caller, so it also shows how jobs' control
//! groups are named.

use crate::site::check::facts::{Answer, Cluster, NodeFinding, Partition, Report};
use rustix::process::{Pid, Signal, kill_process_group};
use softmig_node::command;
use softmig_policy::slurm::hostlist::expand;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a node may take, from srun's start to the answer.
const PATIENCE: Duration = Duration::from_secs(45);

/// How long srun may take to give up its job.
const FAREWELL: Duration = Duration::from_secs(3);

/// Words in Slurm's states that mean that a node starts no job.
const STARTS_NONE: [&str; 6] = ["DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWER", "*"];

/// How long srun waits for a free CPU, in seconds.
const IMMEDIATE: &str = "--immediate=30";

/// How many nodes are asked at the same time.
const AT_ONCE: usize = 16;

/// Asks the nodes of a list, or all that have GPUs.
pub(crate) fn ask(
    cluster: &Cluster,
    list: &str,
    reservation: Option<&str>,
    policy: &[u8],
    srun: &Path,
) -> Vec<Answer> {
    let names = match list {
        "" => {
            let with_gpus = cluster.nodes.iter().filter(|node| node.has("gpu"));
            with_gpus.map(|node| node.name.clone()).collect()
        }
        list => expand(list),
    };
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(names.len()) {
            scope.spawn(|| {
                while let Some(node) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let told = ask_one(cluster, node, reservation, policy, srun);
                    let answer = Answer {
                        node: node.clone(),
                        told,
                    };
                    if let Ok(mut answers) = answers.lock() {
                        answers.push(answer);
                    }
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by(|one, two| one.node.cmp(&two.node));
    answers
}

fn ask_one(
    cluster: &Cluster,
    node: &str,
    reservation: Option<&str>,
    policy: &[u8],
    srun: &Path,
) -> Result<Vec<NodeFinding>, String> {
    let known = cluster.node(node).ok_or("Slurm has no such node")?;
    if STARTS_NONE.iter().any(|word| known.state.contains(word)) {
        return Err(format!(
            "it starts no jobs: Slurm has it as {}",
            known.state
        ));
    }
    let of_node = |partition: &&Partition| partition.nodes.iter().any(|name| name == node);
    let partition = cluster
        .partitions
        .iter()
        .find(of_node)
        .ok_or("it is in no partition")?;
    let mut command = Command::new(srun);
    command
        .arg(format!("--nodelist={node}"))
        .arg(format!("--partition={}", partition.name))
        .args([
            "--nodes=1",
            "--ntasks=1",
            "--cpus-per-task=1",
            "--mem=64M",
            "--time=2",
            "--quiet",
        ])
        .args(reservation.map(|name| format!("--reservation={name}")))
        .args([IMMEDIATE, "--job-name=softmig-check", "--chdir=/", "--"])
        .args(["softmig", "check", "--node", "--json", "--same-as=-"]);
    let (stdout, stderr) = run(command, policy, PATIENCE)?;
    let report: Result<Report, _> = serde_json::from_str(stdout.trim());
    match report {
        Ok(report) => Ok(report.findings),
        Err(_) if reserved(cluster, node).is_some() && reservation.is_none() => Err(format!(
            "no answer; it is in reservation {0}, so ask it with --reservation {0}",
            reserved(cluster, node).unwrap_or_default()
        )),
        Err(_) => {
            let said = stderr.lines().chain(stdout.lines()).next();
            Err(format!(
                "no answer: {}",
                said.unwrap_or("srun said nothing")
            ))
        }
    }
}

/// A reservation of all of a node.
fn reserved<'a>(cluster: &'a Cluster, node: &str) -> Option<&'a str> {
    let all = cluster.reservations.iter().flatten();
    let mut of_node = all.filter(|one| one.nodes.iter().any(|name| name == node));
    of_node.next().map(|one| one.name.as_str())
}

/// The standard output and standard error of a command, in bounded time.
fn run(mut command: Command, input: &[u8], patience: Duration) -> Result<(String, String), String> {
    let failed = |error: io::Error| format!("srun: {error}");
    let (stdin, mut feed) = io::pipe().map_err(failed)?;
    let (mut errors, stderr) = io::pipe().map_err(failed)?;
    // srun gets a process group of its own, so that all it has started ends with it.
    command.stdin(stdin).stderr(stderr).process_group(0);
    std::thread::scope(|scope| {
        // A node that reads nothing must not hold up the others, so a thread writes. The write fails once the command
        // is over.
        scope.spawn(move || feed.write_all(input));
        let stderr = scope.spawn(move || {
            let mut bytes = Vec::new();
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let output = command::output(command, patience, u64::MAX, give_up).map_err(failed)?;
        let (_, stdout) =
            output.ok_or_else(|| format!("no answer within {} s", patience.as_secs()))?;
        Ok((stdout, stderr.join().unwrap_or_default()))
    })
}

/// Ends srun and what it has started.
fn give_up(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let send = |signal| group.map(|group| kill_process_group(group, signal));
    // On this signal srun gives up the job that it waits for.
    let _ = send(Signal::TERM);
    let _ = command::wait_until(child, Instant::now() + FAREWELL);
    let _ = send(Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_node_gets_the_policy_and_answers() {
        let long = vec![b'x'; 1 << 20];
        let (out, err) = run(shell("wc -c; echo no >&2"), &long, PATIENCE).unwrap();
        assert_eq!((out.trim(), err.trim()), ("1048576", "no"));
    }

    #[test]
    fn a_node_that_does_not_answer_holds_up_no_other() {
        let start = Instant::now();
        let silent = run(shell("sleep 60"), b"x", Duration::from_millis(100));
        assert!(silent.is_err());
        assert!(start.elapsed() < Duration::from_secs(50));
    }
}
