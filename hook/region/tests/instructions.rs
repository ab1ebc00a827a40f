//! A process killed at any instruction leaves an account that is exact once its slot is cleared.
//!
//! The process leaves nothing but the file, so every state of the file is looked at as if it was the last.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::atomic::Ordering::SeqCst;

use support::{Mapped, join, make, open, reap, start, started};

const LIMIT: u32 = 20;
/// The slots of the one that is killed and of those that live.
const DEAD: usize = 2;
const ALIVE: [(usize, u32); 2] = [(0, 3), (1, 4)];
/// The slot of one that was killed before and not cleared.
const LONG_DEAD: usize = 3;

/// The work of the process between two stops.
#[test]
fn process() {
    let Some(path) = started() else { return };
    let (slot, mapped) = join(&path, 1, |_| ());
    assert_eq!(slot, DEAD);
    let gpu = mapped.gpu(0);
    // SAFETY: no pointers.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    stop();
    gpu.reserve(slot, 2, LIMIT).unwrap();
    gpu.refund(slot, 1);
    gpu.reserve(slot, 1, LIMIT).unwrap();
    // With what the others gave back.
    gpu.reserve(slot, 9, LIMIT).unwrap();
    gpu.reserve(slot, LIMIT, LIMIT).unwrap_err();
    gpu.charge(slot, 5);
    gpu.refund(slot, 16);
    gpu.clear(LONG_DEAD);
    gpu.reserve(slot, 2, LIMIT).unwrap();
    stop();
}

fn stop() {
    // SAFETY: numbers.
    unsafe { libc::raise(libc::SIGSTOP) };
}

#[test]
fn killed_at_any_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    make(&path, 1);
    let living = ALIVE.map(|(slot, units)| {
        let (found, mapped) = join(&path, 1, |_| ());
        assert_eq!(found, slot);
        mapped.gpu(0).reserve(slot, units + 3, LIMIT).unwrap();
        mapped.gpu(0).refund(slot, 3);
        mapped
    });
    let mapped = living[0];
    mapped.ledger().use_slot(LONG_DEAD);
    mapped.gpu(0).reserve(LONG_DEAD, 2, LIMIT).unwrap();

    let mut child = start("process", &path);
    // Its thread that does the calls.
    let thread = wait(-1).expect("it stops before the calls");
    let (mut instructions, mut states) = (0, 0);
    let mut last = Vec::new();
    while step(thread) {
        instructions += 1;
        let now = words(mapped);
        if now != last {
            states += 1;
            let copy = folder.path().join(format!("{states}"));
            std::fs::copy(&path, &copy).unwrap();
            check(Mapped::new(&open(&copy)));
            last = now;
        }
    }
    child.kill().unwrap();
    // A tracer waits for its thread first.
    wait(thread);
    let _ = child.wait();
    println!("{instructions} instructions, {states} states");
    // A grant is two, and each call changes something.
    assert!(states > 12);
    assert_eq!(mapped.gpu(0).held_by(DEAD), 2);
    assert_eq!(reap(&path, mapped, 5, |_| ()), 1);
    check(mapped);
}

/// All that the calls change.
fn words(mapped: Mapped) -> Vec<u64> {
    let slots = (0..5).map(|slot| 4096 + 64 * slot);
    (0..48)
        .map(|word| 8 * word)
        .chain(slots)
        .map(|place| mapped.word(place).load(SeqCst))
        .collect()
}

fn check(mapped: Mapped) {
    let gpu = mapped.gpu(0);
    for dead in [DEAD, LONG_DEAD] {
        gpu.clear(dead);
    }
    let kept: u32 = ALIVE.iter().map(|(_, units)| units).sum();
    assert_eq!(gpu.held(), kept.into());
    for (slot, units) in ALIVE {
        assert_eq!(gpu.held_by(slot), units);
    }
    gpu.reserve(DEAD, LIMIT - kept, LIMIT).unwrap();
    gpu.reserve(DEAD, 1, LIMIT).unwrap_err();
}

/// Does one instruction; false at the second stop.
fn step(thread: i32) -> bool {
    // SAFETY: a child that is stopped; no pointers.
    let done = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    wait(thread).is_none()
}

/// Waits for a thread of a child; returned is one that stopped by itself, not for a step.
fn wait(thread: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: a place for the status.
    let found = unsafe { libc::waitpid(thread, &mut status, libc::__WALL) };
    let stopped = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSTOP;
    stopped.then_some(found)
}
