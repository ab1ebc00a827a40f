//! Events behind some of the launches in flight, by which a launch that waits sees whether anything ends.

use softmig_driver_sys::cuda::{
    CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUcontext, CUevent,
};

use super::PacedGpu;
use super::cap::{EVENTS, StreamEnd};
use crate::driver::cuda_queries;
use crate::driver::stream::{Stream, relaxed};
use crate::os::cells::zeroed;

/// The GPU's events, of one context; none while all is zero.
pub(super) struct Progress {
    events: [CUevent; EVENTS],
    context: u64,
}

zeroed! { Progress { events, context } }

impl Progress {
    /// Records one in the calling thread's context. Those of another context are given up.
    fn record(&mut self, event: usize, stream: Stream, context: CUcontext) -> bool {
        if self.context != context as u64 {
            self.events
                .iter()
                .filter(|event| !event.is_null())
                .for_each(|event| {
                    let _ = cuda_queries::cuEventDestroy_v2(*event);
                });
            *self = Self {
                events: [core::ptr::null_mut(); EVENTS],
                context: context as u64,
            };
        }
        let Some(event) = self.events.get_mut(event) else {
            return false;
        };
        let is_made = !event.is_null()
            || cuda_queries::cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
        is_made && stream.record(*event) == CUDA_SUCCESS
    }

    /// Whether one was reached; also if it was given up.
    fn is_reached(&self, event: usize) -> bool {
        let event = self.events.get(event).filter(|event| !event.is_null());
        event.is_none_or(|event| cuda_queries::cuEventQuery(*event) != CUDA_ERROR_NOT_READY)
    }

    /// The context has ended, and its events with it.
    pub(super) fn forget(&mut self, context: CUcontext) {
        if self.context == context as u64 {
            self.context = 0;
            self.events = [core::ptr::null_mut(); EVENTS];
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

    fn record(&self, event: usize) -> bool {
        let progress = self.gpu.progress.try_hold();
        progress.is_some_and(|mut progress| {
            relaxed(|| progress.record(event, self.stream, self.gpu.context()))
        })
    }

    fn is_reached(&self, event: usize) -> bool {
        let progress = self.gpu.progress.try_hold();
        progress.is_some_and(|progress| relaxed(|| progress.is_reached(event)))
    }
}
