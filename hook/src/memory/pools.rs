//! Stream-ordered allocation: the memory that counts is the pool's, which keeps what is freed to it.
//!
//! A pool grows inside the driver, in steps, and only when no free block fits. So what it may grow by is reserved before
//! each allocation, and afterwards the driver is asked what the pool holds: that is what is charged.

use core::ffi::CStr;

use softmig_driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUmemAllocationType,
    CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use softmig_region::units;

use crate::driver::context::in_context_of;
use crate::driver::cuda::real;
use crate::driver::stream::{self, Form};
use crate::driver::{args, cuda_queries, device};
use crate::identity::gate;
use crate::ledger::pools::{self, Pool};
use crate::ledger::{self, Busy, Kind, Limited, here};
use crate::os;

/// A pool grows by multiples of this (docs/gpu-notes.md).
const STEP: u64 = 32 << 20;

/// The GPU of a stream, which may be another one than that of the calling thread's context; the thread may have none.
#[inline]
fn of_stream(stream: CUstream) -> Option<Limited> {
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

/// Allocates `bytes` from a pool, the GPU's current one if `pool` is null.
fn allocate(
    pool: CUmemoryPool,
    bytes: usize,
    (stream, form): (CUstream, Form),
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(gpu) = of_stream(stream).filter(|_| bytes > 0) else {
        return call();
    };
    let Some(pool) = Pool::of(&gpu, pool) else {
        return call();
    };
    let gpu = *pool.gpu();
    let busy = Busy::on(&gpu);
    let currents = pools::currents();
    let asked = (bytes as u64, stream, form);
    let Some(units) = reserve(&gpu, &busy, &pool, asked, function) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let result = call();
    if pools::currents() != currents {
        // It may have come from another one.
        pools::refresh_all(&gpu);
    }
    pool.look(units);
    result
}

/// Reserves what a pool may grow by, and a step more: so what is left when a pool can grow no more lets its free blocks be
/// used all the same, though nobody knows beforehand whether one fits. `None` if there is no room. What is captured is
/// charged when the graph is launched.
fn reserve(
    gpu: &Limited,
    busy: &Busy,
    pool: &Pool,
    (bytes, stream, form): (u64, CUstream, Form),
    function: &CStr,
) -> Option<u32> {
    let growth = units(bytes.div_ceil(STEP).saturating_mul(STEP));
    let with_step = growth.saturating_add(units(STEP));
    if gpu.reserve_quietly(with_step) {
        return Some(with_step);
    }
    if stream::is_capturing(stream, form) {
        return Some(0);
    }
    if pool.unused() >= bytes && gpu.reserve_quietly(growth) {
        return Some(growth);
    }
    // What is freed in the order of a stream is the pool's again when the stream comes to it.
    for _ in 0..LONGEST_WAIT {
        let result = stream::relaxed(|| match form {
            // SAFETY: the program's stream.
            Form::Legacy => unsafe { cuda_queries::cuStreamQuery(stream) },
            // SAFETY: as above.
            Form::PerThread => unsafe { cuda_queries::cuStreamQuery_ptsz(stream) },
        });
        if result != CUDA_ERROR_NOT_READY {
            // Only who waits for a stream is told that it came so far, though there is nothing to wait for any more.
            stream::relaxed(|| match form {
                // SAFETY: as above.
                Form::Legacy => unsafe { real::cuStreamSynchronize(stream) },
                // SAFETY: as above.
                Form::PerThread => unsafe { real::cuStreamSynchronize_ptsz(stream) },
            });
            break;
        }
        os::pause();
    }
    pools::give_back(gpu);
    let is_there = gpu.reserve_quietly(with_step) || gpu.reserve(busy, with_step, function);
    is_there.then_some(with_step)
}

/// How many pauses of a millisecond a stream is waited for: its work may wait for this very thread.
const LONGEST_WAIT: usize = 100;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    allocate(
        core::ptr::null_mut(),
        bytes,
        (stream, Form::Legacy),
        c"cuMemAllocAsync",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuMemAllocAsync(pointer, bytes, stream) },
    )
}

pub(crate) unsafe fn alloc_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    allocate(
        core::ptr::null_mut(),
        bytes,
        (stream, Form::PerThread),
        c"cuMemAllocAsync",
        // SAFETY: as above.
        || unsafe { real::cuMemAllocAsync_ptsz(pointer, bytes, stream) },
    )
}

pub(crate) unsafe fn alloc_from(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    allocate(
        pool,
        bytes,
        (stream, Form::Legacy),
        c"cuMemAllocFromPoolAsync",
        // SAFETY: as above.
        || unsafe { real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream) },
    )
}

pub(crate) unsafe fn alloc_from_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    allocate(
        pool,
        bytes,
        (stream, Form::PerThread),
        c"cuMemAllocFromPoolAsync",
        // SAFETY: as above.
        || unsafe { real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream) },
    )
}

/// Remembers a pool that lies on a GPU; the host's are left alone.
pub(crate) unsafe fn create(
    place: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> CUresult {
    // SAFETY: the program's argument.
    let asked = unsafe { args::read(properties) };
    // What is looked at here is what the driver gets: another thread may change the program's.
    let properties = args::of(asked.as_ref(), properties);
    // SAFETY: as above.
    let result = unsafe { real::cuMemPoolCreate(place, properties) };
    let Some(properties) = asked.filter(|_| result == CUDA_SUCCESS && gate::is_limited_process())
    else {
        return result;
    };
    let location = properties.location;
    let is_managed = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    let on_gpu = location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    // SAFETY: the driver has just written there.
    let pool = unsafe { place.read() };
    if !on_gpu && !is_managed {
        pools::remember_host(pool);
        return result;
    }
    // Managed memory comes to the GPU that uses it, wherever it is said to lie.
    let gpu = if on_gpu {
        Limited::on(location.id)
    } else {
        here()
    };
    if let Some(gpu) = gpu {
        let kind = if is_managed { pools::MANAGED } else { 0 };
        pools::remember(&gpu, pool, kind);
    }
    result
}

pub(crate) unsafe fn destroy(pool: CUmemoryPool) -> CUresult {
    // What it holds for nobody goes with it.
    let left = if gate::is_limited_process() {
        pools::trimmed(pool)
    } else {
        0
    };
    let held = ledger::holdings().and_then(|holdings| holdings.take(Kind::Pool, pool as u64));
    // SAFETY: as above.
    let result = unsafe { real::cuMemPoolDestroy(pool) };
    if let (Some(held), Some(holdings)) = (held, ledger::holdings()) {
        if result == CUDA_SUCCESS {
            pools::destroyed(&held, left);
            pools::forget_currents();
        } else {
            holdings.put(Kind::Pool, pool as u64, held);
        }
    }
    result
}

pub(crate) unsafe fn trim(pool: CUmemoryPool, keep: usize) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuMemPoolTrimTo(pool, keep) };
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        let gpu = here();
        let _busy = gpu.as_ref().map(Busy::on);
        pools::refresh(pool);
    }
    result
}

/// From now on allocations without a pool come from another one.
pub(crate) unsafe fn set(device: CUdevice, pool: CUmemoryPool) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuDeviceSetMemPool(device, pool) };
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        pools::forget_currents();
    }
    result
}

/// The same, by place and kind of memory.
pub(crate) unsafe fn set_for(
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuMemSetMemPool(location, kind, pool) };
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        pools::forget_currents();
    }
    result
}
