//! Two threads write random words into the ledger, as fast as they can.
#![cfg(not(loom))]

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use softmig_region::{Ledger, SLOTS, size};

/// The ledger's memory, with none behind it.
fn map(length: usize) -> &'static [AtomicU64] {
    let page = 4096;
    let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_NONE);
    // SAFETY: new memory wherever there is room.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length + page, none, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the memory just mapped, without its last page.
    assert_eq!(unsafe { libc::mprotect(start, length, access) }, 0);
    // SAFETY: mapped for good, all zero, and used by atomics alone.
    unsafe { std::slice::from_raw_parts(start.cast(), length / 8) }
}

#[test]
fn nothing_that_is_written_there_does_any_harm() {
    let length = size(2);
    let words = map(length);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One of them all over the place, one where it hurts: the head, and what slot 0 has of each GPU.
        for hurts in [false, true] {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = 88_172_645_463_325_252_u64;
                while !stop.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let place = random as usize >> 8;
                    let place = match place % 8 {
                        0 if hurts => 4096 / 8,
                        1 if hurts => (4096 + 64 * SLOTS) / 8,
                        // Beyond the version.
                        _ if hurts => 1 + place / 8 % 63,
                        _ => 1 + place % (length / 8 - 1),
                    };
                    let bits = [random, 0, u64::MAX, random >> 40][random as usize % 4];
                    words[place].store(bits, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(300);
        let mut calls = 0;
        while Instant::now() < end {
            // SAFETY: see `map`.
            let ledger = unsafe { Ledger::at(words.as_ptr().cast(), length) }.unwrap();
            let ours = NonZeroU64::new(7).and_then(|key| ledger.gpu(key));
            for (slot, gpu) in ours.into_iter().chain(ledger.gpus()).enumerate() {
                let _ = gpu.reserve(slot, 5, u32::MAX);
                let _ = gpu.reserve(slot, 5, 10);
                gpu.charge(slot, 3);
                gpu.refund(slot, 8);
                gpu.clear(SLOTS - 1);
                gpu.held();
                calls += 1;
            }
            ledger.use_slot(3);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(calls > 0);
    });
}
