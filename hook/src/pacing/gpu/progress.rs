//! An event behind what is in flight, by which a launch that waits for long sees whether anything ends.

use softmig_driver_sys::cuda::{
    CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUcontext, CUevent,
};

use super::PacedGpu;
use super::cap::StreamEnd;
use crate::driver::cuda_queries;
use crate::driver::stream::{Stream, relaxed};
use crate::os::cells::zeroed;

/// The GPU's event; none while all is zero.
pub(super) struct Progress {
    event: CUevent,
    context: u64,
}

zeroed! { Progress { event, context } }

impl Progress {
    /// Records it, in the calling thread's context.
    fn record(&mut self, stream: Stream, context: CUcontext) -> bool {
        if self.context != context as u64 {
            if !self.event.is_null() {
                let _ = cuda_queries::cuEventDestroy_v2(self.event);
            }
            *self = Self {
                event: core::ptr::null_mut(),
                context: context as u64,
            };
            let made = cuda_queries::cuEventCreate(&mut self.event, CU_EVENT_DISABLE_TIMING);
            if made != CUDA_SUCCESS {
                self.forget(context);
                return false;
            }
        }
        stream.record(self.event) == CUDA_SUCCESS
    }

    /// Whether it was reached; also if it went with its context.
    fn is_reached(&self) -> bool {
        self.event.is_null() || cuda_queries::cuEventQuery(self.event) != CUDA_ERROR_NOT_READY
    }

    /// Its context has ended, if it is this.
    pub(super) fn forget(&mut self, context: CUcontext) {
        if self.context == context as u64 {
            self.context = 0;
            self.event = core::ptr::null_mut();
        }
    }
}

/// The end of a stream whose launch waits.
pub(super) struct End<'a> {
    pub(super) gpu: &'a PacedGpu,
    pub(super) stream: Stream,
}

impl StreamEnd for End<'_> {
    fn is_busy(&self) -> bool {
        relaxed(|| self.stream.is_busy())
    }

    fn record(&self) -> bool {
        let progress = self.gpu.progress.try_hold();
        progress.is_some_and(|mut progress| {
            relaxed(|| progress.record(self.stream, self.gpu.context()))
        })
    }

    fn is_reached(&self) -> bool {
        let progress = self.gpu.progress.try_hold();
        progress.is_some_and(|progress| relaxed(|| progress.is_reached()))
    }
}
