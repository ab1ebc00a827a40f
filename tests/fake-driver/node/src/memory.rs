//! The memory of each device that each process holds.

use std::thread;
use std::time::Duration;

use crate::block;
use crate::description::Clock;
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
    /// [`MemoryError::Full`] if less than that is left of the device after dead processes are cleared up.
    pub fn charge(&self, device: usize, kind: Kind, bytes: u64) -> Result<(), MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        let record = self.record().ok_or(MemoryError::Ended)?;
        // There can be more managed memory than the device has: what does not fit is on the host.
        if kind != Kind::Managed {
            require(&self.mapped, device, bytes)?;
        }
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
        if let Some(record) = self.record() {
            give_back(record, device, kind, bytes);
        }
    }

    /// The bytes that are left of a device.
    #[must_use]
    pub fn free(&self, device: usize) -> u64 {
        let _held = self.mapped.shared().lock.lock();
        reap::reap(&self.mapped);
        usable(&self.mapped, device).saturating_sub(used(&self.mapped, device))
    }
}

/// Takes it off a process's account.
pub(crate) fn give_back(record: &Slot, device: usize, kind: Kind, bytes: u64) {
    let of = record.bytes.get(device);
    if let Some(of) = of.and_then(|kinds| kinds.get(kind.index())) {
        set(of, get(of).saturating_sub(bytes));
    }
}

/// Checks that this much is left of a device. Before it refuses, it clears up dead processes. It waits for memory of
/// dead processes that is still there, as a real driver does, unless the test drives the clock and would wait forever.
pub(crate) fn require(mapped: &Mapped, device: usize, bytes: u64) -> Result<(), MemoryError> {
    if left(mapped, device) >= bytes {
        return Ok(());
    }
    let waits = mapped.description.clock == Clock::Real;
    while reap::reap(mapped) && waits && left(mapped, device) < bytes {
        thread::sleep(Duration::from_millis(1));
    }
    if left(mapped, device) >= bytes {
        return Ok(());
    }
    Err(MemoryError::Full)
}

/// Keeps the most that a process had, for NVML's accounts.
pub(crate) fn note_peak(mapped: &Mapped, number: usize, record: &Slot, device: usize) {
    let now = of_slot(record, device) + block::of_holder_in_all(mapped, number, device);
    if let Some(peak) = record.peak.get(device) {
        set(peak, get(peak).max(now));
    }
    note_peak_of_device(mapped, device);
}

/// Keeps the most that was taken of a device, for tests of limits. The dead count as long as their memory is there.
fn note_peak_of_device(mapped: &Mapped, device: usize) {
    let Some(state) = mapped.shared().devices.get(device) else {
        return;
    };
    let before = get(&state.peak);
    if used(mapped, device) > before {
        reap::reap(mapped);
        set(&state.peak, used(mapped, device).max(before));
    }
}

fn usable(mapped: &Mapped, device: usize) -> u64 {
    let described = mapped.description.device(device);
    described.map_or(0, |device| device.usable())
}

/// The bytes that can still be had of a device: managed memory makes room.
fn left(mapped: &Mapped, device: usize) -> u64 {
    usable(mapped, device).saturating_sub(unmovable(mapped, device))
}

/// All that is taken of a device.
pub(crate) fn used(mapped: &Mapped, device: usize) -> u64 {
    let slots = mapped.shared().slots.iter();
    let managed: u64 = slots.map(|slot| of_kind(slot, device, Kind::Managed)).sum();
    (unmovable(mapped, device) + managed).min(usable(mapped, device))
}

/// The bytes that are taken of a device and stay there.
fn unmovable(mapped: &Mapped, device: usize) -> u64 {
    let slots = mapped.shared().slots.iter();
    let charged: u64 = slots
        .map(|slot| of_slot(slot, device) - of_kind(slot, device, Kind::Managed))
        .sum();
    charged + block::on_device(mapped, device)
}

fn of_kind(slot: &Slot, device: usize, kind: Kind) -> u64 {
    let of = slot.bytes.get(device);
    of.and_then(|kinds| kinds.get(kind.index())).map_or(0, get)
}

/// The bytes that a process took, blocks aside.
fn of_slot(slot: &Slot, device: usize) -> u64 {
    slot.bytes
        .get(device)
        .map_or(0, |kinds| kinds.iter().map(get).sum())
}
