//! Streams: as the program names them, and what the driver says of them.

use softmig_driver_sys::cuda::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_SUCCESS, CUstream, CUstreamCaptureStatus,
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

    pub(crate) fn form(self) -> Form {
        if self.is_per_thread {
            Form::PerThread
        } else {
            Form::Legacy
        }
    }

    /// Whether anything is under way there.
    pub(crate) fn is_busy(self) -> bool {
        let result = if self.is_per_thread {
            // SAFETY: the program's stream.
            unsafe { cuda_queries::cuStreamQuery_ptsz(self.handle) }
        } else {
            // SAFETY: as above.
            unsafe { cuda_queries::cuStreamQuery(self.handle) }
        };
        result == CUDA_ERROR_NOT_READY
    }

    /// Whether it may be another context's than the calling thread's.
    #[inline]
    pub(crate) fn may_be_elsewhere(self) -> bool {
        self.handle as usize > 2 && (are_several_contexts() || !device::has_one_gpu())
    }

    /// Whether what it is given becomes a graph.
    pub(crate) fn is_capturing(self) -> bool {
        is_capturing(self.handle, self.form())
    }
}

/// Which of the two forms of a function is meant: for the legacy default stream, or for one each thread.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Legacy,
    PerThread,
}

/// The default stream.
pub(crate) const DEFAULT: CUstream = core::ptr::null_mut();

/// CU_STREAM_PER_THREAD.
pub(crate) const PER_THREAD: u64 = 2;

/// Calls the driver so that what this thread captures stays whole: some calls of ours would end it.
pub(crate) fn relaxed<R>(call: impl FnOnce() -> R) -> R {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: exchanges this thread's mode with what stands there.
    let result = unsafe { cuda_queries::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    let returned = call();
    if result == CUDA_SUCCESS {
        // SAFETY: puts the mode back.
        let _ = unsafe { cuda_queries::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    }
    returned
}

/// Whether what is given to a stream becomes a graph. Where another stream of the context is captured, the legacy default
/// stream cannot be asked, and allocates nothing either.
pub(crate) fn is_capturing(stream: CUstream, form: Form) -> bool {
    let mut status: CUstreamCaptureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    let result = match form {
        // SAFETY: the program's stream, and room for the answer.
        Form::Legacy => unsafe { cuda_queries::cuStreamIsCapturing(stream, &raw mut status) },
        // SAFETY: as above.
        Form::PerThread => unsafe {
            cuda_queries::cuStreamIsCapturing_ptsz(stream, &raw mut status)
        },
    };
    result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        || result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
}
