//! Slots, their deaths, and what is kept of them.

use super::*;

/// A folder with an empty ledger, and the path of that.
fn ledger() -> (tempfile::TempDir, Path) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger");
    std::fs::write(&file, vec![0; size(1)]).unwrap();
    let path = text(&[file.to_str().unwrap().as_bytes()]);
    (folder, path)
}

#[test]
fn slots_of_dead_processes_are_taken_when_all_are() {
    let (_folder, path) = ledger();
    let (first, _mapping) = Slot::in_file(&path).unwrap();
    let gpu = first.ledger.gpu(softmig_region::key([7; 16])).unwrap();
    for slot in 0..SLOTS {
        gpu.charge(slot, 1);
    }
    let (second, _mapping) = Slot::in_file(&path).unwrap();
    assert_eq!((first.number, second.number), (0, 1));
    // The first one lives.
    assert_eq!((gpu.held_by(0), gpu.held()), (1, 1));
}

#[test]
fn memory_of_a_process_that_is_gone_is_soon_free() {
    let (_folder, path) = ledger();
    let (own, _mapping) = Slot::in_file(&path).unwrap();
    let gpu = own.ledger.gpu(softmig_region::key([7; 16])).unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let namespace = os::process_name() >> 32 << 32;
    let gone = namespace | u64::from(ended.id());
    // That one, one that was there before names, one that its parent knows as living, and one of another namespace.
    let names = [gone, 0, os::process_name(), gone ^ 1 << 32];
    for (slot, name) in (1..).zip(names) {
        own.ledger.set_process(slot, name);
        gpu.charge(slot, 1);
    }
    let (dead, _) = Fresh::<[Dead; SLOTS]>::zeroed().unwrap();
    let look = || {
        let reaped = own.clear_dead(&open(&path).unwrap(), &dead);
        let held = [1, 2, 3, 4].map(|slot| gpu.held_by(slot));
        (reaped.is_waiting, held)
    };
    assert_eq!(look(), (true, [1; 4]));
    os::nap(SETTLING_GONE * 1_050_000);
    assert_eq!(look(), (true, [0, 1, 1, 1]));
    // Seen long ago, so it is another process by now unless it is gone.
    let long_ago = os::milliseconds() - 3 * SETTLING;
    own.ledger.set_process(1, gone);
    gpu.charge(1, 1);
    for dead in dead.iter() {
        dead.since.store(long_ago, Ordering::Relaxed);
    }
    dead[1].name.store(gone, Ordering::Relaxed);
    assert_eq!(look(), (true, [0, 1, 1, 1]));
    // Another one that is gone.
    own.ledger.set_process(1, gone);
    gpu.charge(1, 1);
    dead[1].since.store(long_ago, Ordering::Relaxed);
    dead[1].name.store(gone ^ 2, Ordering::Relaxed);
    assert_eq!(look(), (true, [1; 4]));
    os::nap(SETTLING * 1_050_000);
    assert_eq!(look(), (false, [0; 4]));
    // Another that is gone, whose files a supervisor has open: its lock is shared (softmig_node::packs::keep_charged).
    if !os::is_outermost(gone) {
        return;
    }
    let keep = || {
        let keeper = open(&path).unwrap();
        assert_eq!(keeper.share_byte(kept_offset(gone as u32)), Ok(true));
        own.ledger.set_process(1, gone);
        gpu.charge(1, 1);
        assert_eq!(look(), (true, [1, 0, 0, 0]));
        keeper
    };
    let keeper = keep();
    os::nap(SETTLING * 1_050_000);
    assert_eq!(look(), (true, [1, 0, 0, 0]));
    drop(keeper);
    assert_eq!(look(), (false, [0; 4]));
    // One of another namespace, of whom the supervisor's number is not known here: as long as it keeps anybody's.
    let keeper = keep();
    own.ledger.set_process(1, gone ^ 1 << 32);
    for _ in 0..3 {
        assert_eq!(look(), (true, [1, 0, 0, 0]));
        os::nap(SETTLING * 500_000);
    }
    drop(keeper);
    while look() != (false, [0; 4]) {
        os::nap(10_000_000);
    }
    // The kernel may end the lock of its slot a moment after its parent knows: who asks for memory meanwhile waits.
    let (keeper, slot) = (keep(), open(&path).unwrap());
    assert_eq!(slot.lock_byte(lock_offset(1)), Ok(true));
    for _ in 0..2 {
        assert_eq!(look(), (true, [1, 0, 0, 0]));
    }
    drop(keeper);
    assert_eq!(look(), (false, [1, 0, 0, 0]), "it may be a child's");
    drop(slot);
    gpu.clear(1);
    // One whose parent may not have asked for its end either: as long as it is kept, and no longer.
    for name in [gone, os::process_name()] {
        let keeper = keep();
        own.ledger.set_process(1, name);
        let kept = open(&path).unwrap();
        assert_eq!(kept.share_byte(kept_offset(name as u32)), Ok(true));
        assert_eq!(look(), (true, [1, 0, 0, 0]));
        let long_ago = os::milliseconds() - 3 * SETTLING_KEPT;
        dead[1].since.store(long_ago, Ordering::Relaxed);
        assert_eq!(look(), (true, [1, 0, 0, 0]));
        drop((keeper, kept));
        while look() != (false, [0; 4]) {
            os::nap(10_000_000);
        }
    }
    // Its number may be that of the program that it became.
    let keeper = keep();
    own.ledger.set_process(2, gone);
    let slot = open(&path).unwrap();
    assert_eq!(slot.lock_byte(lock_offset(2)), Ok(true));
    assert_eq!(look(), (true, [1, 0, 0, 0]));
    let long_ago = os::milliseconds() - SETTLING_KEPT;
    dead[1].since.store(long_ago, Ordering::Relaxed);
    assert_eq!(look(), (false, [0; 4]));
    drop((keeper, slot));
    // The number of one of another namespace is not known, and another's files may be open for long.
    let _keeper = keep();
    own.ledger.set_process(1, gone ^ 1 << 32);
    assert_eq!(look(), (true, [1, 0, 0, 0]));
    let long_ago = os::milliseconds() - SETTLING_KEPT;
    dead[1].since.store(long_ago, Ordering::Relaxed);
    assert_eq!(look(), (false, [0; 4]));
}
