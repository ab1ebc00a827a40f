//! Tests of the algorithm: against a model, stopped at every step, amid garbage, and under loom in every order.
//!
//! Under loom there are only the races:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p softmig-region --lib --target-dir target/loom`.

#[cfg(not(loom))]
mod deaths;
#[cfg(not(loom))]
mod exports;
#[cfg(not(loom))]
mod garbage;
#[cfg(not(loom))]
mod model;
#[cfg(loom)]
mod races;
pub(crate) mod steps;

use crate::gpu_ledger::{GpuLedger, Slot};
use crate::word::Word;
use steps::{AtomicU64, Ordering};

/// A GPU's part of a ledger, of a test.
pub(crate) struct Part {
    grant: AtomicU64,
    slots: Vec<Slot>,
    top: AtomicU64,
    pace: AtomicU64,
    charged: AtomicU64,
    waits: AtomicU64,
    peak: AtomicU64,
    refusals: AtomicU64,
    recovered: AtomicU64,
    orphans: AtomicU64,
}

impl Part {
    /// A part with this number of slots, all in use.
    fn new(slots: usize) -> Self {
        let slot = |_| Slot {
            word: AtomicU64::new(0),
            process: AtomicU64::new(0),
            exports: AtomicU64::new(0),
            shared: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            grant: AtomicU64::new(0),
            slots: (0..slots).map(slot).collect(),
            top: AtomicU64::new(slots as u64),
            pace: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
            orphans: AtomicU64::new(0),
        }
    }

    fn gpu(&self) -> GpuLedger<'_> {
        GpuLedger {
            grant: &self.grant,
            slots: &self.slots,
            top: &self.top,
            pace: &self.pace,
            peak: &self.peak,
            refusals: &self.refusals,
            recovered: &self.recovered,
            orphans: &self.orphans,
            charged: &self.charged,
            waits: &self.waits,
            all_waits: &[],
        }
    }

    fn word(&self, slot: usize) -> Word {
        Word(self.slots[slot].word.load(Ordering::SeqCst))
    }

    /// After the death of all others only `slot`'s units are held, and all other room is free.
    fn check_room(&self, slot: usize, limit: u32) {
        let gpu = self.gpu();
        let room = limit - u32::try_from(gpu.held()).unwrap();
        if room > 0 {
            gpu.reserve(slot, room, limit).unwrap();
        }
        assert_eq!(gpu.held(), u64::from(limit));
        gpu.reserve(slot, 1, limit).unwrap_err();
        gpu.refund(slot, room);
    }
}
