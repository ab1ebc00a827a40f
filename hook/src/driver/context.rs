//! Contexts: the calling thread's, a stream's and a GPU's own.

use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUstream};

use super::cuda_queries;

/// Whether this process had several contexts.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether this process ever had several contexts on a GPU.
#[inline]
pub(crate) fn are_several_contexts() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// There is more than one context.
pub(crate) fn expect_several_contexts() {
    SEVERAL.store(true, Ordering::Relaxed);
}

/// The calling thread's context, as a number.
pub(crate) fn current() -> u64 {
    let mut context: CUcontext = core::ptr::null_mut();
    let _ = cuda_queries::cuCtxGetCurrent(&mut context);
    context as u64
}

/// The GPU of the calling thread's context.
pub(crate) fn device() -> Option<CUdevice> {
    let mut device = 0;
    // Without a context the other call would fail, and compute-sanitizer would report that as the program's error.
    let is_known = current() != 0 && cuda_queries::cuCtxGetDevice(&mut device) == CUDA_SUCCESS;
    is_known.then_some(device)
}

/// Calls `ask` with the stream's context as the calling thread's.
pub(crate) fn in_context_of<T>(stream: CUstream, ask: impl FnOnce() -> T) -> T {
    let mut own: CUcontext = core::ptr::null_mut();
    // The handles 0, 1 and 2 mean the default streams of the thread's context.
    let is_known =
        stream as usize > 2 && cuda_queries::cuStreamGetCtx(stream, &mut own) == CUDA_SUCCESS;
    if is_known { within(own, ask) } else { ask() }
}

/// Calls `ask` with a context as the calling thread's.
pub(crate) fn within<T>(own: CUcontext, ask: impl FnOnce() -> T) -> T {
    if own as u64 == current() {
        return ask();
    }
    if cuda_queries::cuCtxPushCurrent_v2(own) != CUDA_SUCCESS {
        return ask();
    }
    let answer = ask();
    let mut before: CUcontext = core::ptr::null_mut();
    let _ = cuda_queries::cuCtxPopCurrent_v2(&mut before);
    answer
}

/// Whether a GPU has its primary context.
pub(crate) fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    let result = cuda_queries::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active);
    result == CUDA_SUCCESS && active != 0
}

/// A GPU's primary context, if it has one.
pub(crate) fn primary_of(device: CUdevice) -> Option<CUcontext> {
    let mut context: CUcontext = core::ptr::null_mut();
    if !is_active(device) {
        return None;
    }
    if cuda_queries::cuDevicePrimaryCtxRetain(&mut context, device) != CUDA_SUCCESS {
        return None;
    }
    // Only the name is needed.
    let _ = cuda_queries::cuDevicePrimaryCtxRelease_v2(device);
    Some(context)
}
