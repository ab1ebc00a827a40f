//! Processes of one node that see each other. Each `Process` here plays one. Its mapping makes it alive, and dropping
//! it takes the mapping away as a death does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::time::Duration;

use softmig_fake_node::{
    AttachError, Clock, Description, Gpu, Kind, MIB, MemoryError, Node, NodeError, Process,
};

struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node");
    Place { _dir: dir, path }
}

fn two_l40s() -> (Place, Node) {
    let place = place();
    let node = Node::create(&place.path, &Gpu::several(2, Gpu::l40s)).unwrap();
    (place, node)
}

#[test]
fn without_a_file_no_node_opens() {
    let place = place();
    assert!(matches!(
        Process::attach(&place.path),
        Err(AttachError::Absent)
    ));
    std::fs::write(&place.path, "something else").unwrap();
    assert!(matches!(
        Process::attach(&place.path),
        Err(AttachError::Node(NodeError::Foreign { .. }))
    ));
}

#[test]
fn memory_is_counted_by_device_process_and_kind() {
    let (place, node) = two_l40s();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    one.charge(0, Kind::Context, 370 * MIB).unwrap();
    one.charge(0, Kind::Alloc, 100 * MIB).unwrap();
    other.charge(0, Kind::Alloc, 7 * MIB).unwrap();
    other.charge(1, Kind::Pool, 32 * MIB).unwrap();
    one.refund(0, Kind::Alloc, 40 * MIB);

    let usage = node.usage().unwrap();
    assert_eq!(usage[0].used, (370 + 60 + 7) * MIB);
    assert_eq!(usage[0].processes.len(), 2);
    let first = &usage[0].processes[0];
    assert_eq!(first.pid, Some(std::process::id()));
    assert_eq!(first.bytes.of(Kind::Context), 370 * MIB);
    assert_eq!(first.bytes.of(Kind::Alloc), 60 * MIB);
    assert_eq!(first.peak, 470 * MIB);
    assert_eq!(usage[1].processes.len(), 1);
    assert_eq!(usage[1].processes[0].bytes.of(Kind::Pool), 32 * MIB);
}

#[test]
fn the_most_that_was_taken_counts_the_living_only() {
    let (place, node) = two_l40s();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    one.charge(0, Kind::Alloc, 100 * MIB).unwrap();
    other.charge(0, Kind::Alloc, 50 * MIB).unwrap();
    other.refund(0, Kind::Alloc, 50 * MIB);
    other.create_block(0, 20 * MIB).unwrap();
    assert_eq!((node.peak(0), node.peak(1)), (150 * MIB, 0));
    node.forget_peak(0);
    assert_eq!(node.peak(0), 120 * MIB);
    drop(one);
    other.charge(0, Kind::Alloc, 92 * MIB).unwrap();
    assert_eq!(node.peak(0), 120 * MIB);
    other.charge(0, Kind::Alloc, 10 * MIB).unwrap();
    assert_eq!(node.peak(0), 122 * MIB);
    let history = node.history(0).unwrap();
    assert_eq!(history.last().unwrap().peak, 122 * MIB);
}

#[test]
fn a_full_device_refuses_until_a_process_dies() {
    let (place, node) = two_l40s();
    let all = node.description().device(0).unwrap().usable();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    one.charge(0, Kind::Alloc, all - MIB).unwrap();
    assert_eq!(other.free(0), MIB);
    assert_eq!(
        other.charge(0, Kind::Alloc, 2 * MIB),
        Err(MemoryError::Full)
    );
    drop(one);
    other.charge(0, Kind::Alloc, 2 * MIB).unwrap();
    assert_eq!(node.usage().unwrap()[0].used, 2 * MIB);
}

#[test]
fn memory_of_the_dead_lingers_where_that_is_asked_for() {
    let place = place();
    let description = Description::new(&[Gpu::l40s(0)]).driven();
    let description = description.lingering(Duration::from_millis(50));
    let node = Node::describe(&place.path, description).unwrap();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    let all = node.description().device(0).unwrap().usable();
    one.charge(0, Kind::Alloc, all - MIB).unwrap();
    drop(one);
    assert_eq!(node.usage().unwrap()[0].used, all - MIB);
    assert_eq!(
        other.charge(0, Kind::Alloc, 2 * MIB),
        Err(MemoryError::Full)
    );
    node.advance(Duration::from_millis(50)).unwrap();
    other.charge(0, Kind::Alloc, 2 * MIB).unwrap();
    assert_eq!(node.usage().unwrap()[0].used, 2 * MIB);
}

#[test]
fn a_process_that_needs_memory_of_dead_ones_waits_for_it() {
    let place = place();
    let description = Description::new(&[Gpu::l40s(0)]).lingering(Duration::from_millis(20));
    let node = Node::describe(&place.path, description).unwrap();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    let all = node.description().device(0).unwrap().usable();
    one.charge(0, Kind::Alloc, all).unwrap();
    drop(one);
    let before = node.now();
    other.charge(0, Kind::Alloc, all).unwrap();
    assert!(node.now() - before >= 20_000_000);
}

#[test]
fn a_process_that_has_left_takes_no_memory() {
    let (place, node) = two_l40s();
    let process = Process::attach(&place.path).unwrap();
    process.charge(0, Kind::Alloc, MIB).unwrap();
    process.leave();
    assert_eq!(node.usage().unwrap()[0].used, 0);
    assert_eq!(process.charge(0, Kind::Alloc, MIB), Err(MemoryError::Ended));
    process.leave();
    assert_eq!(node.usage().unwrap()[0].used, 0);
}

#[test]
fn a_block_lives_until_all_have_let_go() {
    let (place, node) = two_l40s();
    let maker = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    let block = maker.create_block(1, 64 * MIB).unwrap();
    let descriptor = maker.export_block(block.id).unwrap();
    let same = other.hold_block_of(&descriptor).unwrap();
    assert_eq!(same, block);

    let owner = |node: &Node| {
        let usage = node.usage().unwrap();
        assert_eq!(usage[1].used, 64 * MIB);
        usage[1].processes.first().map(|process| process.slot)
    };
    let made_by = owner(&node);
    drop(maker);
    let inherited_by = owner(&node);
    assert_ne!(made_by, inherited_by);
    other.drop_block(block.id);
    // Only the descriptor keeps it alive now, and it counts for no process.
    assert_eq!(owner(&node), None);
    drop(descriptor);
    assert_eq!(node.usage().unwrap()[1].used, 0);
    assert!(other.open_block(block.id).is_err());
}

#[test]
fn a_foreign_file_does_not_open_as_a_block() {
    let (place, _node) = two_l40s();
    let process = Process::attach(&place.path).unwrap();
    let file = tempfile::tempfile().unwrap();
    assert_eq!(process.hold_block_of(&file), None);
}

#[test]
fn calls_stay_known_after_death() {
    let (place, node) = two_l40s();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    let function = one.function("cuMemAlloc_v2").unwrap();
    assert_eq!(other.function("cuMemAlloc_v2"), Some(function));
    assert_ne!(other.function("cuMemFree_v2"), Some(function));
    one.count(function);
    one.count(function);
    other.count(function);
    drop(one);
    assert_eq!(node.all_calls("cuMemAlloc_v2"), 3);
    assert_eq!(node.calls(std::process::id(), "cuMemAlloc_v2"), 3);
    assert_eq!(node.calls(1, "cuMemAlloc_v2"), 0);
    assert_eq!(node.all_calls("cuNeverCalled"), 0);
    let participants = node.participants().unwrap();
    assert_eq!(participants.len(), 2);
    assert!(!participants[0].alive);
    assert_eq!(participants[0].calls_of("cuMemAlloc_v2"), 2);
    assert_eq!(participants[1].calls, [("cuMemAlloc_v2".to_string(), 1)]);
}

#[test]
fn kernels_of_all_processes_run_one_after_the_other() {
    let place = place();
    let description = Description::new(&[Gpu::l40s(0)]).driven();
    let node = Node::describe(&place.path, description).unwrap();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    assert_eq!(one.run(0, one.now(), 2_000), 2_000);
    assert_eq!(other.run(0, other.now(), 3_000), 5_000);
    assert_eq!(one.run(0, one.now(), 1_000), 6_000);
    node.advance(Duration::from_micros(10)).unwrap();
    assert_eq!(one.now(), 10_000);
    assert_eq!(one.run(0, one.now(), 1_000), 11_000);

    let worked = other.worked(0, 0, 11_000);
    assert_eq!(worked.len(), 2);
    assert_eq!(worked.iter().map(|(_, time)| time).sum::<u64>(), 7_000);
    assert_eq!(other.worked(0, 10_000, 10_500)[0].1, 500);
}

#[test]
fn the_dead_leave_the_queue() {
    let place = place();
    let description = Description::new(&[Gpu::l40s(0)]).driven();
    let node = Node::describe(&place.path, description).unwrap();
    let one = Process::attach(&place.path).unwrap();
    let other = Process::attach(&place.path).unwrap();
    one.run(0, 0, 60_000_000_000);
    drop(one);
    assert_eq!(other.run(0, other.now(), 5), 5);
    assert_eq!(node.busy_until(0), 5);
}

#[test]
fn a_real_clock_is_not_driven() {
    let (_place, node) = two_l40s();
    assert_eq!(node.description().clock, Clock::Real);
    assert!(matches!(
        node.advance(Duration::from_secs(1)),
        Err(NodeError::RealClock)
    ));
    let before = node.now();
    std::thread::sleep(Duration::from_millis(2));
    assert!(node.now() >= before + 2_000_000);
}

#[test]
fn names_of_the_future_come_and_go() {
    let (place, node) = two_l40s();
    let process = Process::attach(&place.path).unwrap();
    node.set_future_forms(&["cuMemAlloc", "cuLaunchKernel"]);
    assert_eq!(process.is_of_the_future("cuLaunchKernel"), Some(1));
    assert_eq!(process.is_of_the_future("cuMemFree"), None);
    node.set_future_forms(&[]);
    assert_eq!(process.is_of_the_future("cuLaunchKernel"), None);
}

#[test]
fn slots_are_used_again_after_the_longest_unused() {
    let (place, node) = two_l40s();
    let first = Process::attach(&place.path).unwrap();
    let function = first.function("cuInit").unwrap();
    first.count(function);
    drop(first);
    // The other 255 first, and then the first one's again.
    for _ in 0..255 {
        drop(Process::attach(&place.path).unwrap());
    }
    assert_eq!(node.all_calls("cuInit"), 1);
    drop(Process::attach(&place.path).unwrap());
    assert_eq!(node.all_calls("cuInit"), 0);
}
