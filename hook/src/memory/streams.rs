//! Streams: the driver keeps memory for each, also after it was destroyed.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUgreenCtx, CUresult, CUstream,
};

use softmig_region::units_of_mib;

use crate::driver::cuda::real;
use crate::ledger::{self, here};

/// What so many streams take, in units: 0.55 MiB each, in pieces of 2 MiB (docs/gpu-notes.md).
fn units_of(streams: u32) -> u32 {
    const STREAM: u32 = 9;
    const PIECE: u32 = units_of_mib(2);
    let pieces = streams.saturating_mul(STREAM).div_ceil(PIECE);
    pieces.saturating_mul(PIECE)
}

/// So many streams are charged as they are made; of more the driver's figure tells. They stay charged: a stream that is
/// destroyed leaves what it took to the next.
const CHARGED: u32 = 16;

/// Makes a stream.
fn make(stream: *mut CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(gpu) = here() else { return call() };
    let before = gpu.place().streams.fetch_add(1, Ordering::Relaxed);
    if before < CHARGED {
        let more = units_of(before.saturating_add(1)).saturating_sub(units_of(before));
        return ledger::charged(&gpu, more, c"cuStreamCreate", call, || {
            gpu.place().overhead.fetch_add(more, Ordering::Relaxed);
        });
    }
    // No more than a start: the count does not end.
    gpu.place().streams.store(CHARGED, Ordering::Relaxed);
    let result = call();
    if result != CUDA_SUCCESS || gpu.has_room_for_code() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let stream = unsafe { stream.read() };
    // SAFETY: the program has not heard of it.
    let _ = unsafe { real::cuStreamDestroy_v2(stream) };
    CUDA_ERROR_OUT_OF_MEMORY
}

pub(crate) unsafe fn create(stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    make(stream, || unsafe { real::cuStreamCreate(stream, flags) })
}

pub(crate) unsafe fn create_with_priority(
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    make(stream, || unsafe {
        real::cuStreamCreateWithPriority(stream, flags, priority)
    })
}

pub(crate) unsafe fn create_green(
    stream: *mut CUstream,
    context: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    make(stream, || unsafe {
        real::cuGreenCtxStreamCreate(stream, context, flags, priority)
    })
}
