//! What a job holds, as its ledger says, also for a process that has no place there.

#![expect(unsafe_code, reason = "maps the ledger, which processes share")]

use core::num::NonZeroU64;

use softmig_region::{GpuLedger, Ledger, MAX_GPUS, SLOTS, lock_offset, size};

use super::slot::{self, ProcessLedger};
use crate::identity::gate;
use crate::os::{self, Error, File};

/// The units of a GPU that the living processes of this process's job hold, and its orphans, after `first`. A process that has no place
/// in the ledger takes none, and maps it for this look alone.
pub(crate) fn held(key: NonZeroU64, first: impl Fn(Ledger<'_>, GpuLedger<'_>)) -> u64 {
    let ledger = ProcessLedger::known()
        .and_then(ProcessLedger::slot)
        .map(|slot| slot.ledger);
    let file = gate::with_finding(slot::path).and_then(|path| slot::open(&path).ok());
    match (ledger, file) {
        (Some(ledger), Some(file)) => held_by_living(ledger, &file, key, first),
        (Some(ledger), None) => ledger.known(key).map_or(0, |gpu| gpu.held()),
        (None, Some(file)) => seen_by_passer(&file, key, first).unwrap_or(0),
        (None, None) => 0,
    }
}

fn seen_by_passer(
    file: &File,
    key: NonZeroU64,
    first: impl Fn(Ledger<'_>, GpuLedger<'_>),
) -> Result<u64, Error> {
    let size = file.status()?.size.min(size(MAX_GPUS));
    let start = os::map_shared(file, size)?;
    // SAFETY: mapped until it is given back below, and only read and written as atomics.
    let ledger = unsafe { Ledger::at(start.as_ptr(), size) };
    let held = ledger.map_or(0, |ledger| held_by_living(ledger, file, key, first));
    // SAFETY: mapped above, and the ledger is not used any more.
    unsafe { os::unmap(start, size) };
    Ok(held)
}

fn held_by_living(
    ledger: Ledger<'_>,
    file: &File,
    key: NonZeroU64,
    first: impl Fn(Ledger<'_>, GpuLedger<'_>),
) -> u64 {
    let Some(gpu) = ledger.known(key) else {
        return 0;
    };
    first(ledger, gpu);
    let held = |slot| {
        let held = gpu.held_by(slot);
        // Ours is another open file than any that holds a lock.
        let is_living = held > 0 && file.is_locked(lock_offset(slot));
        if is_living { held.into() } else { 0 }
    };
    let of_processes = (0..SLOTS).map(held).fold(0, u64::saturating_add);
    of_processes.saturating_add(gpu.orphans().units().into())
}
