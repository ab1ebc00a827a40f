//! Stream-ordered allocation: the memory that counts is the pool's, which keeps memory that is freed to it.
//!
//! A pool grows inside the driver, in steps, and only when no free block fits. So the most that it may grow by is
//! reserved before each allocation. Afterwards the driver is asked how much the pool holds, and that is charged.

use core::ffi::CStr;

use softmig_driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_SUCCESS, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use softmig_region::units;

use crate::driver::args::{Given, In};
use crate::driver::context::in_context_of;
use crate::driver::device;
use crate::driver::stream::{Stream, relaxed};
use crate::identity::gate;
use crate::ledger::pools::{self, Pool};
use crate::ledger::{CallGuard, LimitedGpu, here};
use crate::os;

/// A pool grows by multiples of this (research/gpu-memory.md).
const STEP: u64 = 32 << 20;

/// The GPU of a stream, which may be another one than that of the calling thread's context; the thread may have none.
#[inline]
fn of_stream(stream: CUstream) -> Option<LimitedGpu> {
    if !gate::is_limited_process() {
        return None;
    }
    let own = here();
    if own.is_some() && device::has_one_gpu() {
        own
    } else {
        in_context_of(stream, here)
    }
}

/// In the place of a pool: the GPU's current one.
pub(crate) const NO_POOL: CUmemoryPool = core::ptr::null_mut();

/// Allocates `bytes` from a pool.
pub(crate) fn alloc(
    pool: CUmemoryPool,
    bytes: usize,
    stream: Stream,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(gpu) = of_stream(stream.handle).filter(|_| bytes > 0) else {
        return call();
    };
    let Some(pool) = Pool::resolve(&gpu, pool) else {
        return call();
    };
    let gpu = *pool.gpu();
    let guard = CallGuard::on(&gpu);
    let currents = pools::currents();
    let Some(units) = reserve(&gpu, &guard, &pool, (bytes as u64, stream), function) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let result = call();
    if pools::currents() != currents {
        // It may have come from another one.
        pools::refresh_all(&gpu);
    }
    pool.answered(result);
    pool.look(units, result);
    result
}

/// Reserves the most that a pool may grow by, and a step more. So a pool that can grow no more can still use its free
/// blocks, though it is not known beforehand whether one fits. `None` if that does not fit. A captured allocation is
/// charged when the graph is launched.
fn reserve(
    gpu: &LimitedGpu,
    guard: &CallGuard,
    pool: &Pool,
    (bytes, stream): (u64, Stream),
    function: &CStr,
) -> Option<u32> {
    let growth = units(bytes.div_ceil(STEP).saturating_mul(STEP));
    let with_step = growth.saturating_add(units(STEP));
    if gpu.reserve_quietly(with_step) {
        return Some(with_step);
    }
    if stream.is_capturing() {
        return Some(0);
    }
    if pool.unused() >= bytes && gpu.reserve_quietly(growth) {
        return Some(growth);
    }
    // Memory that is freed in the order of a stream is the pool's again when the stream comes to it.
    for _ in 0..LONGEST_WAIT {
        if !relaxed(|| stream.is_busy()) {
            // The driver gives the pool what was freed only to a thread that waits for the stream.
            relaxed(|| stream.synchronize());
            break;
        }
        os::pause();
    }
    pools::give_back(gpu);
    let is_there = gpu.reserve_quietly(with_step) || gpu.reserve(guard, with_step, function);
    is_there.then_some(with_step)
}

/// How many pauses of a millisecond a stream is waited for: its work may wait for this very thread.
const LONGEST_WAIT: usize = 100;

/// Remembers a pool that lies on a GPU; the host's are left alone.
pub(crate) fn create(
    place: &Given<CUmemoryPool>,
    properties: In<CUmemPoolProps>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    let properties = properties.get();
    let Some(properties) =
        properties.filter(|_| result == CUDA_SUCCESS && gate::is_limited_process())
    else {
        return result;
    };
    let Some(pool) = place.get() else {
        return result;
    };
    let location = properties.location;
    let is_managed = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    let on_gpu = location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    if !on_gpu && !is_managed {
        pools::remember_host(pool);
        return result;
    }
    // Managed memory comes to the GPU that uses it, wherever it is said to lie.
    let gpu = if on_gpu {
        LimitedGpu::on(location.id)
    } else {
        here()
    };
    if let Some(gpu) = gpu {
        let kind = if is_managed { pools::MANAGED } else { 0 };
        pools::remember(&gpu, pool, kind);
    }
    result
}

/// Destroys a pool.
pub(crate) fn destroy(pool: CUmemoryPool, call: impl FnOnce() -> CUresult) -> CUresult {
    let going = pools::begin_destroying(pool);
    let result = call();
    if let Some(going) = going {
        pools::end_destroying(pool, &going, result);
    }
    result
}

/// Makes a pool give unused memory back.
pub(crate) fn trim(pool: CUmemoryPool, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        let gpu = here();
        let _guard = gpu.as_ref().map(CallGuard::on);
        pools::refresh(pool);
    }
    result
}

/// From now on allocations without a pool come from another one.
pub(crate) fn set_current(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        pools::forget_currents();
    }
    result
}
