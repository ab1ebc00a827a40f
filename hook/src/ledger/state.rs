//! What this process knows of one GPU.

use core::sync::atomic::{AtomicU32, AtomicU64};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::Gpu;

use super::context_lock::Making;
use crate::os::Lock;
use crate::os::once::Once;

/// What is known of one GPU; empty when all zero.
pub(crate) struct Place {
    pub(super) known: Once<Known>,
    /// What is charged beyond what has a name: contexts, code, the stacks of kernels.
    pub(crate) overhead: AtomicU32,
    /// What is charged for managed memory, which the driver's own figures for a process leave out.
    pub(crate) managed: AtomicU32,
    /// What is charged for memory that other processes or interfaces have too, which the driver counts for one of them.
    pub(crate) elsewhere: AtomicU32,
    /// What is charged for the memory nodes of graphs.
    pub(crate) graphs: AtomicU32,
    /// What one context takes.
    pub(crate) context: AtomicU32,
    /// What was free on the GPU, in bytes, when this process last looked after it loaded code.
    pub(crate) free: AtomicU64,
    /// Of what has no name, so much may not be taken yet.
    pub(crate) promised: AtomicU32,
    /// What others can have for as long as they like, by a descriptor: the driver counts it for no process.
    pub(crate) outlives: AtomicU32,
    /// What was charged by name when `free` was seen.
    pub(crate) named: AtomicU32,
    /// Not zero once a graph with memory nodes was instantiated.
    pub(crate) graph: AtomicU32,
    /// How many streams were made.
    pub(crate) streams: AtomicU32,
    /// Calls that take or give back memory: how many began in the upper half, how many are under way in the lower.
    pub(super) busy: AtomicU64,
    /// Held by the thread that looks for room.
    pub(super) searching: Lock,
    /// Who makes or ends the primary context.
    pub(crate) making: Making,
    /// The pool that allocations without a pool come from.
    pub(crate) pool: AtomicU64,
    /// When the job holds so much, this process compares its account with the driver's.
    pub(super) look_at: AtomicU32,
}

impl Place {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            known: Once::new(),
            overhead: AtomicU32::new(0),
            managed: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            graphs: AtomicU32::new(0),
            context: AtomicU32::new(0),
            free: AtomicU64::new(0),
            promised: AtomicU32::new(0),
            outlives: AtomicU32::new(0),
            graph: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            named: AtomicU32::new(0),
            busy: AtomicU64::new(0),
            searching: Lock::new(),
            making: Making::new(),
            pool: AtomicU64::new(0),
            look_at: AtomicU32::new(0),
        }
    }
}

/// What does not change.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// Its part of the ledger; `None` where that has no room for it.
    pub(super) gpu: Option<Gpu<'static>>,
    pub(super) uuid: CUuuid,
    /// What the job may hold, in units; `None` for as much as there is.
    pub(super) limit: Option<u32>,
}
