//! Memory that others may keep when its process has given it back or has ended: by descriptors, and by places in arrays and in
//! multicast objects.
//!
//! No call tells when the last of them is gone. So such memory stays charged, as *orphaned*, until somebody has looked how much
//! memory of the GPU belongs to no process.

use crate::atomic::{AtomicU64, Ordering};
use crate::gpu_ledger::{GpuLedger, SHARED};
use crate::word::Exports;

impl GpuLedger<'_> {
    /// From now on others may keep `units` of this slot's.
    pub fn export(&self, slot: usize, units: u32) {
        self.change_exports(slot, |exports| exports.exported_more(units));
    }

    /// The process has given back `units` that it had exported. They stay charged.
    pub fn orphan(&self, slot: usize, units: u32) {
        self.change_exports(slot, |exports| exports.orphaned_more(units));
    }

    /// The process of this slot is no more, and something may keep all that it had.
    pub fn orphan_all(&self, slot: usize) {
        let used = self.held_by(slot);
        self.change_exports(slot, |_| Exports::new(0, used));
    }

    /// The orphaned units of one slot.
    pub fn orphaned_by(&self, slot: usize) -> u32 {
        let exports = self.exports(slot).map(|it| it.load(Ordering::SeqCst));
        exports.map_or(0, |bits| Exports(bits).orphaned())
    }

    /// The orphaned units of all slots.
    pub fn orphaned(&self) -> u64 {
        self.used_slots()
            .map(|slot| u64::from(Exports(slot.exports.load(Ordering::SeqCst)).orphaned()))
            .fold(0, u64::saturating_add)
    }

    /// Gives back so many orphaned units, whosever they are.
    pub fn give_back_orphaned(&self, units: u64) {
        let mut left = u32::try_from(units).unwrap_or(u32::MAX);
        for number in 0..self.used_slots().count() {
            let mut given = 0;
            // Before the refund, for the same reason as below.
            self.change_exports(number, |exports| {
                given = exports.orphaned().min(left);
                Exports::new(exports.exported(), exports.orphaned().saturating_sub(given))
            });
            self.refund(number, given);
            left = left.saturating_sub(given);
        }
    }

    /// Forgets the units of a process that has ended, as [`GpuLedger::clear`] does. Those that others may keep are orphaned in the
    /// slot `heir` from then on, which may be the same.
    pub fn bequeath(&self, slot: usize, heir: usize) {
        let exports = self.exports(slot).map(|it| it.load(Ordering::SeqCst));
        let used = self.held_by(slot);
        let kept = exports.map_or(0, |bits| Exports(bits).kept()).min(used);
        if slot == heir {
            self.change_exports(slot, |_| Exports::new(0, kept));
            self.refund(slot, used.saturating_sub(kept));
            return;
        }
        // First: a process that dies in between leaves too much charged, not too little.
        self.charge(heir, kept);
        self.change_exports(heir, |exports| {
            Exports::new(exports.exported(), exports.orphaned().saturating_add(kept))
        });
        self.clear(slot);
    }

    /// A slot has another process, or none.
    pub(crate) fn forget_exports(&self, slot: usize) {
        if let Some(exports) = self.exports(slot) {
            exports.store(0, Ordering::SeqCst);
        }
    }

    /// Remembers that a process of this job shares exported memory by a handle of this name, which is not 0. Of many such names
    /// some are forgotten.
    pub fn share(&self, name: u64) {
        let Some(places) = self.shared(name) else {
            return;
        };
        let is_free = |place: &&AtomicU64| [0, name].contains(&place.load(Ordering::SeqCst));
        let any = places.get((name >> 32) as usize % SHARED);
        if let Some(place) = places.iter().find(is_free).or(any) {
            place.store(name, Ordering::SeqCst);
        }
    }

    /// Whether a process of this job shares memory by a handle of this name.
    pub fn is_shared(&self, name: u64) -> bool {
        let places = self.shared(name);
        places.is_some_and(|places| places.iter().any(|it| it.load(Ordering::SeqCst) == name))
    }

    fn shared(&self, name: u64) -> Option<&[AtomicU64; SHARED]> {
        let slot = usize::try_from(name).ok()?.checked_rem(self.slots.len())?;
        Some(&self.slots.get(slot)?.shared)
    }

    fn exports(&self, slot: usize) -> Option<&AtomicU64> {
        self.slots.get(slot).map(|slot| &slot.exports)
    }

    fn change_exports(&self, slot: usize, mut to: impl FnMut(Exports) -> Exports) {
        let Some(exports) = self.exports(slot) else {
            return;
        };
        let mut now = exports.load(Ordering::SeqCst);
        for _ in 0..crate::pace::TRIES {
            let new = to(Exports(now)).0;
            match exports.compare_exchange(now, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}
