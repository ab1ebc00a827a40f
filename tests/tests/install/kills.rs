//! The command is killed at each of its steps.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use softmig_tests::{Machine, Slurm};

use crate::install::place::{SOFTMIG, healthy, in_machine, root, shell, softmig, state};
use crate::install::workshop::Workshop;

/// The calls that change files or say something: the command is killed before each one that it makes.
const CALLS: [&str; 8] = [
    "mkdirat", "fsync", "fchmod", "fchown", "linkat", "unlinkat", "renameat", "write",
];

/// Runs softmig and kills it before the `at`-th `call`; whether it lived to its end.
fn survives(machine: &Machine, call: &str, at: u32, words: &[&str]) -> Result<bool> {
    let trace = format!("trace={call}");
    let kill = format!("inject={call}:signal=KILL:when={at}");
    let strace = [
        "strace",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &kill,
        SOFTMIG,
    ];
    let ran = machine
        .command("root", &[&strace, words].concat())
        .output()?;
    // strace ends as the command did; nsenter makes a number of it.
    let killed = ran.status.code() == Some(128 + 9) || ran.status.signal() == Some(9);
    ensure!(ran.success() || killed, "{words:?}: {ran}");
    Ok(ran.success())
}

/// From the state that `prepare` makes, kills the command at each of its steps in turn. Returns how many there were.
fn kill_at_each_step(machine: &Machine, prepare: &[&str], words: &[&str]) -> Result<u32> {
    let is_install = words.first() == Some(&"install");
    let empty = state(machine)?;
    let mut kills = 0;
    for call in CALLS {
        for at in 1.. {
            let step = format!("{words:?} killed before {call} {at}");
            if !prepare.is_empty() {
                softmig(machine, prepare)?.ok()?;
            }
            let survived = survives(machine, call, at, words)?;
            healthy(machine).context(step.clone())?;
            // The command can be run again, and undone.
            softmig(machine, words)?.ok().context(step.clone())?;
            ensure!(healthy(machine)? == is_install, "{step}");
            softmig(machine, &["uninstall", "--hook"])?.ok()?;
            let after = state(machine)?;
            ensure!(after == empty, "{step}: {after}");
            shell(machine, "rm -r /etc/softmig")?;
            if survived {
                break;
            }
            kills += 1;
        }
    }
    Ok(kills)
}

#[test]
fn a_kill_at_any_step_leaves_a_node_that_works() -> Result<()> {
    let workshop = Workshop::open()?;
    let (old, new) = (workshop.harmless(1)?, workshop.harmless(2)?);
    let machine = root(Slurm::V22_05, &[&old, &new])?.start()?;
    shell(&machine, "mkdir /usr/lib/softmig")?;
    let path = |library: &Path| anyhow::Ok(in_machine(library)?.display().to_string());
    let (old, new) = (path(&old)?, path(&new)?);
    let (old, new) = (
        ["install", "--hook", "--from", &old],
        ["install", "--hook", "--from", &new],
    );
    for (prepare, words, least) in [
        (&[][..], &new[..], 15),
        (&old, &new, 10),
        (&old, &["uninstall", "--hook"], 5),
    ] {
        let kills = kill_at_each_step(&machine, prepare, words)?;
        assert!(kills >= least, "{words:?}: only {kills} steps were seen");
    }
    Ok(())
}
