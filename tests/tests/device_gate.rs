//! The device gate on a node: jobs with slices, whole GPUs and none, with the monitor and without it.
//!
//! No driver is behind the devices: to open one that is not refused gives "No such device or address".

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::{installed, stage};
use softmig_tests::{Client, Cluster, Gpus, Node, Slurm, on_each_slurm};

on_each_slurm!(
    only_programs_with_the_library_open_a_slices_gpu,
    a_gate_without_its_monitor_is_closed,
    a_node_that_cannot_have_a_gate_goes_on_without_one,
);

const MONITOR: &str = "/usr/libexec/softmig-monitor";
const UNIT: &str = "usr/lib/systemd/system/softmig-monitor.service";
const NODE_CONF: &str = "/etc/softmig/node.conf";
const LOG: &str = "/var/log/softmig/node.log";
const LINK: &str = "/sys/fs/bpf/softmig/link";

const REFUSED: &str = "Operation not permitted";
const PASSED: &str = "No such device or address";

/// A node that is to have a gate.
fn cluster(slurm: Slurm) -> Result<Cluster> {
    let policy = std::fs::read_to_string(stage().join("etc/softmig/policy.toml"))?;
    ensure!(policy.contains("\ndevice_gate = false\n"));
    let with_gate = format!("\ndevice_gate = true\nlog_file = \"{LOG}\"\n");
    installed(slurm)
        .programs()
        .gpus([Gpus::l40s(2)])
        .file(
            "/etc/softmig/policy.toml",
            policy.replace("\ndevice_gate = false\n", &with_gate),
        )
        .file(NODE_CONF, "SOFTMIG_NODE=enforce\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .start()
}

/// Whether this machine permits root what the gate needs. If not, the test says so.
fn is_permitted(node: &Node) -> Result<bool> {
    let mounted = node.run_as_root(&["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])?;
    let checked = node.run_as_root(&["softmig", "check", "--node"])?;
    let is_refused = checked
        .stdout
        .lines()
        .any(|line| line.contains("the device gate") && line.contains("not permitted"));
    if !mounted.status.success() || is_refused {
        eprintln!("skipped: not permitted here: {mounted} {checked}");
        return Ok(false);
    }
    ensure!(checked.stdout.contains("DEVICE_GATE"), "{checked}");
    Ok(true)
}

/// The monitor, with no more rights than its unit gives it.
fn monitor(node: &Node) -> Result<Client> {
    let unit = std::fs::read_to_string(stage().join(UNIT))?;
    let rights = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let rights = rights.context("no rights in the unit")?.to_lowercase();
    let rights = rights.replace("cap_", "+").replace(' ', ",");
    let line = format!(
        "echo $$ >/run/monitor.pid; exec setpriv --bounding-set=-all,{rights} --inh-caps=-all --no-new-privs {MONITOR}"
    );
    node.command("root", &["sh", "-c", &line]).spawn()
}

fn has_gate(node: &Node) -> Result<bool> {
    Ok(node.run_as_root(&["test", "-e", LINK])?.status.success())
}

/// What these lines of a shell print in a job.
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
    // What starts before there is a gate runs without one, to its end.
    let early = cluster.user("bob").sbatch(
        &["--gres", "gpu:l40s.4:1"],
        &format!("until test -e /tmp/go; do sleep 0.1; done; {FOLDER}/opens gpu"),
    )?;
    cluster.wait_until("its start", || {
        Ok(node.read(format!("/run/softmig/{early}.conf"))?.is_some())
    })?;
    let monitor = monitor(node)?;
    cluster.wait_until("the gate", || has_gate(node))?;
    node.run_as_root(&["touch", "/tmp/go"])?.ok()?;
    cluster.wait_for("its output", Duration::from_secs(60), || {
        let said = cluster.user("bob").job_output(early)?;
        Ok(said.contains(PASSED).then_some(()))
    })?;

    // What opens the device without a call of CUDA or NVML is refused, as is a child that makes none of its own.
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
    let first = monitor(node)?;
    cluster.wait_until("the gate", || has_gate(node))?;
    node.run_as_root(&["sh", "-c", "kill -9 $(cat /run/monitor.pid)"])?
        .ok()?;
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
    let _next = monitor(node)?;
    let socket = "/run/softmig/arbiter.sock";
    cluster.wait_until("the next monitor", || {
        Ok(node.run_as_root(&["test", "-S", socket])?.status.success())
    })?;
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
    let _monitor = monitor(node)?;
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
