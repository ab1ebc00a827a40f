//! Time on the GPU: each launch waits until its job may have more of it.
//!
//! Limited is what is launched, by the time that it takes; nothing is charged that was not measured. One launch, followed:
//!
//! 1. [`paced`] is one load and one comparison where no limit holds. Else the launch's time is estimated
//!    ([`estimates`]) and added to what is in flight on the GPU ([`gpu`]), which has a ceiling. Below it, that was all.
//! 2. At the ceiling, or where the turn is over, the thread waits: for its own work, for the job's credit
//!    ([`own`]), or for a turn ([`turns`]).
//! 3. From time to time an event is recorded behind a launch ([`streams`]). When it is reached, its work is in flight no
//!    more, the time between it and the one before is charged, and estimates are corrected. Where a stream was idle an
//!    event before the launch begins the time, so that gaps are not charged.
//! 4. A thread of the hook's own gives turns back that the program lets lie ([`helper`]).
//! 5. What several streams did at the same time counts once ([`covered`]).
//!
//! No thread waits for a lock while another is in the driver, and no launch for the program's own work to end: the work may
//! wait for that launch. Streams that capture are left alone; a graph is charged when it is launched.

mod covered;
mod estimates;
mod gpu;
mod helper;
mod own;
mod share;
mod streams;
mod turns;

use core::sync::atomic::{AtomicU8, Ordering};

use softmig_driver_sys::cuda::{CUcontext, CUdevice, CUresult, CUstream};

use crate::gate;
use gpu::Gpu;
pub(crate) use share::of_limits as share_of;

/// Whether launches wait in this process.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const FREE: u8 = 1;
const PACED: u8 = 2;

/// What a launch does, as far as its time is known by it: the same work takes about the same time.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// A kernel, or a graph that can be launched.
    pub(crate) what: u64,
    /// How much of it.
    pub(crate) size: u64,
    /// It may begin before what was launched before it has ended.
    pub(crate) is_chained: bool,
}

/// A stream, as the program names it.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// Its handle.
    pub(crate) handle: CUstream,
    /// Whether the function takes the thread's own stream for the default one.
    pub(crate) is_per_thread: bool,
}

impl Stream {
    /// The stream of a function without an ending.
    pub(crate) fn plain(handle: CUstream) -> Self {
        Self {
            handle,
            is_per_thread: false,
        }
    }

    /// The stream of a function that ends in `_ptsz`.
    pub(crate) fn per_thread(handle: CUstream) -> Self {
        Self {
            handle,
            is_per_thread: true,
        }
    }
}

/// Launches when the job may have the GPU.
#[inline]
pub(crate) fn paced(
    stream: Stream,
    work: impl FnOnce() -> Work,
    launch: impl FnOnce() -> CUresult,
) -> CUresult {
    // Relaxed: a state and nothing else.
    if STATE.load(Ordering::Relaxed) == FREE {
        return launch();
    }
    match gpu().map(|gpu| gpu.admit(stream, work())) {
        None => launch(),
        Some(ticket) => {
            let result = launch();
            ticket.launched(result);
            result
        }
    }
}

/// The GPU of the calling thread's context, if the time on it is limited.
fn gpu() -> Option<&'static Gpu> {
    // Relaxed: see above.
    if STATE.load(Ordering::Relaxed) == UNKNOWN && !find_out() {
        return None;
    }
    Gpu::current()
}

#[cold]
fn find_out() -> bool {
    if !gate::is_limited_process() {
        // Known once a call has passed the gate, and this one has.
        STATE.store(FREE, Ordering::Relaxed);
        return false;
    }
    let Some(is_paced) = share::is_any() else {
        return false;
    };
    STATE.store(if is_paced { PACED } else { FREE }, Ordering::Relaxed);
    is_paced
}

/// Before the program waits for a stream, or for all (`None`): marks the end of what is in flight, so that the time
/// after it is not charged.
#[inline]
pub(crate) fn before_waiting(stream: Option<Stream>) {
    if STATE.load(Ordering::Relaxed) == PACED {
        mark_ends(stream);
    }
}

#[cold]
fn mark_ends(stream: Option<Stream>) {
    if let Some(gpu) = Gpu::current() {
        gpu.mark_ends(stream);
    }
}

/// A stream is about to end: nothing may be recorded in it any more.
pub(crate) fn forget_stream(stream: CUstream) {
    if STATE.load(Ordering::Relaxed) == PACED {
        Gpu::each(|gpu| gpu.forget_stream(stream));
    }
}

/// A GPU's own context may be about to end.
pub(crate) fn forget_device(device: CUdevice) {
    if STATE.load(Ordering::Relaxed) == PACED
        && let Some(gpu) = Gpu::known(device)
    {
        gpu.forget_all();
    }
}

/// A context is about to end, with its streams and events.
pub(crate) fn forget_context(context: CUcontext) {
    if STATE.load(Ordering::Relaxed) == PACED {
        Gpu::each(|gpu| gpu.forget_context(context));
    }
}
