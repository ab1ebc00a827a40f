//! The device gate on a node: jobs with slices, whole GPUs and none, with the monitor and without it.
//!
//! No driver is behind the devices: to open one that is not refused gives "No such device or address".

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::{enforced, stage};
use softmig_tests::{Cluster, Gpus, Node, Slurm, on_each_slurm};

on_each_slurm!(
    only_programs_with_the_library_open_a_slices_gpu,
    a_gate_without_its_monitor_is_closed,
    a_node_that_cannot_have_a_gate_goes_on_without_one,
);

const MONITOR: &str = "/usr/libexec/softmig-monitor";
const UNIT: &str = "usr/lib/systemd/system/softmig-monitor.service";
const LOG: &str = "/var/log/softmig/node.log";
const LINK: &str = "/sys/fs/bpf/softmig/link";

const REFUSED: &str = "Operation not permitted";
const PASSED: &str = "No such device or address";

/// A node that is to have a gate. Its jobs' numbers are no other cluster's on this machine: jobs are known by them in the
/// kernel, which all clusters share.
fn cluster(slurm: Slurm) -> Result<Cluster> {
    static CLUSTERS: AtomicU32 = AtomicU32::new(1);
    let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    let first = 1_000_000 + std::process::id() % 100_000 * 500 + number * 50;
    let policy = include_str!("../../conf/policy.toml");
    ensure!(policy.contains("\ndevice_gate = false\n"));
    let with_gate = format!("\ndevice_gate = true\nlog_file = \"{LOG}\"\n");
    enforced(slurm)
        .programs()
        .gpus([Gpus::l40s(1)])
        .slurm_conf(format!("FirstJobId={first}"))
        .file(
            "/etc/softmig/policy.toml",
            policy.replace("\ndevice_gate = false\n", &with_gate),
        )
        .start()
}

/// Gives the node a bpf file system. `false`, with a line that says so, where this machine permits root no BPF programs.
fn is_permitted(node: &Node) -> Result<bool> {
    let mounted = node.run_as_root(&["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])?;
    let folder = node.path("/sys/fs/bpf")?.join("test");
    match softmig_gate::check(&folder) {
        Err(error) if error.is_permission() => {
            eprintln!("skipped: not permitted here: {error}");
            return Ok(false);
        }
        checked => checked?,
    }
    mounted.ok()?;
    Ok(true)
}

/// The monitor, with no more rights than its unit gives it. On a real node processes have the kernel's own numbers, and on
/// this one they have others. So it runs outside of it, with the node's files.
struct Monitor(Child);

impl Monitor {
    fn start(node: &Node) -> Result<Self> {
        let unit = std::fs::read_to_string(stage().join(UNIT))?;
        let rights = unit
            .lines()
            .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let rights = rights.context("no rights in the unit")?.to_lowercase();
        let rights = rights.replace("cap_", "+").replace(' ', ",");
        let run = format!(
            "mount -t proc proc /proc; \
             exec setpriv --bounding-set=-all,{rights} --inh-caps=-all --no-new-privs {MONITOR}"
        );
        // It sees the mounts of jobs, as a service does.
        node.run_as_root(&["mount", "--make-rshared", "/"])?.ok()?;
        let root = node.path("/")?;
        let pid = root.components().nth(2).context("no process of the node")?;
        let monitor = Command::new("nsenter")
            .arg("--target")
            .arg(pid)
            .args([
                "--mount",
                "--net",
                "--",
                "unshare",
                "--mount",
                "--propagation=slave",
                "sh",
                "-ec",
                &run,
            ])
            .stdin(Stdio::null())
            .spawn();
        Ok(Self(monitor.context("starting nsenter")?))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_gate(node: &Node) -> Result<bool> {
    Ok(node.run_as_root(&["test", "-e", LINK])?.status.success())
}

/// The output of these shell lines in a job.
fn run(cluster: &Cluster, gres: &str, lines: &str) -> Result<Vec<String>> {
    let lines = lines.replace("opens ", &format!("{FOLDER}/opens "));
    let job = cluster
        .user("alice")
        .srun(&["--gres", gres, "bash", "-c", &lines])?;
    Ok(job.ok()?.lines().map(str::to_owned).collect())
}

fn only_programs_with_the_library_open_a_slices_gpu(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    let node = cluster.node(0);
    if !is_permitted(node)? {
        return Ok(());
    }
    // A job from before the gate runs without one, to its end.
    let early = cluster.user("bob").sbatch(
        &["--gres", "gpu:l40s.4:1"],
        &format!("until test -e /tmp/go; do sleep 0.1; done; {FOLDER}/opens gpu"),
    )?;
    cluster.wait_until("its start", || {
        Ok(node.read(format!("/run/softmig/{early}.conf"))?.is_some())
    })?;
    let monitor = Monitor::start(node)?;
    cluster.wait_until("the gate", || has_gate(node))?;
    node.run_as_root(&["touch", "/tmp/go"])?.ok()?;
    let said = cluster.wait_for("its output", || {
        let said = cluster.user("bob").job_output(early)?;
        Ok((!said.is_empty()).then_some(said))
    })?;
    assert_eq!(said.trim(), PASSED);

    // A program without a call of CUDA or NVML is refused the device, as is a child that makes none of its own.
    let slice = run(
        &cluster,
        "gpu:l40s.4:1",
        "opens gpu; opens cuda gpu; opens nvml gpu; opens cuda gpu cuda gpu; opens cuda fork gpu; opens cuda fork cuda gpu; \
         unshare --user --map-root-user --mount bash -c 'mount --bind /dev/null /etc/ld.so.preload; opens cuda gpu'; \
         opens cuda gpu",
    )?;
    assert_eq!(
        slice,
        [
            REFUSED, PASSED, PASSED, PASSED, PASSED, REFUSED, PASSED, REFUSED, PASSED
        ]
    );
    cluster.wait_until("a line in the node's log", || {
        let log = node.read(LOG)?.unwrap_or_default();
        Ok(log.contains("may not open /dev/nvidia0"))
    })?;

    // A job stays long enough for its log.
    let told = run(
        &cluster,
        "gpu:l40s.4:1",
        "opens gpu; log=/run/softmig/jobs/$SLURM_JOB_ID/log; for i in $(seq 300); do grep -q refused $log && break; sleep 0.1; \
         done; cat $log",
    )?;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[1].contains("refused /dev/nvidia0: this process does not have softmig's library"),
        "{told:?}"
    );

    let whole = run(&cluster, "gpu:l40s:1", "opens gpu; opens cuda gpu")?;
    assert_eq!(whole, [PASSED, PASSED]);
    let root = node.run_as_root(&[&format!("{FOLDER}/opens"), "gpu"])?;
    assert_eq!(root.ok()?.trim(), PASSED);

    // Off, and all is as without it.
    let said = node.run_as_root(&["softmig", "node", "off"])?.ok()?;
    assert!(said.contains("the device gate is gone"), "{said}");
    assert_eq!(run(&cluster, "gpu:l40s.4:1", "opens gpu")?, [PASSED]);
    ensure!(!has_gate(node)?);
    node.run_as_root(&["softmig", "node", "enforce"])?.ok()?;
    cluster.wait_until("the gate again", || has_gate(node))?;
    assert_eq!(
        run(&cluster, "gpu:l40s.4:1", "opens gpu; opens cuda gpu")?,
        [REFUSED, PASSED]
    );
    drop(monitor);
    Ok(())
}

fn a_gate_without_its_monitor_is_closed(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    let node = cluster.node(0);
    if !is_permitted(node)? {
        return Ok(());
    }
    let granting = || -> Result<usize> {
        let log = node.read(LOG)?.unwrap_or_default();
        Ok(log.matches("giving seats").count())
    };
    let first = Monitor::start(node)?;
    // Both: a monitor that is killed between them leaves no line.
    cluster.wait_until("the first monitor and its gate", || {
        Ok(granting()? == 1 && has_gate(node)?)
    })?;
    // By SIGKILL.
    drop(first);
    // It waits for a monitor, but not for ever.
    let closed = run(
        &cluster,
        "gpu:l40s.4:1",
        "opens cuda gpu; cat /run/softmig/jobs/$SLURM_JOB_ID/log",
    )?;
    assert_eq!(closed.len(), 2, "{closed:?}");
    assert_eq!(closed[0], REFUSED);
    assert!(
        closed[1].contains("softmig-monitor did not admit this process"),
        "{closed:?}"
    );
    assert_eq!(run(&cluster, "gpu:l40s:1", "opens gpu")?, [PASSED]);
    let _next = Monitor::start(node)?;
    cluster.wait_until("the next monitor", || Ok(granting()? == 2))?;
    assert_eq!(
        run(&cluster, "gpu:l40s.4:1", "opens gpu; opens cuda gpu")?,
        [REFUSED, PASSED]
    );
    Ok(())
}

/// No bpf file system is there.
fn a_node_that_cannot_have_a_gate_goes_on_without_one(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)?;
    let node = cluster.node(0);
    let _monitor = Monitor::start(node)?;
    cluster.wait_until("a line in the log", || {
        let log = node.read(LOG)?.unwrap_or_default();
        Ok(log.contains("the device gate: /sys/fs/bpf/softmig is not in a bpf file system"))
    })?;
    assert_eq!(
        run(&cluster, "gpu:l40s.4:1", "opens gpu; opens cuda gpu")?,
        [PASSED, PASSED]
    );
    let log = node.read(LOG)?.unwrap_or_default();
    assert!(log.contains("runs without the device gate"), "{log}");
    let checked = node.run_as_root(&["softmig", "check", "--node"])?;
    assert!(checked.stdout.contains("DEVICE_GATE"), "{checked}");
    assert!(
        checked.stdout.contains("is not in a bpf file system"),
        "{checked}"
    );
    Ok(())
}
