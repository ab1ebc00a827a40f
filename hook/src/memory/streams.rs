//! Streams: the driver keeps memory for each, also after it was destroyed.

use core::ffi::{c_int, c_uint};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUgreenCtx, CUresult, CUstream,
};

use crate::account::here;
use crate::rows::asked;
use crate::rows::cuda::real;

/// After a stream was made: if the job holds more than its limit now, it is destroyed again.
fn made(stream: *mut CUstream, result: CUresult) -> CUresult {
    let Some(gpu) = here().filter(|_| result == CUDA_SUCCESS) else {
        return result;
    };
    if gpu.has_room_for_code() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let stream = unsafe { stream.read() };
    // SAFETY: the program has not heard of it.
    let _ = unsafe { asked::cuStreamDestroy_v2(stream) };
    CUDA_ERROR_OUT_OF_MEMORY
}

pub(crate) unsafe fn create(stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    made(stream, unsafe { real::cuStreamCreate(stream, flags) })
}

pub(crate) unsafe fn create_with_priority(
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    made(stream, unsafe {
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
    made(stream, unsafe {
        real::cuGreenCtxStreamCreate(stream, context, flags, priority)
    })
}
