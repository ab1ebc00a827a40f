//! Memory that others may keep when its process has given it back or has ended: it is given back when nobody has it.
//!
//! The driver counts memory that a descriptor alone keeps for the GPU and for no process, and imported memory for one of the processes
//! that have it (research/gpu-memory.md). So of the job's orphans there is no more left than what the GPU uses and no process has, and
//! what the job's processes have beyond their account. Memory of other jobs may be among that, and then more stays charged.
//!
//! In a PID namespace the driver's list lacks the processes outside, so there nothing is an orphan: what may be kept stays its process's
//! until that ends.

use core::sync::atomic::{AtomicU64, Ordering};

use softmig_driver_sys::nvml::nvmlDevice_t;
use softmig_region::{GpuLedger, Ledger, SLOTS};

use super::device::LimitedGpu;
use super::nvml_usage;
use crate::driver::nvml_queries;
use crate::os;

/// Gives back those on a GPU that nobody has, as far as the driver's figures say. Only `once` while these are the same.
pub(crate) fn give_back(gpu: &LimitedGpu, once: bool) {
    let Some((ledger, part)) = gpu.ledger() else {
        return;
    };
    if part.orphans().units() == 0 {
        return;
    }
    if !nvml_queries::lists_all() {
        give_up(ledger, part);
    } else if let Some(device) = nvml_usage::in_nvml(gpu) {
        look(ledger, part, device, once.then_some(&gpu.state().looked));
    }
}

/// The same, of a GPU that NVML names.
pub(crate) fn give_back_of(ledger: Ledger<'_>, part: GpuLedger<'_>, device: nvmlDevice_t) {
    if part.orphans().units() > 0 && nvml_queries::lists_all() {
        look(ledger, part, device, None);
    }
}

/// Where no process is left that could look, orphans are not held against the others: theirs would not be, either.
fn give_up(ledger: Ledger<'_>, part: GpuLedger<'_>) {
    let seen = part.orphans();
    let looks = |slot| os::is_outermost(ledger.process(slot)) && holds_any(ledger, slot);
    if !(0..SLOTS).any(looks) {
        part.keep_orphans(seen, 0);
    }
}

fn holds_any(ledger: Ledger<'_>, slot: usize) -> bool {
    ledger.gpus().any(|gpu| gpu.held_by(slot) > 0)
}

#[cold]
fn look(ledger: Ledger<'_>, part: GpuLedger<'_>, device: nvmlDevice_t, before: Option<&AtomicU64>) {
    let _errno = os::Errno::save();
    // Before the figures. Whoever gives back gives these, or nothing if there are others by then.
    let seen = part.orphans();
    let Some(memory) = nvml_usage::memory(device) else {
        return;
    };
    // Relaxed: a figure and nothing else.
    let mark = seen.mixed_with(memory.used).wrapping_add(part.held());
    let is_as_before = |before: &AtomicU64| before.load(Ordering::Relaxed) == mark;
    if before.is_some_and(is_as_before) || has_strangers(ledger) {
        return;
    }
    let (mut used, mut explained) = (memory.used, u64::MAX);
    // Memory that comes and goes between two of these figures seems to be nobody's. It must not seem to be somebody's.
    for _ in 0..LOOKS {
        let mut now = 0_u64;
        let listed = nvml_usage::processes(device, |process, bytes| {
            now = now.saturating_add(of_process(ledger, part, process, bytes));
        });
        let (Some(()), Some(memory)) = (listed, nvml_usage::memory(device)) else {
            return;
        };
        explained = explained.min(now);
        used = used.max(memory.used);
    }
    let kept = softmig_region::units(used.saturating_sub(explained));
    part.keep_orphans(seen, kept);
    if let Some(before) = before.filter(|_| kept >= seen.units()) {
        before.store(mark, Ordering::Relaxed);
    }
}

/// How often the figures are read.
const LOOKS: usize = 3;

/// Whether the job has processes whose figures cannot be told from those of other jobs: in other PID namespaces, or of an older library.
fn has_strangers(ledger: Ledger<'_>) -> bool {
    let is_strange = |slot| !os::is_outermost(ledger.process(slot)) && holds_any(ledger, slot);
    (0..SLOTS).any(is_strange)
}

/// The bytes of those that the driver counts for a process that are no orphans: what it is charged for and has there; all of them if it is
/// no process of this job's.
fn of_process(ledger: Ledger<'_>, part: GpuLedger<'_>, process: u32, bytes: u64) -> u64 {
    let name = os::outermost(process);
    let slots = (0..SLOTS).filter(|slot| ledger.process(*slot) == name);
    let there = |slot| {
        let held = part.held_by(slot);
        softmig_region::bytes(held.saturating_sub(part.uncounted_by(slot)))
    };
    slots
        .map(there)
        .max()
        .map_or(bytes, |there| bytes.min(there))
}
