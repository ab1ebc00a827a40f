//! The facts and figures that this process keeps of one GPU.

use core::sync::atomic::{AtomicU32, AtomicU64};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::GpuLedger;

use super::context_lock::ContextLock;
use crate::os::Lock;
use crate::os::cells::{Once, zeroed};

/// The state of one GPU; empty when all zero.
pub(crate) struct GpuState {
    pub(super) known: Once<Known>,
    /// Units without a name: contexts, code, the stacks of kernels.
    pub(crate) overhead: AtomicU32,
    /// The part of it that is a guess, since the driver's figures do not have this process.
    pub(crate) guessed: AtomicU32,
    /// Units of managed memory, which the driver's own figures for a process leave out.
    pub(crate) managed: AtomicU32,
    /// Units of memory that other processes or interfaces have too, which the driver counts for one of them.
    pub(crate) elsewhere: AtomicU32,
    /// Units of the memory nodes of graphs.
    pub(crate) graphs: AtomicU32,
    /// Units of one context.
    pub(crate) context: AtomicU32,
    /// Bytes that were free on the GPU when this process last looked after it loaded code.
    pub(crate) free: AtomicU64,
    /// Units without a name that are charged and may not be taken yet.
    pub(crate) promised: AtomicU32,
    /// Units of this process's that others may keep, which it has given back: the driver counts them for no process. Orphans are no
    /// process's.
    pub(crate) outlives: AtomicU32,
    /// What the GPU used, and how many orphans there were, when they were last looked for and all of them were somebody's.
    pub(super) looked: AtomicU64,
    /// Units with a name when `free` was seen.
    pub(crate) named: AtomicU32,
    /// Not zero once a graph with memory nodes was instantiated.
    pub(crate) graph: AtomicU32,
    /// How many streams were made.
    pub(crate) streams: AtomicU32,
    /// Calls that take or give back memory: how many began in the upper half, how many are under way in the lower.
    pub(super) busy: AtomicU64,
    /// Held by the thread that looks for room.
    pub(super) searching: Lock,
    /// The thread that makes or ends the primary context.
    pub(crate) context_lock: ContextLock,
    /// The pool that allocations without a pool come from.
    pub(crate) pool: AtomicU64,
    /// This process compares its account with the driver's when the job holds this many units.
    pub(super) look_at: AtomicU32,
    /// The refusals since this process was last given memory.
    pub(super) refused: AtomicU32,
}

zeroed! { GpuState {
    known, overhead, guessed, managed, elsewhere, graphs, context, free, promised, outlives, looked, named, graph, streams, busy, searching,
    context_lock, pool, look_at, refused
} }

impl GpuState {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            known: Once::new(),
            overhead: AtomicU32::new(0),
            guessed: AtomicU32::new(0),
            managed: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            graphs: AtomicU32::new(0),
            context: AtomicU32::new(0),
            free: AtomicU64::new(0),
            promised: AtomicU32::new(0),
            graph: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            outlives: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            named: AtomicU32::new(0),
            busy: AtomicU64::new(0),
            searching: Lock::new(),
            context_lock: ContextLock::new(),
            pool: AtomicU64::new(0),
            look_at: AtomicU32::new(0),
            refused: AtomicU32::new(0),
        }
    }
}

/// The part of the state that does not change.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// Its part of the ledger; `None` where that has no room for it.
    pub(super) gpu: Option<GpuLedger<'static>>,
    pub(super) uuid: CUuuid,
    /// The job's limit, in units; `None` for as much as there is.
    pub(super) limit: Option<u32>,
}
