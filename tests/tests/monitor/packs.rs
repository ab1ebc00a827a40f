//! Packs on a node whose policy asks for them, by the daemon as it is shipped, with the unit's rights: their servers, and whose they are.
//! `packed.rs` has programs in them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use softmig_fake_node::KERNEL_DRIVER;
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::enforced;
use softmig_tests::{Builder, Cluster, Gpus, Node, Slurm, on_each_slurm};

use super::daemon::Daemon;
use super::ending::{POLICY, QUARTER, policy};

on_each_slurm!(
    without_nvidias_program_jobs_have_their_slices_as_ever,
    a_pack_has_a_server_as_long_as_its_jobs,
    a_jobs_pack_is_that_of_what_slurm_says_of_it,
    the_epilog_waits_for_memory_that_a_pack_keeps,
);

/// NVIDIA's program, as far as the monitor sees it.
pub const CONTROL: &str = "/usr/local/bin/nvidia-cuda-mps-control";
const SCRIPT: &str = "#!/bin/sh\ntouch \"$CUDA_MPS_PIPE_DIRECTORY/control\"\nexec sleep infinity\n";
const PACKS: &str = "/var/run/softmig/packs";

const NOT_IN_PACK: &str = "this process is not in its job's pack";
const NOT_KEPT: &str = "its end would end the other processes of its job's pack";
/// CUDA_ERROR_MPS_CONNECTION_FAILED.
const NOT_CONNECTED: u32 = 805;

/// A GiB after the other until there is no more, and what it says then in a quarter.
const FILL: &str = "./takes cuMemAlloc_v2 0x40000000 fill";
const FILLED: &str = "took: blocks=10 then=2";

/// A policy with these keys for an L40S.
fn policy_with(keys: &str) -> Result<String> {
    let policy = policy("end = \"no\"")?;
    let (before, after) = policy.split_once("\n[gpu.l40s]\n").context("no L40S")?;
    Ok(format!("{before}\n[gpu.l40s]\n{keys}\n{after}"))
}

/// A node on which the slices of an L40S are packed.
fn packing(slurm: Slurm) -> Result<Builder> {
    packing_by(slurm, "user")
}

/// The same with packs of an account's or a reservation's jobs.
pub fn packing_by(slurm: Slurm, whose: &str) -> Result<Builder> {
    let policy = policy_with(&format!("pack = \"{whose}\""))?;
    let builder = enforced(slurm).programs().gpus([Gpus::l40s(1)]);
    Ok(builder.file(POLICY, policy))
}

pub fn daemon(node: &Node) -> Result<Daemon<'_>> {
    Daemon::start_by(node, &format!("env LD_PRELOAD={KERNEL_DRIVER}"))
}

/// A job's conf. A job that had to wait runs before its prolog has.
fn conf_of(cluster: &Cluster, job: u32) -> Result<String> {
    let path = format!("/var/run/softmig/{job}.conf");
    cluster.wait_for("its conf", || cluster.node(0).read(&path))
}

/// What a command says in a step of a job of alice's, and what the job's log has of it.
fn run(cluster: &Cluster, job: u32, command: &str) -> Result<[String; 2]> {
    let script = format!(
        "cd {FOLDER}; export SOFTMIG_LOG_LEVEL=3; log=/var/run/softmig/jobs/{job}/log; : >$log; {command} 2>/dev/null; echo; cat $log"
    );
    let job = format!("--jobid={job}");
    let step = [&job, "--overlap", "--ntasks=1", "bash", "-c", &script];
    let said = cluster.user("alice").srun(&step)?.ok()?;
    let (said, log) = said.split_once("\n\n").context(said.clone())?;
    println!("{command}: {said}\n{log}");
    Ok([said.into(), log.into()])
}

/// It has its job's slice, and says how it has the GPU or does not.
fn has_its_slice(cluster: &Cluster, job: u32, variable: &str, is_told: bool) -> Result<()> {
    let [said, log] = run(cluster, job, &format!("{variable} {FILL}"))?;
    ensure!(said.contains(FILLED), "{said}");
    ensure!(log.contains(&format!("job {job}: limited to")), "{log}");
    let count = log.matches(NOT_IN_PACK).count();
    ensure!(count == usize::from(is_told), "{variable}: {log}");
    Ok(())
}

fn without_nvidias_program_jobs_have_their_slices_as_ever(slurm: Slurm) -> Result<()> {
    let cluster = packing(slurm)?.start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver_as(|description| description.scheduler())?;
    let daemon = daemon(node)?;
    let job = cluster.user("alice").allocate(&["--gres", QUARTER])?;
    let conf = format!("/var/run/softmig/{job}.conf");
    let text = conf_of(&cluster, job)?;
    ensure!(text.contains("\nSOFTMIG_PACK=user\n"), "{text}");
    // Who has an MPS server of its own asks for none.
    for variable in ["=", "=/tmp/own"] {
        let variable = format!("CUDA_MPS_PIPE_DIRECTORY{variable}");
        has_its_slice(&cluster, job, &variable, false)?;
    }
    ensure!(!node.exists(PACKS)?);
    has_its_slice(&cluster, job, "", true)?;
    ensure!(node.exists(PACKS)?);
    let none: &[String] = &[];
    assert_eq!(
        (servers(node)?, supervisors(node)?),
        (none.into(), none.into())
    );
    // The next one does not wait for what is not there either.
    has_its_slice(&cluster, job, "", true)?;
    node.run_as_root(&["sed", "-i", "/^SOFTMIG_PACK=/d", &conf])?
        .ok()?;
    has_its_slice(&cluster, job, "", false)?;
    let said = daemon.end()?.stderr;
    ensure!(said.matches("having an MPS server").count() == 1, "{said}");
    Ok(())
}

/// As a pack's supervisor keeps the memory of a process that has ended, by a lock on the job's ledger.
fn the_epilog_waits_for_memory_that_a_pack_keeps(slurm: Slurm) -> Result<()> {
    let cluster = packing(slurm)?.start()?;
    let job = cluster.user("alice").allocate(&["--gres", QUARTER])?;
    let lock = format!(
        r#"open my $ledger, "<", "/var/run/softmig/jobs/{job}/ledger" or die;
        my $lock = pack("ssx4qqix4", 0, 0, (1 << 41) + 7, 1, 0);
        fcntl($ledger, 37, $lock) or die;
        close STDOUT; sleep 2; open my $free, ">", "/tmp/free""#
    );
    let script = format!(
        "mkfifo /tmp/is_locked; perl -e '{lock}' >/tmp/is_locked & cat /tmp/is_locked
        SLURM_JOB_ID={job} SLURM_JOB_UID=0 /usr/libexec/softmig-epilog && ls /tmp/free"
    );
    let node = cluster.node(0);
    node.run_as_root(&["sh", "-c", &script])?.ok()?;
    ensure!(!node.exists(format!("/var/run/softmig/{job}.conf"))?);
    Ok(())
}

/// The folders of the GPU's servers.
fn servers(node: &Node) -> Result<Vec<String>> {
    node.list(format!("{PACKS}/{}", node.gpus()[0].uuid))
}

/// The command lines, behind their numbers, of the processes that have servers.
fn supervisors(node: &Node) -> Result<Vec<String>> {
    let line =
        "cd /proc; for it in [0-9]*; do echo $it $(tr '\\0' ' ' 2>/dev/null <$it/cmdline); done";
    let all = node.run_as_root(&["sh", "-c", line])?.ok()?;
    let is_one = |line: &&str| line.contains(" --pack /") || line.contains("sleep infinity");
    Ok(all.lines().filter(is_one).map(str::to_owned).collect())
}

fn a_pack_has_a_server_as_long_as_its_jobs(slurm: Slurm) -> Result<()> {
    let cluster = packing(slurm)?.file(CONTROL, SCRIPT).start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver_as(|description| description.scheduler())?;
    let first = daemon(node)?;
    let alice = cluster.user("alice");
    let job = alice.allocate(&["--gres", QUARTER])?;
    has_its_slice(&cluster, job, "CUDA_MPS_PIPE_DIRECTORY=", false)?;
    ensure!(supervisors(node)?.is_empty());
    // The monitor finds no files to keep in a program of this driver's, so its end would be that of others.
    let is_refused = |job| {
        let [said, log] = run(&cluster, job, FILL)?;
        ensure!(said.contains(&format!("start: {NOT_CONNECTED}")), "{said}");
        ensure!(
            log.contains(NOT_KEPT) && !log.contains(NOT_IN_PACK),
            "{log}"
        );
        Ok(())
    };
    is_refused(job)?;
    let name = ["uid-2001-1".to_owned()];
    assert_eq!(servers(node)?, name);
    let there = supervisors(node)?;
    ensure!(there.len() == 2, "{there:?}");
    let control = format!("{PACKS}/{}/{}/control", node.gpus()[0].uuid, name[0]);
    for (user, reaches) in [("alice", true), ("bob", false)] {
        let tried = node.command(user, &["test", "-e", &control]).output()?;
        assert_eq!(tried.success(), reaches, "{user}: {tried}");
    }
    // It is the same one for the next job, and for the next monitor.
    first.end()?;
    assert_eq!(supervisors(node)?, there);
    let _next = daemon(node)?;
    let other = alice.allocate(&["--gres", QUARTER])?;
    is_refused(other)?;
    cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    cluster.wait_until("the end of its conf", || {
        Ok(!node.exists(format!("/var/run/softmig/{job}.conf"))?)
    })?;
    is_refused(other)?;
    assert_eq!((servers(node)?, supervisors(node)?), (name.into(), there));
    cluster
        .run("root", &["scancel", &other.to_string()])?
        .ok()?;
    cluster.wait_until("the end of its conf", || {
        Ok(!node.exists(format!("/var/run/softmig/{other}.conf"))?)
    })?;
    let begun = Instant::now();
    cluster.wait_until("the server's end", || {
        Ok(servers(node)?.is_empty() && supervisors(node)?.is_empty())
    })?;
    println!("the server ended {:?} after the last job", begun.elapsed());
    ensure!(begun.elapsed() < Duration::from_secs(60));
    Ok(())
}

fn a_jobs_pack_is_that_of_what_slurm_says_of_it(slurm: Slurm) -> Result<()> {
    let cluster = packing(slurm)?.start()?;
    let node = cluster.node(0);
    let course = "scontrol create reservation reservationname=course users=alice start=now duration=60 nodes=ALL flags=ignore_jobs";
    cluster.run("root", &["sh", "-c", course])?.ok()?;
    let partition = cluster.run("alice", &["sinfo", "-h", "-o", "%R"])?.ok()?;
    let here = format!(
        "pack = \"user\"\npack_partitions = [\"{}\"]",
        partition.trim()
    );
    let elsewhere = "pack = \"user\"\npack_partitions = [\"other\"]";
    // FNV-1a of the names, by another program.
    let (physics, of_course) = ("account-97d1eeeb96434902", "reservation-1601c4bdf88cdd38");
    for (keys, option, pack) in [
        ("pack = \"account\"", "--account=physics", Some(physics)),
        (
            "pack = \"reservation\"",
            "--reservation=course",
            Some(of_course),
        ),
        (&here, "--account=physics", Some("user")),
        (elsewhere, "--account=physics", None),
    ] {
        node.write(POLICY, &policy_with(keys)?)?;
        let alice = cluster.user("alice");
        let job = alice.allocate(&["--reservation=course", option, "--gres", QUARTER])?;
        let conf = conf_of(&cluster, job)?;
        let its = conf
            .lines()
            .find_map(|line| line.strip_prefix("SOFTMIG_PACK="));
        assert_eq!(its, pack, "{keys} {option}: {conf}");
        cluster.run("root", &["scancel", &job.to_string()])?.ok()?;
    }
    Ok(())
}
