//! The unit that systemd starts the daemon by.

use anyhow::{Context, Result};
use serde_json::Value;
use softmig_tests::programs::FOLDER;
use softmig_tests::softmig::{enforced, stage};
use softmig_tests::units::{allowed, called};
use softmig_tests::{Gpus, Root, Slurm};

use super::daemon::Daemon;
use super::ending::{POLICY, QUARTER, WORKS, end_of, escaped, policy, start};
use super::{UNIT, job, once};

const MOUNT: &str = "usr/lib/systemd/system/run-softmig.mount";
const NOTICES: &str = "usr/lib/systemd/system/softmig-notices.service";

/// While it measures, gives seats, sees a process end, is asked who shares a GPU, and ends a process.
#[test]
fn the_unit_allows_every_system_call_of_the_daemon() -> Result<()> {
    let cluster = enforced(Slurm::V22_05)
        .programs()
        .gpus([Gpus::l40s(1)])
        .file(POLICY, policy("end = \"all\"")?)
        .start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let list = node.run_as_root(&["systemd-analyze", "--no-pager", "syscall-filter"])?;
    let mut allowed = allowed(&list.ok()?, "@system-service");
    assert!(allowed.len() > 200, "{allowed:?}");
    // Where there is a driver, it takes a process's file of that; the others are the device gate's.
    let more = ["pidfd_getfd", "bpf", "fsopen", "fsconfig", "fsmount"];
    allowed.extend(more.map(String::from));
    let unit = std::fs::read_to_string(stage().join(UNIT))?;
    let filter = format!("\nSystemCallFilter=@system-service {}\n", more.join(" "));
    assert!(unit.contains(&filter));

    let daemon = Daemon::start_by(node, "strace -D -f -qq -o /run/calls")?;
    let launches = format!("{FOLDER}/paced 1000000 1000000 async & echo \"holds: $!\"\n");
    let (id, pids) = job(&cluster, "alice", "gpu:l40s.4:1", &launches)?;
    let jobs = || -> Result<Vec<Value>> {
        let (report, _) = once(node)?;
        let jobs = report["usage"]["jobs"].as_array().cloned();
        let has_seat = |job: &Value| job["gpus"][0]["seats"][0].is_object();
        Ok(jobs.into_iter().flatten().filter(has_seat).collect())
    };
    cluster.wait_until("its turn", || {
        Ok(jobs()?.iter().any(|job| job["job"] == id))
    })?;
    node.run_as_root(&["kill", "-9", &pids[0].to_string()])?
        .ok()?;
    cluster.wait_until("its end", || Ok(jobs()?.is_empty()))?;
    let offender = start(&cluster, "bob", QUARTER, &[escaped(WORKS)])?;
    end_of(&cluster, "bob", offender, 0)?;
    daemon.end()?;

    let calls = node.read("/run/calls")?.context("no trace")?;
    let called = called(&calls);
    for call in [
        "pidfd_open",
        "memfd_create",
        "futex",
        "accept4",
        "pidfd_send_signal",
    ] {
        assert!(called.contains(call), "{called:?}");
    }
    let refused: Vec<_> = called.difference(&allowed).collect();
    assert!(refused.is_empty(), "not for the daemon: {refused:?}");
    Ok(())
}

#[test]
fn systemd_knows_every_word_of_the_units() -> Result<()> {
    for slurm in Slurm::ALL {
        let machine = Root::new(slurm).stage(stage()).start()?;
        let units = [UNIT, MOUNT, NOTICES].map(|unit| format!("/{unit}"));
        let mut words = vec!["systemd-analyze", "verify", "--man=no"];
        words.extend(units.iter().map(String::as_str));
        let output = machine.command("root", &words).output()?;
        let ours: Vec<&str> = output
            .stderr
            .lines()
            .filter(|line| line.contains("softmig"))
            .collect();
        assert!(ours.is_empty(), "{output}");
        assert!(output.success(), "{output}");
    }
    Ok(())
}
