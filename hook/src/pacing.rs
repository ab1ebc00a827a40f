//! Time on the GPU. Where the monitor steers the GPU, it holds a job's channels from outside, and launches wait only in a pack of
//! several users, for turns of others. Where it does not, a launch waits until the job's cap lets it go on.
//!
//! - [`gpu`]: one GPU. A launch, the thread that samples whether there is work, and the cap without the monitor.
//! - [`arbiter_client`]: what this process tells the monitor.
//! - [`channels`]: the channels that the monitor steers by.
//! - [`streams`], [`captures`]: which streams can be asked for work, and when. [`flight`], [`events`]: where the cap holds, what
//!   each has in flight.
//!
//! No launch waits for a lock that another thread holds in the driver, nor for ever for the program's own work to end: the work
//! may wait for that launch.

mod arbiter_client;
pub(crate) mod captures;
pub(crate) mod channels;
mod events;
mod flight;
mod gpu;
mod streams;

use core::sync::atomic::{AtomicU8, Ordering};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUcontext, CUdevice, CUresult, CUstream,
};
use softmig_policy::node::job_conf::MAX_GPUS;

use crate::driver::context::{in_context_of, is_active, primary_of};
use crate::driver::device;
use crate::driver::stream::Stream;
use crate::identity::{gate, share};
use crate::os;
use gpu::PacedGpu;
pub(crate) use gpu::Ticket;

/// Whether launches wait in this process.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const FREE: u8 = 1;
const PACED: u8 = 2;

/// Launches when the job may have the GPU.
#[inline]
pub(crate) fn paced(stream: Stream, launch: impl FnOnce() -> CUresult) -> CUresult {
    // Relaxed: a state and nothing else.
    if STATE.load(Ordering::Relaxed) == FREE {
        return launch();
    }
    match admit(stream) {
        Ok(None) => launch(),
        Ok(Some(ticket)) => {
            let result = launch();
            ticket.launched();
            result
        }
        Err(refused) => refused,
    }
}

/// Waits until the job may have the GPU. The ticket is told of the launch, if it is limited; an error where it cannot be.
#[inline]
pub(crate) fn admit(stream: Stream) -> Result<Option<Ticket>, CUresult> {
    if !is_paced() {
        return Ok(None);
    }
    let here = || Ok(PacedGpu::current()?.map(|gpu| gpu.admit(stream)));
    if stream.may_be_elsewhere() {
        return in_context_of(stream.handle, here);
    }
    match here() {
        // A thread without a context can launch in a stream of one.
        Ok(None) => in_context_of(stream.handle, here),
        admitted => admitted,
    }
}

/// Launches on several GPUs at once, when the job may have all of them. `part` says in which streams, by number.
pub(crate) fn paced_together(
    part: &dyn Fn(usize) -> Option<Stream>,
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
    part: &dyn Fn(usize) -> Option<Stream>,
    launch: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let Some(stream) = part(number).filter(|_| number < MAX_GPUS) else {
        return launch();
    };
    let ticket = match admit(stream) {
        Ok(ticket) => ticket,
        Err(refused) => return refused,
    };
    let result = paced_from(number.saturating_add(1), part, launch);
    if let Some(ticket) = ticket {
        ticket.launched();
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

/// The program may have a new context. Its process asks for a seat then, also if it never launches: the monitor takes processes
/// with a context and without a seat for processes without this library.
///
/// Not in the call that made the channels: the driver holds its locks there.
#[inline]
pub(crate) fn seat_contexts() {
    // Relaxed: the thread that made a context comes here itself.
    if channels::HAS_NEW_CONTEXT.load(Ordering::Relaxed) {
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
    channels::HAS_NEW_CONTEXT.store(false, Ordering::Relaxed);
    let with_primary = (0..device::device_count()).filter(|&device| is_active(device));
    let gpus = with_primary
        .map(PacedGpu::for_device)
        .chain(core::iter::once_with(PacedGpu::current));
    for gpu in gpus.flatten().flatten() {
        gpu.take_seat();
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
    PacedGpu::each(|gpu| gpu.closed_context(context, has_ended));
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
    gpu.closed_context(context, !is_active(device));
    result
}
