//! The ledger: the memory that this process's job holds of each GPU, and whether it may have more.
//!
//! From the top:
//!
//! - [`mod@current`]: the GPU that a call is about.
//! - [`reclaim`]: reserves, and looks for more room before a program is refused.
//! - [`stale`], [`nvml_usage`], [`orphans`], [`pools`], [`mappings`]: the driver's view. In this order: memory that it has given
//!   up, memory without a name (contexts, code, stacks), memory that others may keep, memory pools, which keep memory that is
//!   freed to them, and managed memory.
//! - [`charge`]: reserve, call, keep or give back: the way of every function that takes memory.
//! - [`device`]: one GPU: its limit, and the memory that is charged for it.
//! - [`mod@held`]: what the job holds, for whoever looks.
//! - [`slot`]: the process's place in the ledger that all processes of the job share (crate `softmig-region`).
//! - [`state`]: this process's facts about a GPU, with [`context_lock`] and the calls that are under way
//!   ([`in_progress`]).
//! - [`allocations`], [`pieces`]: this process's memory by address or handle, since a free names nothing else.
//! - [`oom_log`]: the lines in the job's log.

pub(crate) mod allocations;
mod charge;
pub(crate) mod context_lock;
mod current;
pub(crate) mod device;
mod held;
mod in_progress;
pub(crate) mod mappings;
pub(crate) mod nvml_usage;
mod oom_log;
pub(crate) mod orphans;
pub(crate) mod pieces;
pub(crate) mod pools;
mod reclaim;
mod slot;
pub(crate) mod stale;
mod state;

pub(crate) use allocations::{Holding, Holdings, Kind, Known};
pub(crate) use charge::{
    DESCRIBED, EXPORTED, Ending, FROM_ELSEWHERE, OUTLIVES, Way, add_reference, charged, described,
    drop_reference, given_back, keep, refund, released,
};
pub(crate) use current::here;
pub(crate) use device::LimitedGpu;
pub(crate) use in_progress::CallGuard;
pub(crate) use slot::holdings;
#[cfg(test)]
pub(crate) use slot::ledger_of_test;
