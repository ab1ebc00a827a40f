//! A thread's own state. Nothing here needs dropping: a destructor would keep the library from being unloaded.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use softmig_driver_sys::cuda::*;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    static LAUNCHED: Cell<Launched> = const { Cell::new(Launched::Nothing) };
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// This thread's acts since it recorded an event.
#[derive(Clone, Copy)]
enum Launched {
    Nothing,
    /// It launched a kernel, and asked for no event since then.
    Kernel,
    /// It did ask.
    KernelAndAsked,
}

/// It launches a kernel.
pub(crate) fn launches() {
    LAUNCHED.set(Launched::Kernel);
}

/// It asks whether an event is reached.
pub(crate) fn asks() {
    if matches!(LAUNCHED.get(), Launched::Kernel) {
        LAUNCHED.set(Launched::KernelAndAsked);
    }
}

/// It records an event. Whether it asked for another since the launch before.
pub(crate) fn records() -> bool {
    let before = LAUNCHED.replace(Launched::Nothing);
    matches!(before, Launched::KernelAndAsked)
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
