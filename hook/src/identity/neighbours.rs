//! The limits of a process that is in no job: those of the smallest job on its GPUs.

use core::sync::atomic::{AtomicU32, Ordering};

/// The job whose limits hold for a process that is in none.
static NEIGHBOUR: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Not looked for yet.
const UNKNOWN: u32 = 0;
/// No job has limits on this process's GPUs. Slurm's job numbers end before this number.
const NONE: u32 = u32::MAX;

/// The memory that this job may hold of each GPU.
static MEMORY_MIB: AtomicU32 = AtomicU32::new(0);
/// Its share of each GPU's time, 0 for all of it.
static SHARE: AtomicU32 = AtomicU32::new(0);

/// Whether the driver was asked for them.
pub(super) fn are_known() -> bool {
    // Relaxed: a number and nothing else.
    NEIGHBOUR.load(Ordering::Relaxed) != UNKNOWN
}

/// Keeps what was found: the job, if there is one, what it may hold of each GPU, and its share of time, 0 for all of it.
pub(super) fn keep(job: Option<u32>, memory_mib: u32, share: u32) {
    MEMORY_MIB.store(memory_mib, Ordering::Relaxed);
    SHARE.store(share, Ordering::Relaxed);
    // Release: a thread that sees the number sees the figures too. One that finds it unknown asks again.
    NEIGHBOUR.store(job.unwrap_or(NONE), Ordering::Release);
}

/// Whether a process that is in no job shares a GPU with one that has limits. Before `cuInit` it may.
pub(crate) fn may_have_neighbour() -> bool {
    // Relaxed: see above.
    NEIGHBOUR.load(Ordering::Relaxed) != NONE
}

/// The job whose limits hold for such a process, if there is one.
pub(crate) fn neighbour() -> Option<u32> {
    // Relaxed: see above.
    let job = NEIGHBOUR.load(Ordering::Relaxed);
    (job != UNKNOWN && job != NONE).then_some(job)
}

/// The MiB that such a process may hold of each GPU in all; the inner `None` without limit, the outer before `cuInit`.
pub(crate) fn neighbours_memory_mib() -> Option<Option<u32>> {
    // Acquire: the figure was stored before.
    match NEIGHBOUR.load(Ordering::Acquire) {
        UNKNOWN => None,
        NONE => Some(None),
        _ => Some(Some(MEMORY_MIB.load(Ordering::Relaxed))),
    }
}

/// The share of each GPU's time that such a process may have; the inner `None` for all of it, the outer before
/// `cuInit`.
pub(crate) fn neighbours_share() -> Option<Option<u32>> {
    // Acquire: see above.
    match NEIGHBOUR.load(Ordering::Acquire) {
        UNKNOWN => None,
        NONE => Some(None),
        _ => Some(Some(SHARE.load(Ordering::Relaxed)).filter(|share| *share > 0)),
    }
}
