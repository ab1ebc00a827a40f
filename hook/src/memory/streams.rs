//! Streams: the driver keeps memory for each, also after it was destroyed.

use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult, CUstream};
use softmig_region::units_of_mib;

use crate::driver::args::Given;
use crate::driver::cuda_queries;
use crate::ledger::{self, here};
use crate::pacing;

/// The units that a number of streams takes: 0.55 MiB each, in pieces of 2 MiB (research/gpu-memory.md).
fn units_of(streams: u32) -> u32 {
    const STREAM: u32 = 9;
    const PIECE: u32 = units_of_mib(2);
    let pieces = streams.saturating_mul(STREAM).div_ceil(PIECE);
    pieces.saturating_mul(PIECE)
}

/// This many streams are charged as they are made; of more the driver's figure tells. They stay charged: a stream that is
/// destroyed leaves what it took to the next.
const CHARGED: u32 = 16;

/// Makes a stream.
pub(crate) fn create(stream: &Given<CUstream>, call: impl Fn() -> CUresult) -> CUresult {
    created(stream, &call)
}

fn created(stream: &Given<CUstream>, call: &dyn Fn() -> CUresult) -> CUresult {
    let Some(gpu) = here() else { return call() };
    let before = gpu.state().streams.fetch_add(1, Ordering::Relaxed);
    if before < CHARGED {
        let more = units_of(before.saturating_add(1)).saturating_sub(units_of(before));
        return ledger::charged(&gpu, more, c"cuStreamCreate", call, || {
            gpu.state().overhead.fetch_add(more, Ordering::Relaxed);
        });
    }
    // No more than a start: the count does not end.
    gpu.state().streams.store(CHARGED, Ordering::Relaxed);
    let result = call();
    if result != CUDA_SUCCESS || gpu.has_room_for_code() {
        return result;
    }
    if let Some(stream) = stream.get() {
        let _ = cuda_queries::cuStreamDestroy_v2(stream);
    }
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Destroys a stream: events cannot be recorded in it any more.
pub(crate) fn destroy(stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    pacing::forget_stream(stream);
    call()
}
