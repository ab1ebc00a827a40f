//! Streams: as the program names them, and what the driver says of them.

use softmig_driver_sys::cuda::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_SUCCESS, CUevent, CUresult, CUstream,
    CUstreamCaptureStatus,
};

use super::context::are_several_contexts;
use super::{cuda_queries, device};

/// A stream, as the program names it.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// Its handle.
    pub(crate) handle: CUstream,
    /// Whether the function takes the thread's own stream for the default one.
    pub(crate) is_per_thread: bool,
}

impl Stream {
    /// The stream of a function without an ending.
    pub(crate) fn plain(handle: CUstream) -> Self {
        Self {
            handle,
            is_per_thread: false,
        }
    }

    /// The stream of a function that ends in `_ptsz`.
    pub(crate) fn per_thread(handle: CUstream) -> Self {
        Self {
            handle,
            is_per_thread: true,
        }
    }

    /// Whether it is the thread's own: no other thread can record an event in it.
    pub(crate) fn is_own(self) -> bool {
        self.is_per_thread && self.handle.is_null() || self.handle as u64 == PER_THREAD
    }

    /// Whether anything is under way there.
    pub(crate) fn is_busy(self) -> bool {
        self.busy() == Ok(true)
    }

    /// The same; CUDA's error where it does not say so.
    pub(crate) fn busy(self) -> Result<bool, CUresult> {
        let result = if self.is_per_thread {
            cuda_queries::cuStreamQuery_ptsz(self.handle)
        } else {
            cuda_queries::cuStreamQuery(self.handle)
        };
        match result {
            CUDA_SUCCESS => Ok(false),
            CUDA_ERROR_NOT_READY => Ok(true),
            error => Err(error),
        }
    }

    /// Waits until nothing is.
    pub(crate) fn synchronize(self) -> CUresult {
        if self.is_per_thread {
            cuda_queries::cuStreamSynchronize_ptsz(self.handle)
        } else {
            cuda_queries::cuStreamSynchronize(self.handle)
        }
    }

    /// Records an event there.
    pub(crate) fn record(self, event: CUevent) -> CUresult {
        if self.is_per_thread {
            cuda_queries::cuEventRecord_ptsz(event, self.handle)
        } else {
            cuda_queries::cuEventRecord(event, self.handle)
        }
    }

    /// Whether it may be another context's than the calling thread's.
    #[inline]
    pub(crate) fn may_be_elsewhere(self) -> bool {
        self.handle as usize > 2 && (are_several_contexts() || !device::has_one_gpu())
    }

    /// Whether the stream is captured, so that its work becomes a graph. Where another stream of the context is captured, the legacy default
    /// stream cannot be asked, and allocates nothing either.
    pub(crate) fn is_capturing(self) -> bool {
        let mut status: CUstreamCaptureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
        let result = if self.is_per_thread {
            cuda_queries::cuStreamIsCapturing_ptsz(self.handle, &mut status)
        } else {
            cuda_queries::cuStreamIsCapturing(self.handle, &mut status)
        };
        result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            || result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
    }
}

/// The default stream.
pub(crate) const DEFAULT: CUstream = core::ptr::null_mut();

/// CU_STREAM_PER_THREAD.
pub(crate) const PER_THREAD: u64 = 2;

/// Calls the driver so that what this thread captures stays whole: some calls of ours would end it.
pub(crate) fn relaxed<R>(call: impl FnOnce() -> R) -> R {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    let result = cuda_queries::cuThreadExchangeStreamCaptureMode(&mut mode);
    let returned = call();
    if result == CUDA_SUCCESS {
        let _ = cuda_queries::cuThreadExchangeStreamCaptureMode(&mut mode);
    }
    returned
}
