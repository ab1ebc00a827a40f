//! Limits that a user sets for himself, without Slurm.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use softmig_fake_node::MIB;
use softmig_tests::programs::{FOLDER, LIBRARY, PRELOAD};
use softmig_tests::softmig::stage;
use softmig_tests::{Client, Gpus, Machine, Root, Slurm};

use crate::views::look::{COMPUTE, Look};

const GIB: u64 = 1024 * MIB;

/// A machine with two GPUs and the library in every process.
fn machine() -> Result<Machine> {
    let machine = Root::new(Slurm::V22_05)
        .stage(stage())
        .programs()
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .node("n1", [Gpus::l40s(2)])
        .start()?;
    machine.nodes()[0].start_driver()?;
    Ok(machine)
}

/// Looks under limits.
fn look(machine: &Machine, limits: &str, what: &str) -> Result<Look> {
    let line = format!("{limits} {FOLDER}/views {what}");
    let call = machine.nodes()[0].command("alice", &["bash", "-c", &line]);
    Look::with_library(&call.output()?)
}

/// A process of alice's that holds memory of the first GPU.
fn holder(machine: &Machine, limits: &str, mib: u64) -> Result<(Client, u32)> {
    let line = format!("{limits} exec {FOLDER}/views hold {mib}");
    let mut client = machine.nodes()[0]
        .command("alice", &["bash", "-c", &line])
        .spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = client.stdout()?;
        if let Some((pid, _)) = said
            .strip_prefix("holds: ")
            .and_then(|pid| pid.split_once('\n'))
        {
            return Ok((client, pid.parse()?));
        }
        ensure!(
            client.runs()? && Instant::now() < deadline,
            "{said}{}",
            client.stderr()?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_limit_of_ones_own_is_the_gpu_and_hides_other_processes() -> Result<()> {
    let machine = machine()?;
    let (_other, _) = holder(&machine, "", 100)?;
    let limits = "CUDA_DEVICE_MEMORY_LIMIT=1g";
    let seen = look(&machine, limits, "look")?;
    for gpu in [0, 1] {
        assert_eq!(seen.at(gpu).memory("")?, (GIB, 0, GIB));
        seen.at(gpu).assert_users(&[])?;
    }
    let seen = look(&machine, limits, "both")?;
    let (total, used, free) = seen.memory("later ")?;
    assert_eq!(total, GIB);
    assert!(used > 64 * MIB, "{used}");
    assert_eq!(seen.figures("later cuMemGetInfo_v2")?, [free, GIB]);
    // Old programs are told what 32 bits can count; their context is one more.
    assert_eq!(seen.figures("later cuDeviceTotalMem")?, [GIB]);
    let old = seen.figures("later cuMemGetInfo")?;
    assert!(old[0] <= free && old[1] == GIB, "{old:?}");
    assert_eq!(seen.listed(COMPUTE[2])?.len(), 1);
    // A GPU has no more than it has.
    let seen = look(&machine, "CUDA_DEVICE_MEMORY_LIMIT=900g", "both")?;
    let total = seen.figures("cuDeviceTotalMem_v2")?;
    assert_eq!(seen.memory("")?.0, total[0]);
    assert_eq!(seen.figures("cuMemGetInfo_v2")?[1], total[0]);
    assert!(total[0] < 46068 * MIB, "{total:?}");
    // The control: without a limit it is the other's as well.
    let seen = look(&machine, "", "look")?;
    assert_eq!(seen.figures("nvmlDeviceGetMemoryInfo")?[0], 46068 * MIB);
    assert_eq!(seen.listed(COMPUTE[2])?.len(), 1);
    // Nor do limits on time alone say anything of memory.
    let timed = look(&machine, "CUDA_DEVICE_SM_LIMIT=25", "look")?;
    assert_eq!(
        timed.figures("nvmlDeviceGetMemoryInfo")?,
        seen.figures("nvmlDeviceGetMemoryInfo")?
    );
    timed.assert_users(&[])
}

#[test]
fn the_processes_of_one_run_see_each_other() -> Result<()> {
    let machine = machine()?;
    // On a file system of its own: in an overlay a mapping does not keep its file's locks.
    let ledger = "ledger=/tmp/ledger; (umask 077; truncate --size 200K $ledger)";
    let limits = format!("{ledger}; CUDA_DEVICE_MEMORY_LIMIT=1g SOFTMIG_RUN=$ledger");
    let (mut one, first) = holder(&machine, &limits, 100)?;
    let (_two, second) = holder(&machine, &limits, 50)?;
    // Neither by the same limit alone, nor by a run of another name.
    let (_other, _) = holder(&machine, "CUDA_DEVICE_MEMORY_LIMIT=1g", 30)?;
    let longer = limits.replace("/ledger", "/ledger2");
    let (_another, another) = holder(&machine, &longer, 30)?;
    let seen = look(&machine, &limits, "look")?;
    seen.assert_users(&[first, second])?;
    let (total, used, _) = seen.memory("")?;
    assert_eq!(total, GIB);
    assert!(used >= 150 * MIB, "{used}");
    look(&machine, &longer, "look")?.assert_users(&[another])?;
    one.kill()?;
    let seen = look(&machine, &limits, "look")?;
    seen.assert_users(&[second])?;
    assert!(seen.memory("")?.1 <= used - 100 * MIB);
    Ok(())
}

#[test]
fn a_limit_of_one_gpu_is_shown_on_that_gpu() -> Result<()> {
    let machine = machine()?;
    let uuids: Vec<&str> = machine.nodes()[0]
        .gpus()
        .iter()
        .map(|gpu| gpu.uuid.as_str())
        .collect();
    let totals = |visible: &str, what: &str| -> Result<[u64; 2]> {
        let limits = format!("{visible} CUDA_DEVICE_MEMORY_LIMIT_0=1g");
        let seen = look(&machine, &limits, what)?;
        let total =
            |gpu| -> Result<u64> { Ok(seen.at(gpu).figures("nvmlDeviceGetMemoryInfo")?[0]) };
        Ok([total(0)?, total(1)?])
    };
    let whole = 46068 * MIB;
    let second = format!("CUDA_VISIBLE_DEVICES={}", uuids[1]);
    for (visible, expected) in [
        ("", [GIB, whole]),
        ("CUDA_VISIBLE_DEVICES=0,1", [GIB, whole]),
        ("CUDA_VISIBLE_DEVICES=1,0", [whole, GIB]),
        ("CUDA_VISIBLE_DEVICES=1", [whole, GIB]),
        (&second, [whole, GIB]),
    ] {
        // By the variable alone, and as CUDA has it.
        for what in ["look", "both"] {
            assert_eq!(totals(visible, what)?, expected, "{visible} {what}");
        }
    }
    let none = "CUDA_VISIBLE_DEVICES=";
    assert_eq!(totals(none, "look")?, [whole, whole]);
    Ok(())
}
