//! Escaped processes are ended, and nothing else: by the daemon as it is shipped, with the unit's rights.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::enforced;
use softmig_tests::{Cluster, Gpus, Node, Slurm, on_each_slurm};

use super::daemon::Daemon;
use super::on_node_of;

on_each_slurm!(
    an_escape_is_ended_and_its_neighbour_lives,
    processes_are_only_counted_until_the_administrator_says_so,
);

pub const POLICY: &str = "/etc/softmig/policy.toml";
pub const QUARTER: &str = "gpu:l40s.4:1";
/// Kernels of a millisecond, always some waiting.
pub const WORKS: &str = "./paced 1000000 1000000 async";

/// The policy as it is shipped, with a log and these lines in `[monitor]`.
pub fn policy(monitor: &str) -> Result<String> {
    let policy = include_str!("../../../conf/policy.toml");
    let (before, after) = policy.split_once("\n[monitor]\n").context("no [monitor]")?;
    let (_, after) = after.split_once("\n\n").context("nothing after it")?;
    let before = before.replace("#log_file =", "log_file =");
    Ok(format!("{before}\n[monitor]\n{monitor}\n\n{after}"))
}

/// A node that enforces.
fn cluster(slurm: Slurm, monitor: &str) -> Result<Cluster> {
    enforced(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file(POLICY, policy(monitor)?)
        .start()
}

/// The daemon of a node. Processes of its first second may have found none, and are excused.
fn daemon(node: &Node) -> Result<Daemon<'_>> {
    let daemon = Daemon::start(node)?;
    std::thread::sleep(Duration::from_secs(2));
    Ok(daemon)
}

/// A command line in mounts of its own, where the list of libraries is empty.
pub fn escaped(command: &str) -> String {
    let covered = "mount --bind /dev/null /etc/ld.so.preload";
    format!("unshare --user --map-root-user --mount bash -c '{covered} && exec {command}'")
}

/// Starts a job of these command lines at once, each of which says that it begins, and how it has ended and after how many ms.
pub fn start(cluster: &Cluster, user: &str, gres: &str, commands: &[String]) -> Result<u32> {
    let mut script = format!(
        "cd {FOLDER}\nrun() {{ local begin=$(date +%s%3N); \"$@\"; \
         echo \"$name: ended with $? after $(( $(date +%s%3N) - begin )) ms\"; }}\n"
    );
    for (number, command) in commands.iter().enumerate() {
        script += &format!("name={number}; run {command} &\n");
    }
    script += "wait\nsleep 1000\n";
    cluster.user(user).sbatch(&["--gres", gres], &script)
}

/// How a command of a job has ended, and after how many milliseconds.
pub fn end_of(cluster: &Cluster, user: &str, job: u32, command: usize) -> Result<(i32, u64)> {
    let line = format!("{command}: ended with ");
    cluster.wait_for("an end", || {
        let said = cluster.user(user).job_output(job)?;
        let mut ends = said.lines().filter_map(|it| it.strip_prefix(&line));
        let Some(end) = ends.next() else {
            return Ok(None);
        };
        let (status, rest) = end.split_once(" after ").context("no time")?;
        let time = rest.strip_suffix(" ms").context("no unit")?;
        Ok(Some((status.parse()?, time.parse()?)))
    })
}

/// The output of a job so far.
fn said(cluster: &Cluster, user: &str, job: u32) -> Result<String> {
    cluster.user(user).job_output(job)
}

/// Ended by SIGTERM or SIGKILL, as a shell counts it.
fn is_ended(status: i32) -> bool {
    [128 + 15, 128 + 9].contains(&status)
}

fn an_escape_is_ended_and_its_neighbour_lives(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "end = \"all\"\ngrace_seconds = 0")?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let daemon = daemon(node)?;
    let own = [WORKS.to_owned(), "./views hold 9000".into()];
    let neighbour = start(&cluster, "bob", QUARTER, &own)?;
    // Beside her own honest work: one works, one holds more than the slice, one now and then.
    let hers = [
        WORKS.into(),
        escaped(WORKS),
        escaped("./views hold 20000"),
        escaped("./views bursts 14000"),
    ];
    let job = start(&cluster, "alice", QUARTER, &hers)?;
    for (number, what) in [
        (1, "work without a seat"),
        (2, "memory"),
        (3, "memory in bursts"),
    ] {
        let (status, time) = end_of(&cluster, "alice", job, number)?;
        println!("{what}: ended after {time} ms, of its start");
        ensure!(is_ended(status), "{status}");
    }
    // Long enough for several more looks.
    std::thread::sleep(Duration::from_secs(3));
    for (user, job) in [("alice", job), ("bob", neighbour)] {
        let said = said(&cluster, user, job)?;
        let honest = said
            .lines()
            .filter(|line| line.contains("0: ended") || user == "bob");
        let ended: Vec<_> = honest
            .filter(|line| line.contains(": ended with"))
            .collect();
        ensure!(ended.is_empty(), "{user}: {said}");
    }
    let log = daemon.log()?;
    for (rule, how) in [
        ("seat", "asked to end (SIGTERM)"),
        ("memory", "asked to end (SIGTERM)"),
    ] {
        let is_it = |line: &&str| {
            line.contains(&format!("job={job} uid=2001 "))
                && line.contains(&format!("rule={rule} "))
        };
        let line = log.lines().find(is_it).with_context(|| log.clone())?;
        ensure!(line.ends_with(how), "{line}");
    }
    ensure!(!log.contains(&format!(" WARN job={neighbour} ")), "{log}");
    // Its user is told, too.
    let message = format!("/var/run/softmig/jobs/{job}/ended");
    let told = node.command("alice", &["cat", &message]).output()?.ok()?;
    ensure!(
        told.contains("more memory than its slice: asked to end"),
        "{told}"
    );
    daemon.end()?;
    Ok(())
}

fn processes_are_only_counted_until_the_administrator_says_so(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, "grace_seconds = 0")?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let daemon = daemon(node)?;
    let hers = [escaped(WORKS)];
    let his = [escaped("./views hold 12000")];
    let works = start(&cluster, "alice", QUARTER, &hers)?;
    let holds = start(&cluster, "bob", QUARTER, &his)?;
    let would = "would have ended 2: memory 1, seat 1";
    cluster.wait_until("the count", || {
        Ok(node
            .run_as_root(&["softmig", "node"])?
            .ok()?
            .contains(would))
    })?;
    let log = daemon.log()?;
    let would = "would be ended, but [monitor] end = \"no\"";
    let told = log.lines().filter(|line| line.contains(would)).count();
    ensure!(told == 2, "{log}");
    // Users are not told of others' processes.
    let users = node.command("alice", &["softmig", "node"]).output()?.ok()?;
    ensure!(!users.contains("would have"), "{users}");

    let set = |monitor: &str| -> Result<()> {
        std::fs::write(node.path("/etc/softmig/new")?, policy(monitor)?)?;
        on_node_of(node, &format!("mv /etc/softmig/new {POLICY}"))?.ok()?;
        Ok(())
    };
    set("end = \"memory\"\ngrace_seconds = 0")?;
    let (status, _) = end_of(&cluster, "bob", holds, 0)?;
    ensure!(is_ended(status), "{status}");
    let still = said(&cluster, "alice", works)?;
    ensure!(!still.contains("ended with"), "{still}");
    // A file that the daemon cannot parse changes nothing.
    set("end = \"everything\"")?;
    cluster.wait_until("a warning", || {
        Ok(daemon.log()?.contains("[monitor] stays as it was"))
    })?;
    set("end = \"all\"\ngrace_seconds = 0")?;
    let (status, _) = end_of(&cluster, "alice", works, 0)?;
    ensure!(is_ended(status), "{status}");
    daemon.end()?;
    Ok(())
}

#[test]
fn a_job_whose_offender_comes_back_is_ended_as_a_whole() -> Result<()> {
    let cluster = cluster(Slurm::V22_05, "end = \"all\"")?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let daemon = daemon(node)?;
    let again = format!("cd {FOLDER}\nwhile true; do {}; done", escaped(WORKS));
    let job = cluster.user("alice").sbatch(&["--gres", QUARTER], &again)?;
    cluster.wait_job(job, "FAILED")?;
    let log = daemon.log()?;
    ensure!(
        log.contains("came back, so all of the job is ended"),
        "{log}"
    );
    // Slurm's own processes were left alone: the node takes the next job.
    let honest = start(&cluster, "bob", QUARTER, &["true".into()])?;
    let (status, _) = end_of(&cluster, "bob", honest, 0)?;
    ensure!(status == 0, "{status}");
    daemon.end()?;
    Ok(())
}

/// As NVIDIA's package has it: root's control daemon starts a server for each user, as that user.
const MPS: &str = "cp /bin/dash /usr/bin/nvidia-cuda-mps-control
cp /opt/programs/views /usr/bin/nvidia-cuda-mps-server
export LD_PRELOAD=
/usr/bin/nvidia-cuda-mps-control -c '
    setpriv --reuid=2002 --regid=2002 --clear-groups /usr/bin/nvidia-cuda-mps-server hold 100 & wait' >/run/mps &
setpriv --reuid=2001 --regid=2001 --clear-groups /usr/bin/nvidia-cuda-mps-server hold 100 >/run/own 2>&1 &
sleep 1000";

#[test]
fn the_sites_mps_server_and_roots_processes_are_not_ended() -> Result<()> {
    let monitor = "end = \"all\"\ngrace_seconds = 0\noutside_jobs = \"end\"";
    let cluster = cluster(Slurm::V22_05, monitor)?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let daemon = daemon(node)?;
    let sites = node.command("root", &["bash", "-c", MPS]).spawn()?;
    let job = start(&cluster, "root", QUARTER, &[escaped(WORKS)])?;
    // The same program, started by a user: it is told from the site's by who started it.
    let log = || daemon.log();
    let is_ended = |line: &str| line.contains("rule=outside-jobs") && line.contains("uid=2001 ");
    cluster.wait_until("the end of a user's", || Ok(log()?.lines().any(is_ended)))?;
    let is_roots = |line: &str| line.contains(&format!("job={job} ")) && line.contains("rule=seat");
    let told = cluster.wait_until("root's job", || Ok(log()?.lines().any(is_roots)));
    told.with_context(|| format!("{:?} {:?}", log(), said(&cluster, "root", job)))?;
    std::thread::sleep(Duration::from_secs(3));
    let roots = said(&cluster, "root", job)?;
    ensure!(!roots.contains("ended with"), "{roots}");
    let running = |uid: u32| -> Result<bool> {
        let uid = uid.to_string();
        // One that has ended may wait for its parent.
        let words = [
            "pgrep",
            "--runstates",
            "R,S,D",
            "-u",
            &uid,
            "nvidia-cuda-mps",
        ];
        Ok(node.run_as_root(&words)?.success())
    };
    ensure!(running(2002)?, "the site's server has ended: {}", log()?);
    ensure!(!running(2001)?, "the user's own lives on: {}", log()?);
    ensure!(!log()?.contains("uid=2002 "), "{}", log()?);
    drop(sites);
    daemon.end()?;
    Ok(())
}
