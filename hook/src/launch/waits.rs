//! Where a program waits for its work, and where a stream ends: the time of what it launched ends there, not with the next
//! launch.

use softmig_driver_sys::cuda::{CUcontext, CUevent, CUresult, CUstream};

use crate::driver::cuda::real;
use crate::driver::stream::Stream;
use crate::pacing;

pub(crate) unsafe fn stream(stream: CUstream) -> CUresult {
    pacing::waiting(Some(Stream::plain(stream)), || {
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        unsafe { real::cuStreamSynchronize(stream) }
    })
}

pub(crate) unsafe fn stream_ptsz(stream: CUstream) -> CUresult {
    pacing::waiting(Some(Stream::per_thread(stream)), || {
        // SAFETY: as above.
        unsafe { real::cuStreamSynchronize_ptsz(stream) }
    })
}

pub(crate) unsafe fn context() -> CUresult {
    pacing::waiting(None, || {
        // SAFETY: as above.
        unsafe { real::cuCtxSynchronize() }
    })
}

pub(crate) unsafe fn context_v2(context: CUcontext) -> CUresult {
    pacing::waiting(None, || {
        // SAFETY: as above.
        unsafe { real::cuCtxSynchronize_v2(context) }
    })
}

pub(crate) unsafe fn event(event: CUevent) -> CUresult {
    pacing::waiting(None, || {
        // SAFETY: as above.
        unsafe { real::cuEventSynchronize(event) }
    })
}

pub(crate) unsafe fn destroy(stream: CUstream) -> CUresult {
    pacing::forget_stream(stream);
    // SAFETY: as above.
    unsafe { real::cuStreamDestroy(stream) }
}

pub(crate) unsafe fn destroy_v2(stream: CUstream) -> CUresult {
    pacing::forget_stream(stream);
    // SAFETY: as above.
    unsafe { real::cuStreamDestroy_v2(stream) }
}
