//! Who holds how much memory of which device.

use crate::block;
use crate::error::MemoryError;
use crate::kind::Kind;
use crate::layout::{Slot, get, set};
use crate::mapped::Mapped;
use crate::process::Process;
use crate::reap;

impl Process {
    /// Takes memory of a device for this process.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if the device has not so much left once dead processes are cleared up.
    pub fn charge(&self, device: usize, kind: Kind, bytes: u64) -> Result<(), MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        let record = self.record().ok_or(MemoryError::Ended)?;
        require(&self.mapped, device, bytes)?;
        let of = record
            .bytes
            .get(device)
            .and_then(|kinds| kinds.get(kind.index()))
            .ok_or(MemoryError::Full)?;
        set(of, get(of) + bytes);
        note_peak(&self.mapped, self.slot, record, device);
        Ok(())
    }

    /// Gives memory back.
    pub fn refund(&self, device: usize, kind: Kind, bytes: u64) {
        let _held = self.mapped.shared().lock.lock();
        let of = self
            .record()
            .and_then(|record| record.bytes.get(device))
            .and_then(|kinds| kinds.get(kind.index()));
        if let Some(of) = of {
            set(of, get(of).saturating_sub(bytes));
        }
    }

    /// What is left of a device.
    #[must_use]
    pub fn free(&self, device: usize) -> u64 {
        let _held = self.mapped.shared().lock.lock();
        reap::reap(&self.mapped);
        left(&self.mapped, device)
    }
}

/// Checks that a device has so much left; looks for dead processes before it says no.
pub(crate) fn require(mapped: &Mapped, device: usize, bytes: u64) -> Result<(), MemoryError> {
    if left(mapped, device) >= bytes {
        return Ok(());
    }
    reap::reap(mapped);
    if left(mapped, device) >= bytes {
        return Ok(());
    }
    Err(MemoryError::Full)
}

/// Keeps the most that a process had, for NVML's accounts.
pub(crate) fn note_peak(mapped: &Mapped, number: usize, record: &Slot, device: usize) {
    let now = of_slot(record, device) + block::of_holder(mapped, number, device);
    if let Some(peak) = record.peak.get(device) {
        set(peak, get(peak).max(now));
    }
}

fn left(mapped: &Mapped, device: usize) -> u64 {
    let usable = mapped
        .description
        .device(device)
        .map_or(0, |device| device.usable());
    usable.saturating_sub(used(mapped, device))
}

/// All that is taken of a device.
pub(crate) fn used(mapped: &Mapped, device: usize) -> u64 {
    let slots = mapped.shared().slots.iter();
    let charged: u64 = slots.map(|slot| of_slot(slot, device)).sum();
    charged + block::on_device(mapped, device)
}

/// What a process took, blocks aside.
fn of_slot(slot: &Slot, device: usize) -> u64 {
    slot.bytes
        .get(device)
        .map_or(0, |kinds| kinds.iter().map(get).sum())
}
