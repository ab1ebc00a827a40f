//! Memory that others may keep: it is given back when nobody does, and not before.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use softmig_fake_node::MIB;
use softmig_tests::command::PATIENCE;

use super::lives::runs;
use crate::memory::stand::{Stand, context};
use crate::memory::ways::OUT_OF_MEMORY;

/// One block of the client `exports`.
const STEP: u64 = 8 * MIB;
/// The blocks in the slice of these tests, beside two contexts.
const ALL: u64 = 40;

fn stand() -> Result<Stand> {
    Stand::new(2 * context() / MIB + ALL * STEP / MIB)
}

/// Ten times the slice, one after the other: as much is free at the end as at the beginning, and a second process agrees.
fn comes_and_goes(kind: &str, when: &str) -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["exports", "rounds", kind, when, "400"])?;
    let before = client.hears("free: ")?;
    let took = client.hears("took: ")?;
    ensure!(took == "took: blocks=400 then=0", "{kind}, {when}: {took}");
    let after = client.hears("free: ")?;
    ensure!(before == after, "{kind}, {when}: {before}, then {after}");
    let other = stand.run(&["takes", "cuMemAlloc_v2", &STEP.to_string(), "fill"])?;
    ensure!(
        other.number("took", "blocks")? >= ALL - 1,
        "{kind}, {when}: {other:#?}"
    );
    client.tell()?;
    client.end()?.check()?;
    stand.check_peaks()
}

#[test]
fn memory_whose_descriptors_are_closed_is_given_back() -> Result<()> {
    for kind in ["dma-buf", "handle", "reopened"] {
        for when in ["first", "then"] {
            comes_and_goes(kind, when)?;
        }
    }
    Ok(())
}

#[test]
fn memory_that_nobody_opened_is_given_back() -> Result<()> {
    comes_and_goes("ipc", "then")
}

/// Also if the call that maps it fails.
#[test]
fn memory_that_no_array_has_is_given_back() -> Result<()> {
    comes_and_goes("arrays", "first")?;
    comes_and_goes("arrays", "then")
}

/// The control of the tests above.
#[test]
fn memory_whose_descriptors_are_open_stays_charged() -> Result<()> {
    let stand = stand()?;
    for kind in ["dma-buf", "handle", "reopened"] {
        let mut client = stand.start(&["exports", "rounds", kind, "kept", "400"])?;
        client.hears("free: ")?;
        let took = client.hears("took: ")?;
        let then = format!("then={OUT_OF_MEMORY}");
        ensure!(took.ends_with(&then), "{took}");
        let free = client.hears("free: ")?.replace("free: ", "");
        ensure!(free.parse::<u64>()? < STEP, "{kind}: {free} bytes are free");
        // Another process finds the slice full.
        let other = stand.run(&["takes", "cuMemAlloc_v2", &STEP.to_string(), "fill"])?;
        ensure!(
            other.number("took", "blocks").unwrap_or(0) == 0,
            "{other:#?}"
        );
        client.tell()?;
        client.end()?.check()?;
    }
    stand.check_peaks()
}

#[test]
fn memory_that_another_process_had_is_given_back() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["exports", "hands-on", "maps", "400"])?;
    let took = client.hears("took: ")?;
    ensure!(took == "took: blocks=400 then=0", "{took}");
    client.tell()?;
    client.end()?.check()?;
    stand.check_peaks()
}

/// It has opened it, and not mapped it. Nothing is known of its size but what the driver counts for it.
#[test]
fn memory_that_another_process_has_stays_charged() -> Result<()> {
    for what in ["keeps", "hides"] {
        let stand = stand()?;
        let mut client = stand.start(&["exports", "hands-on", what, "400"])?;
        let took = client.hears("took: ")?;
        let then = format!("then={OUT_OF_MEMORY}");
        ensure!(took.ends_with(&then), "{what}: {took}");
        client.tell()?;
        client.end()?.check()?;
        stand.check_peaks()?;
    }
    Ok(())
}

fn ended(child: &str) {
    let deadline = Instant::now() + PATIENCE;
    while runs(child) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many blocks a new process gets.
fn room(stand: &Stand) -> Result<u64> {
    let said = stand.run(&["takes", "cuMemAlloc_v2", &STEP.to_string(), "fill"])?;
    said.number("took", "blocks")
}

#[test]
fn memory_that_outlives_its_process_stays_charged_as_long() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["exports", "leaves", &(ALL / 2).to_string()])?;
    let child = client.hears("forked: ")?.replace("forked: ", "");
    client.kill()?;
    let rest = ALL / 2 + context() / STEP;
    for _ in 0..3 {
        let room = room(&stand)?;
        ensure!((rest - 2..=rest + 1).contains(&room), "{room}");
    }
    // The end of its input ends the child.
    drop(client);
    ended(&child);
    let room = room(&stand)?;
    ensure!(room >= ALL - 1, "{room}");
    stand.check_peaks()
}

#[test]
fn a_child_that_has_closed_the_drivers_files_keeps_nothing() -> Result<()> {
    let stand = stand()?;
    let mut client = stand.start(&["exports", "closes", &ALL.to_string()])?;
    let child = client.hears("forked: ")?.replace("forked: ", "");
    client.kill()?;
    ensure!(runs(&child), "the child is gone");
    let room = room(&stand)?;
    ensure!(room >= ALL - 1, "{room}");
    ensure!(runs(&child), "the child is gone");
    drop(client);
    ended(&child);
    stand.check_peaks()
}
