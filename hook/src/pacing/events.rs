//! The events of a stream.

use softmig_driver_sys::cuda::{
    CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUcontext, CUevent_st,
};

use super::flight::EVENTS;
use crate::driver::args::Handle;
use crate::driver::cuda_queries;
use crate::driver::stream::Stream;
use crate::os::cells::zeroed;

/// Those of one context; none while all is zero.
pub(super) struct Events {
    events: [Handle<CUevent_st>; EVENTS],
    context: u64,
}

zeroed! { Events { events, context } }

impl Events {
    /// Records one in the calling thread's context. Those of another context are given up.
    pub(super) fn record(&mut self, event: usize, stream: Stream, context: CUcontext) -> bool {
        if self.context != context as u64 {
            self.events
                .iter()
                .filter(|event| !event.0.is_null())
                .for_each(|event| {
                    let _ = cuda_queries::cuEventDestroy_v2(event.0);
                });
            *self = Self {
                events: [Handle::NULL; EVENTS],
                context: context as u64,
            };
        }
        let Some(Handle(event)) = self.events.get_mut(event) else {
            return false;
        };
        let is_made = !event.is_null()
            || cuda_queries::cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
        is_made && stream.record(*event) == CUDA_SUCCESS
    }

    /// Whether one was reached; also if it was given up.
    pub(super) fn is_reached(&self, event: usize) -> bool {
        let event = self.events.get(event).filter(|event| !event.0.is_null());
        event.is_none_or(|event| cuda_queries::cuEventQuery(event.0) != CUDA_ERROR_NOT_READY)
    }

    /// The context has ended, and they with it.
    pub(super) fn forget(&mut self) {
        *self = Self {
            events: [Handle::NULL; EVENTS],
            context: 0,
        };
    }
}
