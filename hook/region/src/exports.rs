//! Memory that others may keep when its process has given it back or has ended: by descriptors, and by places in arrays and in
//! multicast objects.
//!
//! No call tells when the last of them is gone. So such memory is *orphaned*: it is charged to the job and no slot, until somebody has
//! looked how much of the GPU's memory nobody else has. Units become orphans before they leave their slot, and a sum reads them last,
//! so that no sum misses them. Who looks in between may take them for their process's. So they are counted once more if somebody gave
//! back meanwhile, and nobody gives back what was seen before they left. Too much is what the next look mends.

use crate::atomic::{AtomicU64, Ordering};
use crate::gpu_ledger::{GpuLedger, SHARED, Tries, change, change_bits};
use crate::word::Exports;

/// The orphans of a GPU at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphans(u64);

impl Orphans {
    /// From the lowest bit: the units (32), and a count of changes (32).
    fn new(units: u32, changes: u64) -> Self {
        Self(u64::from(units) | changes << 32)
    }

    /// Their units.
    pub fn units(self) -> u32 {
        self.0 as u32
    }

    /// A number that is another one when these or the other number change.
    pub fn mixed_with(self, other: u64) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other
    }

    fn with(self, units: u32) -> Self {
        Self::new(units, (self.0 >> 32).wrapping_add(1))
    }
}

impl GpuLedger<'_> {
    /// From now on others may keep `units` of this slot's.
    pub fn export(&self, slot: usize, units: u32) {
        self.change_exports(slot, |it| it.exported_more(units));
    }

    /// The process has given back `units` that it had exported.
    pub fn orphan(&self, slot: usize, units: u32) {
        self.move_out(units, || {
            self.change_exports(slot, |it| it.exported_less(units));
            self.take_out(slot, units);
        });
    }

    /// The process of this slot is no more, and something may keep all that it had.
    pub fn orphan_all(&self, slot: usize) {
        self.move_out(self.held_by(slot), || {
            self.clear(slot);
        });
    }

    /// Forgets the units of a process that has ended, as [`GpuLedger::clear`] does, but for those that others may keep.
    pub fn orphan_exported(&self, slot: usize) {
        let kept = self.exports(slot).exported().min(self.held_by(slot));
        self.move_out(kept, || {
            self.clear(slot);
        });
    }

    /// The units that others may keep of what this slot's process has.
    pub fn exported_by(&self, slot: usize) -> u32 {
        self.exports(slot).exported()
    }

    /// Units of this slot's that the driver counts for no process, or not yet.
    pub fn uncounted_by(&self, slot: usize) -> u32 {
        self.exports(slot).uncounted()
    }

    /// Changes them by so many.
    pub fn change_uncounted(&self, slot: usize, more: u32, less: u32) {
        self.change_exports(slot, |it| it.uncounted_changed(more, less));
    }

    /// The orphans now.
    pub fn orphans(&self) -> Orphans {
        Orphans(self.orphans.load(Ordering::SeqCst))
    }

    /// Gives back all of these orphans but `kept`, unless there has been any change since they were seen: what somebody found out since
    /// then holds for these alone.
    pub fn keep_orphans(&self, seen: Orphans, kept: u32) -> bool {
        let new = seen.with(seen.units().min(kept)).0;
        let changed =
            self.orphans
                .compare_exchange(seen.0, new, Ordering::SeqCst, Ordering::SeqCst);
        changed.is_ok()
    }

    /// Remembers that the process of this slot shares exported memory by a handle of this name. Of many such names some are forgotten.
    /// The driver gives no name twice (research/gpu-memory.md).
    pub fn share(&self, slot: usize, name: u64) {
        let name = named(slot, name);
        let places = self.shared(name);
        let is_free = |place: &&AtomicU64| [0, name].contains(&place.load(Ordering::SeqCst));
        let any = places.get((name >> 40) as usize % SHARED);
        if let Some(place) = places.iter().find(is_free).or(any) {
            place.store(name, Ordering::SeqCst);
        }
    }

    /// Whether a process of this job, which has exported memory, shares some by a handle of this name.
    pub fn is_shared(&self, name: u64) -> bool {
        let name = named(0, name);
        self.shared(name).iter().any(|place| {
            let known = place.load(Ordering::SeqCst);
            let slot = (known & SLOT) as usize;
            known & !SLOT == name && known != 0 && self.exported_by(slot) > 0
        })
    }

    fn shared(&self, name: u64) -> &[AtomicU64] {
        let slot = usize::try_from(name >> 16).ok();
        let slot = slot.and_then(|place| place.checked_rem(self.slots.len()));
        let slot = slot.and_then(|place| self.slots.get(place));
        slot.map_or(&[], |slot| slot.shared.as_slice())
    }

    /// Makes units orphans, and takes them out of their slot.
    fn move_out(&self, units: u32, take_out: impl FnOnce()) {
        let added = self.change_orphans(|_| units);
        take_out();
        self.change_orphans(|now| if Some(now) == added { 0 } else { units });
    }

    /// Adds as many as `more` says of those that there are; returns what there is then.
    fn change_orphans(&self, more: impl Fn(Orphans) -> u32) -> Option<Orphans> {
        let changed = change_bits(self.orphans, &mut Tries::new(), |now| {
            let now = Orphans(now);
            Some(now.with(now.units().saturating_add(more(now))).0)
        });
        changed.map(Orphans)
    }

    /// Takes units out of a slot, which its process may not use again without a grant.
    fn take_out(&self, slot: usize, units: u32) {
        let tries = &mut Tries::new();
        self.settle(tries);
        if let Some(slot) = self.slots.get(slot) {
            change(&slot.word, tries, |word| Some(word.without(units)));
        }
    }

    fn exports(&self, slot: usize) -> Exports {
        let exports = self.slots.get(slot).map(|slot| &slot.exports);
        Exports(exports.map_or(0, |exports| exports.load(Ordering::SeqCst)))
    }

    fn change_exports(&self, slot: usize, to: impl Fn(Exports) -> Exports) {
        if let Some(slot) = self.slots.get(slot) {
            change_bits(&slot.exports, &mut Tries::new(), |now| {
                Some(to(Exports(now)).0)
            });
        }
    }

    /// A slot has another process, or none.
    pub(crate) fn forget_exports(&self, slot: usize) {
        if let Some(slot) = self.slots.get(slot) {
            slot.exports.store(0, Ordering::SeqCst);
        }
    }
}

/// In the table of names: the slot.
const SLOT: u64 = 0x3ff;

/// A name in the table: never 0, but for the slot.
fn named(slot: usize, name: u64) -> u64 {
    (name & !SLOT).max(SLOT.wrapping_add(1)) | (slot as u64 & SLOT)
}
