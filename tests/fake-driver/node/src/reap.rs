//! Clearing up after processes that ended. All of it happens under the node's lock.

use std::fs::File;

use crate::layout::{Slot, get, set};
use crate::mapped::Mapped;
use crate::{block, clock, mps, ofd, runlist, timeline};

/// Ends the slots whose processes are gone, and the blocks without a holder. Returns whether memory of the dead is
/// still there: a real driver takes its time.
pub(crate) fn reap(mapped: &Mapped) -> bool {
    // Opened anew each time: a program may close all descriptors, and give their numbers to other files.
    let Ok(file) = File::open(&mapped.path) else {
        return false;
    };
    let lingering = mapped.description.lingering.as_nanos();
    let mut lingers = false;
    for (number, slot) in mapped.shared().slots.iter().enumerate() {
        if !slot.is_taken() || ofd::is_taken(&file, number) || ofd::has_files(&file, number) {
            continue;
        }
        // One later, since 0 means that nothing was seen.
        let now = clock::now(mapped) + 1;
        if get(&slot.dead_since) == 0 {
            set(&slot.dead_since, now);
        }
        let is_over = u128::from(now - get(&slot.dead_since)) >= lingering;
        if is_over && !mps::is_kept(mapped, number, slot) {
            mps::note_end(mapped, number, slot);
            end(mapped, number, slot);
        } else {
            lingers = true;
        }
    }
    block::reap(mapped);
    lingers
}

/// Drops all that a slot's process had. Its calls stay to be read until the slot is needed again.
pub(crate) fn end(mapped: &Mapped, number: usize, slot: &Slot) {
    for bytes in slot.bytes.iter().chain(&slot.aside).flatten() {
        set(bytes, 0);
    }
    set(&slot.stage, 0);
    set(&slot.dead_since, 0);
    block::drop_holder(mapped, number);
    timeline::drop_process(mapped, number);
    runlist::drop_process(mapped, number);
    set(&slot.left, clock::now(mapped));
    set(&slot.generation, get(&slot.generation) + 1);
}
