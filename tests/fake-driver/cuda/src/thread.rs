//! What is a thread's own. Nothing here needs dropping: a destructor would keep the library from being unloaded.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use softmig_driver_sys::cuda::*;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// A number for this thread that no other has or had.
pub(crate) fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let known = NUMBER.get();
    if known != 0 {
        return known;
    }
    // Relaxed: only that no two are the same matters.
    let new = NEXT.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(new);
    new
}

/// How strict the driver is with this thread while something captures.
pub(crate) fn capture_mode() -> CUstreamCaptureMode {
    CAPTURE_MODE.get()
}

/// Changes it, and returns what it was.
pub(crate) fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    CAPTURE_MODE.replace(mode)
}
