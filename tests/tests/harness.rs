//! The test cluster itself: it comes up, runs jobs as Slurm does, and leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use softmig_tests::supervisor::node_cgroups;
use softmig_tests::{Accounting, Cluster, Gpus, Node, Root, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_job_can_be_submitted_over_rest,
    prolog_and_epilog_see_the_job;
    others:
    a_batch_job_runs,
    three_nodes_run_one_job_each,
    nodes_have_their_own_files,
    a_shard_job_opens_only_its_gpu,
    jobs_run_without_control_groups,
    an_allocation_holds_steps,
    kinds_of_gpus_mix,
    two_clusters_run_at_the_same_time,
    the_lua_stub_of_a_stage_decides,
    running_jobs_survive_a_restart_of_slurmctld,
    reconfigure_reads_the_files_again,
    a_command_that_takes_too_long_fails,
    a_broken_slurmctld_is_told_with_its_log,
    nothing_is_left_after_drop,
    nothing_is_left_when_the_test_is_killed,
);

fn a_batch_job_runs(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let alice = cluster.user("alice");
    let job = alice.sbatch(&[], "id -un; pwd; hostname; echo $SLURMD_NODENAME")?;
    cluster.wait_job(job, "COMPLETED")?;
    let expected = format!("alice\n/home/alice\nsoftmig\n{}\n", cluster.node(0).name());
    assert_eq!(alice.job_output(job)?, expected);
    Ok(())
}

fn three_nodes_run_one_job_each(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).nodes(3).start()?;
    let said = cluster
        .user("bob")
        .srun(&["-N3", "sh", "-c", "echo $SLURMD_NODENAME"])?
        .ok()?;
    let mut names: Vec<&str> = said.lines().collect();
    names.sort();
    let expected: Vec<&str> = cluster.nodes().iter().map(Node::name).collect();
    assert_eq!(names, expected);
    Ok(())
}

fn nodes_have_their_own_files(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).nodes(2).start()?;
    let (one, two) = (cluster.node(0), cluster.node(1));
    one.write("/var/run/softmig/1.conf", "hello\n")?;
    assert_eq!(one.read("/run/softmig/1.conf")?.as_deref(), Some("hello\n"));
    assert_eq!(one.list("/var/run/softmig")?, ["1.conf"]);
    assert!(!two.exists("/var/run/softmig")?);
    assert_eq!(cluster.read("/var/run/softmig/1.conf")?, None);

    let show = ["cat", "/proc/driver/nvidia/gpus/0000:41:00.0/information"];
    let (at_one, at_two) = (one.run_as_root(&show)?.ok()?, two.run_as_root(&show)?.ok()?);
    assert!(at_one.contains("Device Minor: \t 1\n"), "{at_one}");
    assert!(at_one.contains(&one.gpus()[1].uuid), "{at_one}");
    assert!(at_two.contains(&two.gpus()[1].uuid), "{at_two}");
    assert_ne!(one.gpus()[1].uuid, two.gpus()[1].uuid);

    // A job's processes live in its node.
    let sees = ["-w", one.name(), "cat", "/run/softmig/1.conf"];
    assert_eq!(cluster.user("alice").srun(&sees)?.ok()?, "hello\n");
    Ok(())
}

/// Tries to open each of four GPUs; without a driver, an open that is allowed fails with another word.
const TRY_GPUS: &str = r#"for n in 0 1 2 3; do
    case $(head -c0 /dev/nvidia$n 2>&1) in
        *"No such device"*) printf "yes ";; *"not permitted"*) printf "no ";; *) printf "? ";;
    esac
done; echo "$SLURM_JOB_GPUS $SLURM_SHARDS_ON_NODE""#;

fn a_shard_job_opens_only_its_gpu(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let alice = cluster.user("alice");
    // Fills GPU 0, so that the next job lands on GPU 1.
    let first = alice.sbatch(&["--gres=shard:l40s:4"], "sleep 600")?;
    cluster.wait_job(first, "RUNNING")?;
    let second = alice.sbatch(&["--gres=shard:l40s:1"], TRY_GPUS)?;
    cluster.wait_job(second, "COMPLETED")?;
    let fenced = cluster.constrains_devices();
    let expected = if fenced {
        "no yes no no 1 1\n"
    } else {
        "yes yes yes yes 1 1\n"
    };
    assert_eq!(alice.job_output(second)?, expected);
    let detail = cluster
        .job_field(first, "GRES")?
        .context("the first job's GRES")?;
    assert!(detail.starts_with("shard:"), "{detail}");
    Ok(())
}

fn jobs_run_without_control_groups(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).cgroups(false).start()?;
    assert!(!cluster.constrains_devices());
    let said = cluster.user("alice").srun(&[
        "--gres=shard:l40s:2",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ])?;
    assert_eq!(said.ok()?, "0\n");
    let cgroups = node_cgroups(Path::new("/sys/fs/cgroup"), &[cluster.node(0).name()]);
    assert_eq!(cgroups, Vec::<PathBuf>::new());
    Ok(())
}

fn an_allocation_holds_steps(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let alice = cluster.user("alice");
    let steps = "srun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_SHARDS_ON_NODE'; srun cat /proc/self/cgroup";
    let said = alice
        .run(&["salloc", "--gres=shard:l40s:2", "sh", "-c", steps])?
        .ok()?;
    assert!(said.starts_with("1.0 2\n"), "{said}");
    // The path that the hook will look for. It begins at the hierarchy's root, since the job has no cgroup namespace.
    let path = format!(
        ":devices:/slurm_{}/uid_2001/job_1/step_1/task_0",
        cluster.node(0).name()
    );
    assert!(
        said.contains(&path) || !cluster.constrains_devices(),
        "{said}"
    );
    let terminal = ["script", "-qec", "srun --pty tty", "/dev/null"];
    let said = alice.run(&terminal)?.ok()?;
    assert!(said.contains("/dev/pts/"), "{said}");
    Ok(())
}

fn kinds_of_gpus_mix(slurm: Slurm) -> Result<()> {
    let kinds = [
        Gpus::l40s(2),
        Gpus::new("h100", "NVIDIA H100 80GB HBM3", 1).shards(8),
    ];
    let cluster = Cluster::builder(slurm)
        .nodes(2)
        .gpus(kinds)
        .gpus_of(1, [])
        .start()?;
    let alice = cluster.user("alice");
    let show = |gres: &str| {
        alice
            .srun(&[gres, "sh", "-c", "echo $SLURMD_NODENAME $SLURM_STEP_GPUS"])?
            .ok()
    };
    let name = cluster.node(0).name();
    assert_eq!(show("--gres=shard:h100:8")?, format!("{name} 2\n"));
    assert_eq!(show("--gres=shard:l40s:3")?, format!("{name} 0\n"));
    assert_eq!(show("--gres=gpu:h100:1")?, format!("{name} 2\n"));
    assert_eq!(
        cluster.node(1).list("/proc/driver/nvidia/gpus")?,
        Vec::<String>::new()
    );
    Ok(())
}

fn two_clusters_run_at_the_same_time(slurm: Slurm) -> Result<()> {
    let one = Cluster::builder(slurm).start()?;
    let two = Cluster::builder(slurm).start()?;
    assert_ne!(one.node(0).name(), two.node(0).name());
    for cluster in [&one, &two] {
        let said = cluster
            .user("alice")
            .srun(&["sh", "-c", "echo $SLURM_JOB_ID $SLURMD_NODENAME"])?
            .ok()?;
        assert_eq!(said, format!("1 {}\n", cluster.node(0).name()));
    }
    Ok(())
}

fn prolog_and_epilog_see_the_job(slurm: Slurm) -> Result<()> {
    let note = |what: &str| {
        format!("#!/bin/bash\nmkdir -p /run/softmig; env > /run/softmig/$SLURM_JOB_ID.{what}\n")
    };
    let cluster = Cluster::builder(slurm)
        .file("/usr/libexec/softmig-prolog", note("prolog"))
        .file("/usr/libexec/softmig-epilog", note("epilog"))
        .start()?;
    let job = cluster
        .user("alice")
        .sbatch(&["--gres=shard:l40s:1", "--comment=hello"], "true")?;
    cluster.wait_job(job, "COMPLETED")?;
    let node = cluster.node(0);
    let env = node
        .read(format!("/var/run/softmig/{job}.prolog"))?
        .context("what the prolog saw")?;
    for line in [
        "SLURM_JOB_UID=2001",
        "SLURM_JOB_GPUS=0",
        "CUDA_VISIBLE_DEVICES=0",
        "SLURM_JOB_COMMENT=hello",
    ] {
        assert!(
            env.lines().any(|given| given == line),
            "no {line} in\n{env}"
        );
    }
    cluster.wait_until("the epilog ran", || {
        node.exists(format!("/run/softmig/{job}.epilog"))
    })?;
    Ok(())
}

fn the_lua_stub_of_a_stage_decides(slurm: Slurm) -> Result<()> {
    let stage = tempfile::tempdir()?;
    std::fs::create_dir_all(stage.path().join("etc/slurm"))?;
    let script = "
        function slurm_job_submit(job, part, uid)
            if job.comment == 'no' then slurm.log_user('%s', 'because') return slurm.ERROR end
            return slurm.SUCCESS
        end
        function slurm_job_modify() return slurm.SUCCESS end
        return slurm.SUCCESS";
    std::fs::write(stage.path().join("etc/slurm/job_submit.lua"), script)?;
    let cluster = Cluster::builder(slurm).stage(stage.path()).start()?;
    let alice = cluster.user("alice");
    alice.srun(&["true"])?.ok()?;
    let refused = alice.try_sbatch(&["--comment=no"], "true")?.refused()?;
    assert!(refused.contains("because"), "{refused}");
    let refused = alice.rest_submit(&json!({"comment": "no"}), "true")?;
    // The words do not reach REST, on either version; only the error number does.
    assert!(
        refused.errors()[0].contains("Unspecified error"),
        "{refused}"
    );
    assert!(!refused.to_string().contains("because"), "{refused}");
    Ok(())
}

fn a_job_can_be_submitted_over_rest(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let bob = cluster.user("bob");
    let ping = bob.rest("GET", "ping", None)?;
    assert_eq!((ping.status, ping.errors()), (200, vec![]), "{ping}");
    let gres = match slurm {
        Slurm::V22_05 => json!({"gres": "shard:l40s:2"}),
        Slurm::V24_11 | Slurm::V26_05 => json!({"tres_per_node": "gres/shard:l40s:2"}),
    };
    let job = bob
        .rest_submit(&gres, "id -un; echo $SLURM_SHARDS_ON_NODE")?
        .job()?;
    cluster.wait_job(job, "COMPLETED")?;
    assert_eq!(bob.job_output(job)?, "bob\n2\n");
    let refused = bob.rest_submit(&json!({"partition": "none"}), "true")?;
    assert!(refused.job().is_err(), "{refused}");
    assert!(refused.errors()[0].contains("partition"), "{refused}");
    Ok(())
}

fn running_jobs_survive_a_restart_of_slurmctld(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let job = cluster.user("alice").sbatch(
        &["--gres=shard:l40s:1"],
        "until test -e go; do sleep 0.1; done",
    )?;
    cluster.wait_job(job, "RUNNING")?;
    cluster.restart_slurmctld()?;
    cluster.wait_job(job, "RUNNING")?;
    // Once more the hard way: the state on disk is from the last save, which the stop above made.
    cluster.kill_slurmctld()?;
    cluster.start_slurmctld()?;
    cluster.wait_job(job, "RUNNING")?;
    cluster.write("/home/alice/go", "")?;
    cluster.wait_job(job, "COMPLETED")
}

fn reconfigure_reads_the_files_again(slurm: Slurm) -> Result<()> {
    let cluster = Cluster::builder(slurm).start()?;
    let conf = cluster
        .read("/etc/slurm/slurm.conf")?
        .context("slurm.conf")?;
    cluster.write(
        "/etc/slurm/slurm.conf",
        &conf.replace("KillWait=1", "KillWait=7"),
    )?;
    cluster.reconfigure()?;
    let shown = || cluster.run("root", &["scontrol", "show", "config"])?.ok();
    cluster.wait_until("KillWait is 7", || {
        Ok(shown()?
            .lines()
            .any(|line| line.starts_with("KillWait") && line.contains("= 7 ")))
    })?;
    cluster.user("alice").srun(&["true"])?.ok()?;
    Ok(())
}

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
