//! The GPU that programs see: as large as the slice, with the job's own processes on it.
//!
//! All views agree: the total is the limit in bytes, to CUDA and NVML alike, and what is used is what the job holds by
//! the ledger. The driver is always asked first, and what it refuses is refused in its own words. On a node that only
//! observes, and in passive processes, its answer is the program's, byte for byte.
//!
//! - [`mod@slice`]: the limit and what the job holds, of a GPU known by its number in CUDA's order or by a handle of NVML's.
//! - [`memory`]: how much memory there is.
//! - [`own_processes`]: which processes are the job's.
//! - [`list`]: lists of processes in the driver's words, and what is left of them.
//! - [`processes`], [`utilization`], [`accounting`]: who uses the GPU, who keeps it busy, and who did.
//!
//! Left alone, since they name no process and are no part of a slice's memory: the window of the PCI bus (BAR1), and
//! what measures the GPU itself (samples, performance counters, encoders).

pub(crate) mod accounting;
mod list;
pub(crate) mod memory;
mod own_processes;
pub(crate) mod processes;
mod slice;
pub(crate) mod utilization;

use crate::identity::gate;

/// Whether this process sees its slice in the place of the GPU. Asked once a call has passed the gate.
fn are_limited() -> bool {
    gate::is_limited_process() && gate::with_finding(|finding| !finding.observe)
}
