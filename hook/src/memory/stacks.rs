//! Local memory: the stacks of kernels. A context has room for the largest frame of any kernel on all its threads at once,
//! takes it when such a kernel is first launched, and keeps it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use softmig_driver_sys::cuda::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_STACK_SIZE,
    CUDA_SUCCESS, CUfunction, CUlimit, CUresult, CUstream,
};
use softmig_region::units;

use crate::driver::context::{self, are_several_contexts};
use crate::driver::cuda_queries;
use crate::identity::gate;
use crate::ledger::device::{hold_primary_of, threads};
use crate::ledger::{self, CallGuard, Holding, Kind, LimitedGpu, here, nvml_usage};

/// Kernels that were looked at, each at a place that follows from its address; of use while there is one context, since the
/// same kernel may be launched in each.
static SEEN: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

fn clear_seen() {
    for seen in &SEEN {
        seen.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Before a kernel is launched: false if its stacks do not fit.
#[inline]
pub(crate) fn fit(function: CUfunction, stream: CUstream, name: &CStr) -> bool {
    if !gate::is_limited_process() {
        return true;
    }
    let Some(seen) = SEEN.get(function as usize >> 5 & 0xff) else {
        return true;
    };
    // Relaxed: an address and nothing else.
    let is_seen = seen.load(Ordering::Relaxed) == function.cast() && !are_several_contexts();
    is_seen || look_there(function, stream, seen, name)
}

/// In the stream's context: the thread's may be another, or none.
#[cold]
fn look_there(function: CUfunction, stream: CUstream, seen: &AtomicPtr<()>, name: &CStr) -> bool {
    context::in_context_of(stream, || look(function, seen, name))
}

fn look(function: CUfunction, seen: &AtomicPtr<()>, name: &CStr) -> bool {
    let Some(gpu) = here() else { return true };
    let new = Holding {
        units: 0,
        device: gpu.number(),
        count: 1,
        other: 0,
    };
    let kernel = function as u64 ^ context::current().rotate_left(20);
    // Two kernels may have the same place above.
    if gpu.holdings().get(Kind::Kernel, kernel).is_none() {
        // To ask for its frame loads it. Threads that launch it first at the same time each do all of this: it is known only
        // when it fits.
        if !(reserve_alone(&gpu, frame_of(function), name) && gpu.has_room()) {
            return false;
        }
        gpu.holdings().put(Kind::Kernel, kernel, new);
    }
    if !are_several_contexts() {
        seen.store(function.cast(), Ordering::Relaxed);
    }
    true
}

/// Code was unloaded, or a context ended: another kernel may get a known one's address, and another context its handle.
pub(crate) fn forget() {
    if let Some(holdings) = ledger::holdings() {
        holdings.each(Kind::Kernel, |kernel, _| {
            holdings.take(Kind::Kernel, kernel);
        });
    }
    clear_seen();
}

/// A kernel's frame in bytes; 0 if it cannot be had.
pub(crate) fn frame_of(function: CUfunction) -> u32 {
    let ask = |function| {
        let mut bytes = 0;
        let attribute = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        let result = cuda_queries::cuFuncGetAttribute(&mut bytes, attribute, function);
        (result == CUDA_SUCCESS).then(|| u32::try_from(bytes).unwrap_or(0))
    };
    let of_kernel = || {
        // Programs may launch a library's kernel as it is.
        let mut of_context: CUfunction = core::ptr::null_mut();
        let result = cuda_queries::cuKernelGetFunction(&mut of_context, function.cast());
        (result == CUDA_SUCCESS).then(|| ask(of_context))?
    };
    ask(function).or_else(of_kernel).unwrap_or(0)
}

fn reserve_alone(gpu: &LimitedGpu, frame: u32, name: &CStr) -> bool {
    reserve(gpu, &CallGuard::on(gpu), frame, name)
}

/// Reserves the memory that the current context lacks for frames of `frame` bytes. It stays charged, since a context keeps
/// it. `call` is the driver's call that is under way.
pub(crate) fn reserve(gpu: &LimitedGpu, call: &CallGuard, frame: u32, name: &CStr) -> bool {
    let context = context::current();
    let mut stacks = of_context(gpu, context);
    while frame > stacks.count {
        let more = of_frames(gpu, frame.saturating_sub(stacks.count));
        if gpu.reserve(call, more, name) {
            nvml_usage::promise(gpu, more);
            nvml_usage::release(gpu, deepened(gpu, context, frame, more));
            return true;
        }
        // Another thread may have had the same in mind, and what it has is there for this one too.
        let now = of_context(gpu, context);
        if now.count <= stacks.count {
            return false;
        }
        stacks = now;
    }
    true
}

/// From now on a context has room for this frame, for which `more` was reserved; what of that was not needed, since another
/// thread was faster.
fn deepened(gpu: &LimitedGpu, context: u64, frame: u32, more: u32) -> u32 {
    gpu.holdings().change(Kind::Stacks, context, |known| {
        let Some(stacks) = known else {
            return (None, 0);
        };
        let needed = of_frames(gpu, frame.saturating_sub(stacks.count)).min(more);
        let deeper = Holding {
            count: stacks.count.max(frame),
            units: stacks.units.saturating_add(needed),
            ..stacks
        };
        (Some(deeper), more.saturating_sub(needed))
    })
}

/// The stacks of a context. At first they have the size that `cuCtxGetLimit` tells, which is part of every context's
/// memory.
fn of_context(gpu: &LimitedGpu, context: u64) -> Holding {
    let known = gpu.holdings().get(Kind::Stacks, context);
    known.unwrap_or_else(|| {
        let new = Holding {
            units: 0,
            device: gpu.number(),
            count: stack_limit(),
            other: 0,
        };
        gpu.holdings().change(Kind::Stacks, context, |known| {
            let stacks = known.unwrap_or(new);
            (Some(stacks), stacks)
        })
    })
}

/// From now on a context has room for this frame.
fn keep(gpu: &LimitedGpu, context: u64, frame: u32, units: impl FnOnce(u32) -> u32) {
    gpu.holdings().change(Kind::Stacks, context, |known| {
        let larger = known.map(|stacks| Holding {
            count: frame,
            units: units(stacks.units),
            ..stacks
        });
        (larger, ())
    });
}

/// Forgets a context that is gone. Returns the units that its stacks took beyond those of every context.
pub(crate) fn forget_context(gpu: &LimitedGpu, context: u64) -> u32 {
    let stacks = gpu.holdings().take(Kind::Stacks, context);
    stacks.map_or(0, |stacks| stacks.units)
}

fn stack_limit() -> u32 {
    let mut bytes = 0;
    if cuda_queries::cuCtxGetLimit(&mut bytes, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS {
        u32::try_from(bytes).unwrap_or(u32::MAX)
    } else {
        0
    }
}

/// The units of frames on all threads of a GPU.
fn of_frames(gpu: &LimitedGpu, bytes: u32) -> u32 {
    units(u64::from(bytes).saturating_mul(threads(gpu)))
}

/// Sets a limit of the context. That on stacks takes memory at once, that on the kernels' heap when a kernel first uses it.
pub(crate) fn set_limit(limit: CUlimit, value: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(gpu) = here() else { return call() };
    // No other thread may change the limit between the read of its old value and the change.
    let _context_guard = hold_primary_of(gpu.number().into());
    match limit {
        CU_LIMIT_STACK_SIZE => set_stacks(&gpu, value, call),
        CU_LIMIT_MALLOC_HEAP_SIZE => {
            let context = context::current();
            let before = of_context(&gpu, context).other;
            let heap = units(value as u64).into();
            let more = u32::try_from(u64::saturating_sub(heap, before)).unwrap_or(u32::MAX);
            ledger::charged(&gpu, more, c"cuCtxSetLimit", call, || {
                nvml_usage::promise(&gpu, more);
                gpu.holdings().change(Kind::Stacks, context, |known| {
                    let larger = known.map(|stacks| Holding {
                        units: stacks.units.saturating_add(more),
                        other: heap.max(before),
                        ..stacks
                    });
                    (larger, ())
                });
            })
        }
        _ => call(),
    }
}

fn set_stacks(gpu: &LimitedGpu, value: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let frame = u32::try_from(value).unwrap_or(u32::MAX);
    let context = context::current();
    let before = of_context(gpu, context);
    let more = of_frames(gpu, frame.saturating_sub(before.count));
    ledger::charged(gpu, more, c"cuCtxSetLimit", call, || {
        nvml_usage::promise(gpu, more);
        // A lower limit gives back the difference; the stacks that every context has stay charged.
        let heap = u32::try_from(before.other).unwrap_or(u32::MAX);
        let stacks = before.units.saturating_sub(heap);
        let less = of_frames(gpu, before.count.saturating_sub(frame)).min(stacks);
        keep(gpu, context, frame, |had| {
            had.saturating_add(more).saturating_sub(less)
        });
        nvml_usage::release(gpu, less);
    })
}
