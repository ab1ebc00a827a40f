//! Every call ends, whatever the ledger contains and however a process keeps changing it.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;

use super::Part;
use super::steps::{Ordering, watched};
use crate::pace::TRIES;

const SLOTS: usize = 3;

fn all_calls(part: &Part, slot: usize, units: u32, limit: u32) {
    let gpu = part.gpu();
    let _ = gpu.reserve(slot, units, limit);
    gpu.charge(slot, units);
    gpu.refund(slot, units);
    gpu.held();
    gpu.held_by(slot);
    gpu.clear(slot);
}

proptest! {
    #[test]
    fn any_bits_will_do(
        grant in any::<u64>(),
        top in prop_oneof![0..5_u64, any::<u64>()],
        words in proptest::array::uniform3(any::<u64>()),
        slot in 0..SLOTS,
        units in any::<u32>(),
        limit in any::<u32>(),
    ) {
        let part = Part::new(SLOTS);
        part.grant.store(grant, Ordering::SeqCst);
        part.top.store(top, Ordering::SeqCst);
        for (slot, word) in part.slots.iter().zip(words) {
            slot.word.store(word, Ordering::SeqCst);
        }
        all_calls(&part, slot, units, limit);
        // The word of a process alone says what it holds, so a cleared slot is right again.
        prop_assert_eq!(part.gpu().held_by(slot), 0);
    }
}

/// The ledger changes before each step of a call, which is the worst case.
#[test]
fn a_call_ends_however_the_ledger_changes_under_it() {
    type Change = fn(&Part, u64);
    let changes: [Change; 6] = [
        |part, count| part.grant.store(count << 50 | 1, Ordering::SeqCst),
        |part, count| part.grant.store(count, Ordering::SeqCst),
        |part, count| {
            part.slots[0]
                .word
                .store(count & 1 | 5 << 24, Ordering::SeqCst)
        },
        |part, count| {
            part.slots[1]
                .word
                .store(count & 7 | 8 << 24, Ordering::SeqCst)
        },
        |part, count| {
            // A grant that never can be entered.
            part.grant.store(1, Ordering::SeqCst);
            part.slots[0]
                .word
                .store(count & 0xff_ffff, Ordering::SeqCst);
        },
        |part, count| {
            let random = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            part.grant.store(random, Ordering::SeqCst);
            part.slots[count as usize % SLOTS]
                .word
                .store(random.rotate_left(20), Ordering::SeqCst);
        },
    ];
    // Each try adds the words up, takes slack, and comes across the latest grant.
    let bound = u64::from(TRIES) * (4 * SLOTS as u64 + 20);
    for change in changes {
        for limit in [0, 10, u32::MAX] {
            let part = Rc::new(Part::new(SLOTS));
            let count = Rc::new(Cell::new(0));
            let (theirs, counter) = (Rc::clone(&part), Rc::clone(&count));
            let watcher = move || {
                counter.set(counter.get() + 1);
                change(&theirs, counter.get());
            };
            watched(watcher, || all_calls(&part, 0, 3, limit));
            assert!(count.get() < bound, "{} steps", count.get());
        }
    }
}
