//! Streams: the driver keeps memory for each, also after it was destroyed.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{CUgreenCtx, CUresult, CUstream};

use crate::account::{self, here};
use crate::rows::cuda::real;

/// What a stream takes where there are many (docs/gpu-notes.md), in units.
const STREAM: u32 = 9;

/// Makes a stream.
fn make(call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(gpu) = here() else { return call() };
    account::charged(&gpu, STREAM, c"cuStreamCreate", call, || {
        gpu.place().overhead.fetch_add(STREAM, Ordering::Relaxed);
    })
}

pub(crate) unsafe fn create(stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    make(|| unsafe { real::cuStreamCreate(stream, flags) })
}

pub(crate) unsafe fn create_with_priority(
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    make(|| unsafe { real::cuStreamCreateWithPriority(stream, flags, priority) })
}

pub(crate) unsafe fn create_green(
    stream: *mut CUstream,
    context: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    make(|| unsafe { real::cuGreenCtxStreamCreate(stream, context, flags, priority) })
}
