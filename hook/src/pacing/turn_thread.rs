//! The thread that looks after a GPU's turns while the program does something else. There is one where there is an arbiter.

use softmig_driver_sys::cuda::CU_STREAM_CAPTURE_MODE_RELAXED;

use super::gpu::PacedGpu;
use crate::driver::cuda_queries;
use crate::os::{self, Thread};

/// Starts it. Without it a turn that is let lie ends when the arbiter takes it.
pub(super) fn start(gpu: &'static PacedGpu) {
    let _ = os::start_thread(gpu);
}

impl Thread for PacedGpu {
    fn run(&'static self) {
        os::name_thread(c"softmig-turns");
        let _exact = os::Exact::timers();
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // This thread must spoil no capture of the program's.
        let _ = cuda_queries::cuThreadExchangeStreamCaptureMode(&mut mode);
        self.attend();
    }
}
