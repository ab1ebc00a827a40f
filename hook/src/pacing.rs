//! Time on the GPU: each launch waits until its job may have more of it.
//!
//! Launches are limited by the time that they take: as measured, or for short work that is known well, as samples of it were. One launch, followed:
//!
//! 1. [`paced`] is one load and one comparison where no limit holds. Else the launch's time is estimated
//!    ([`estimates`]) and added to what is in flight on the GPU ([`gpu`]), which has a ceiling. Below it, that was all.
//! 2. At the ceiling, or where the turn is over, the thread waits: for its own work, for the job's credit
//!    ([`job_cap`]), or for a turn ([`arbiter_client`]).
//! 3. From time to time an event is recorded behind a launch ([`events`]). When it is reached, its work is in flight no
//!    more, the time between it and the one before is charged, and estimates are corrected. Where a stream was idle an
//!    event before the launch begins the time, so that gaps are not charged.
//! 4. A thread of the hook's own gives turns back that the program lets lie ([`turn_thread`]).
//! 5. Work of several streams at the same time counts once ([`busy_intervals`]).
//!
//! No launch waits for a lock that another thread holds in the driver (who finds a stream's events in use leaves them), nor
//! for ever for the program's own work to end: the work may wait for that launch. Only where a stream or a context ends its
//! events are waited for. Streams that capture are left alone; a graph is charged when it is launched.

mod arbiter_client;
mod busy_intervals;
pub(crate) mod captures;
pub(crate) mod channels;
mod concurrency;
mod coscheduling;
mod estimates;
mod events;
mod gpu;
mod job_cap;
mod streams;
mod turn_thread;
mod work;

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUcontext, CUdevice, CUresult, CUstream,
};
use softmig_policy::node::job_conf::MAX_GPUS;

use crate::driver::context::{in_context_of, is_active, primary_of};
use crate::driver::device;
use crate::driver::stream::Stream;
use crate::identity::{gate, share};
use crate::os;
pub(crate) use estimates::UNKNOWN_NS;
use gpu::PacedGpu;
pub(crate) use gpu::Ticket;
pub(crate) use work::Work;

/// Whether launches wait in this process.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const FREE: u8 = 1;
const PACED: u8 = 2;

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
    match admit(stream, work()) {
        Ok(None) => launch(),
        Ok(Some(ticket)) => {
            let result = launch();
            launched(ticket, result);
            result
        }
        Err(refused) => refused,
    }
}

/// Waits until the job may have the GPU. The ticket is told of the launch, if it is limited; an error where it cannot be.
#[inline]
pub(crate) fn admit(stream: Stream, work: Work) -> Result<Option<Ticket>, CUresult> {
    if !is_paced() {
        return Ok(None);
    }
    let here = || Ok(PacedGpu::current()?.map(|gpu| gpu.admit(stream, work)));
    if stream.may_be_elsewhere() {
        return in_context_of(stream.handle, here);
    }
    match here() {
        // A thread without a context can launch in a stream of one.
        Ok(None) => in_context_of(stream.handle, here),
        admitted => admitted,
    }
}

/// After the launch.
#[inline]
pub(crate) fn launched(ticket: Ticket, result: CUresult) {
    let stream = ticket.stream();
    if stream.may_be_elsewhere() {
        in_context_of(stream.handle, || ticket.launched(result));
    } else {
        ticket.launched(result);
    }
}

/// Launches on several GPUs at once, when the job may have all of them. `part` says what is launched in which stream, by
/// number.
pub(crate) fn paced_together(
    part: &dyn Fn(usize) -> Option<(Stream, Work)>,
    launch: impl FnOnce() -> CUresult,
) -> CUresult {
    let mut launch = Some(launch);
    let mut once = || launch.take().map_or(CUDA_ERROR_UNKNOWN, |launch| launch());
    if may_be_paced() {
        paced_from(0, part, &mut once)
    } else {
        once()
    }
}

fn paced_from(
    number: usize,
    part: &dyn Fn(usize) -> Option<(Stream, Work)>,
    launch: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let Some((stream, work)) = part(number).filter(|_| number < MAX_GPUS) else {
        return launch();
    };
    let ticket = match admit(stream, work) {
        Ok(ticket) => ticket,
        Err(refused) => return refused,
    };
    let result = paced_from(number.saturating_add(1), part, launch);
    if let Some(ticket) = ticket {
        launched(ticket, result);
    }
    result
}

/// Whether any launch may have to wait in this process.
#[inline]
pub(crate) fn may_be_paced() -> bool {
    // Relaxed: see above.
    STATE.load(Ordering::Relaxed) != FREE
}

/// Whether launches wait, which is found out at the first.
#[inline]
fn is_paced() -> bool {
    // Relaxed: see above.
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => find_out(),
        state => state == PACED,
    }
}

#[cold]
fn find_out() -> bool {
    if !gate::is_limited_for_good() {
        STATE.store(FREE, Ordering::Relaxed);
        return false;
    }
    let Some(is_paced) = share::is_any() else {
        return false;
    };
    STATE.store(if is_paced { PACED } else { FREE }, Ordering::Relaxed);
    is_paced
}

/// The program waits for a stream, or for all (`None`): marks the end of what is in flight before, so that the time after it
/// is not charged.
#[inline]
pub(crate) fn waiting(stream: Option<Stream>, wait: impl FnOnce() -> CUresult) -> CUresult {
    if STATE.load(Ordering::Relaxed) != PACED {
        return wait();
    }
    let begun = before_waiting(stream);
    let result = wait();
    waited(stream, begun);
    result
}

#[cold]
#[inline(never)]
fn before_waiting(stream: Option<Stream>) -> u64 {
    if let Ok(Some(gpu)) = PacedGpu::current() {
        gpu.mark_ends(stream);
    }
    os::nanoseconds()
}

#[cold]
#[inline(never)]
fn waited(stream: Option<Stream>, begun: u64) {
    let _errno = os::Errno::save();
    if let Ok(Some(gpu)) = PacedGpu::current() {
        gpu.note_wait(stream, os::nanoseconds().saturating_sub(begun));
    }
}

/// Called before the stream is given something other than the GPU's work: a wait, a call of the host, a copy from or to
/// the host. Earlier work ends before it, and the time of later work begins behind it.
#[inline]
pub(crate) fn before_pause(stream: Stream) {
    if STATE.load(Ordering::Relaxed) == PACED {
        break_off(stream);
    }
}

#[cold]
fn break_off(stream: Stream) {
    if let Ok(Some(gpu)) = PacedGpu::current() {
        gpu.break_off(stream);
    }
}

/// Whether a context may exist that [`seat_contexts`] did not see: the driver has made channels, as for each context.
static HAS_NEW_CONTEXT: AtomicBool = AtomicBool::new(false);

/// A context was made, perhaps while another thread looked.
pub(crate) fn expect_context() {
    HAS_NEW_CONTEXT.store(true, Ordering::Relaxed);
}

/// The program may have a new context. Its process asks for a seat then, also if it never launches: the monitor takes processes
/// with a context and without a seat for processes without this library.
///
/// Not in the call that made the channels: the driver holds its locks there.
#[inline]
pub(crate) fn seat_contexts() {
    // Relaxed: the thread that made a context comes here itself.
    if HAS_NEW_CONTEXT.load(Ordering::Relaxed) {
        seat_new_contexts();
    }
}

#[cold]
#[inline(never)]
fn seat_new_contexts() {
    let _errno = os::Errno::save();
    if !is_paced() {
        return;
    }
    HAS_NEW_CONTEXT.store(false, Ordering::Relaxed);
    let with_primary = (0..device::device_count()).filter(|&device| is_active(device));
    let gpus = with_primary
        .map(PacedGpu::for_device)
        .chain(core::iter::once_with(PacedGpu::current));
    for gpu in gpus.flatten().flatten() {
        gpu.take_seat_early();
    }
}

/// The driver has made channels for this process, or ended some: the arbiter is to know.
pub(crate) fn channels_changed() {
    if STATE.load(Ordering::Relaxed) == PACED {
        PacedGpu::each(|gpu| gpu.tell_channels());
    }
}

/// A stream is about to end: nothing may be recorded in it any more.
pub(crate) fn forget_stream(stream: CUstream) {
    if STATE.load(Ordering::Relaxed) == PACED {
        PacedGpu::each(|gpu| gpu.forget_stream(stream));
    }
}

/// Ends a context, with its streams and events.
pub(crate) fn ending_context(context: CUcontext, end: &dyn Fn() -> CUresult) -> CUresult {
    if STATE.load(Ordering::Relaxed) != PACED {
        return end();
    }
    PacedGpu::each(|gpu| gpu.close_context(context));
    let result = end();
    let has_ended = result == CUDA_SUCCESS;
    PacedGpu::each(|gpu| close(gpu, context, has_ended));
    result
}

/// A GPU's own context is to end.
pub(crate) fn ending_primary(device: CUdevice, end: &dyn Fn() -> CUresult) -> CUresult {
    let gpu = if STATE.load(Ordering::Relaxed) == PACED {
        PacedGpu::known(device)
    } else {
        None
    };
    let Some((gpu, context)) = gpu.and_then(|gpu| Some((gpu, primary_of(device)?))) else {
        return end();
    };
    gpu.close_context(context);
    let result = end();
    close(gpu, context, !is_active(device));
    result
}

fn close(gpu: &'static PacedGpu, context: CUcontext, has_ended: bool) {
    if has_ended {
        gpu.forget_context(context);
    } else {
        gpu.reopen_context(context);
    }
}
