//! The thread that looks after a GPU's turns while the program does something else. There is one where there is an arbiter.

use core::ffi::c_void;

use softmig_driver_sys::cuda::CU_STREAM_CAPTURE_MODE_RELAXED;

use super::gpu::Gpu;
use crate::driver::cuda_queries;
use crate::os;

/// Starts it. Without it a turn that is let lie ends when the arbiter takes it.
pub(super) fn start(gpu: &'static Gpu) {
    let with = core::ptr::from_ref(gpu).cast_mut().cast();
    let _ = os::start_thread(run, with);
}

extern "C" fn run(with: *mut c_void) -> *mut c_void {
    os::name_thread(c"softmig-turns");
    let _exact = os::Exact::timers();
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: exchanges this thread's mode: it must spoil no capture of the program's.
    let _ = unsafe { cuda_queries::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    // SAFETY: what `start` gave, which is never given back.
    if let Some(gpu) = unsafe { with.cast::<Gpu>().as_ref() } {
        gpu.attend();
    }
    core::ptr::null_mut()
}
