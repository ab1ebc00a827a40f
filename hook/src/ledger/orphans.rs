//! Memory that others may keep: it is given back when nobody does.
//!
//! The driver counts memory that a descriptor alone keeps for the GPU and for no process, and imported memory for one of the processes
//! that have it (research/gpu-memory.md). So others keep no more than what the GPU uses and no process has, with what processes have and
//! the account does not. That is too much where other jobs' memory is counted for no process either, and then more stays charged.

use softmig_driver_sys::nvml::nvmlDevice_t;
use softmig_region::{GpuLedger, Ledger, SLOTS};

use super::device::LimitedGpu;
use super::nvml_usage;
use crate::os;

/// Gives back what was orphaned on a GPU and nobody has, as far as the driver's figures say.
pub(crate) fn give_back(gpu: &LimitedGpu) {
    if let Some((ledger, part)) = gpu.ledger()
        && part.orphaned() > 0
        && let Some(device) = nvml_usage::in_nvml(gpu)
    {
        give_back_of(ledger, part, device);
    }
}

/// The same, of a GPU that NVML names.
#[cold]
pub(crate) fn give_back_of(ledger: Ledger<'_>, part: GpuLedger<'_>, device: nvmlDevice_t) {
    // Before the look: what is orphaned later may not be in it.
    let orphaned = part.orphaned();
    if orphaned == 0 {
        return;
    }
    let _errno = os::Errno::save();
    let us = os::process_name();
    let name = |process| us >> 32 << 32 | u64::from(process);
    if us == 0 {
        return;
    }
    let (mut used, mut explained) = (0, u64::MAX);
    // Memory that comes and goes between two of these figures seems to be nobody's. It must not seem to be somebody's.
    for _ in 0..LOOKS {
        let seen = nvml_usage::processes(device, |process, bytes| {
            of_process(ledger, part, name(process), bytes)
        });
        let (Some(seen), Some(memory)) = (seen, nvml_usage::memory(device)) else {
            return;
        };
        explained = explained.min(seen);
        used = used.max(memory.used);
    }
    let kept = softmig_region::units(used.saturating_sub(explained));
    part.give_back_orphaned(orphaned.saturating_sub(kept.into()));
}

/// How often the figures are read.
const LOOKS: usize = 3;

/// The bytes of those that the driver counts for a process that are no others': what it is charged for; all of them if it is no process
/// of this job's.
fn of_process(ledger: Ledger<'_>, part: GpuLedger<'_>, name: u64, bytes: u64) -> u64 {
    let charged =
        |slot| softmig_region::bytes(part.held_by(slot).saturating_sub(part.orphaned_by(slot)));
    let slots = (0..SLOTS).filter(|slot| ledger.process(*slot) == name);
    slots
        .map(charged)
        .min()
        .map_or(bytes, |charged| bytes.min(charged))
}
