//! Local memory: the stacks of kernels. A context has room for the largest frame of any kernel on all its threads at once,
//! takes it when such a kernel is first launched, and keeps it.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, Ordering};

use softmig_driver_sys::cuda::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_STACK_SIZE,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUfunction, CUkernel, CUlimit, CUresult,
};
use softmig_region::units;

use crate::account::gpu::threads;
use crate::account::outside;
use crate::account::{self, Holding, Kind, Limited, here};
use crate::gate;
use crate::rows::asked;
use crate::rows::cuda::real;

/// Kernels that were looked at, each at a place that follows from its address.
static SEEN: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// Before a kernel is launched: false if its stacks do not fit.
#[inline]
pub(crate) fn fit(function: CUfunction, name: &CStr) -> bool {
    if !gate::is_limited_process() {
        return true;
    }
    let Some(seen) = SEEN.get(function as usize >> 5 & 0xff) else {
        return true;
    };
    // Relaxed: an address and nothing else.
    seen.load(Ordering::Relaxed) == function.cast() || look(function, seen, name)
}

#[cold]
fn look(function: CUfunction, seen: &AtomicPtr<()>, name: &CStr) -> bool {
    let Some(gpu) = here() else { return true };
    let new = Holding {
        units: 0,
        device: gpu.number(),
        count: 1,
        other: 0,
    };
    // Two kernels may have the same place above.
    let is_new = gpu
        .holdings()
        .change(Kind::Kernel, function as u64, |known| {
            (known.or(Some(new)), known.is_none())
        });
    if is_new {
        // Earlier kernels' code has come meanwhile.
        outside::after_code(&gpu);
        if !reserve(&gpu, frame_of(function), name) {
            gpu.holdings().take(Kind::Kernel, function as u64);
            return false;
        }
    }
    seen.store(function.cast(), Ordering::Relaxed);
    true
}

/// Code was unloaded: another kernel may get a known one's address.
pub(crate) fn forget() {
    if let Some(holdings) = account::holdings() {
        holdings.each(Kind::Kernel, |kernel, _| {
            holdings.take(Kind::Kernel, kernel);
        });
    }
    for seen in &SEEN {
        seen.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// A kernel's frame in bytes; 0 if it cannot be had.
pub(crate) fn frame_of(function: CUfunction) -> u32 {
    let ask = |function| {
        let mut bytes: c_int = 0;
        // SAFETY: the program's kernel, and room for the answer.
        let result = unsafe {
            asked::cuFuncGetAttribute(&raw mut bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function)
        };
        (result == CUDA_SUCCESS).then(|| u32::try_from(bytes).unwrap_or(0))
    };
    let of_kernel = || {
        // Programs may launch a library's kernel as it is.
        let mut of_context: CUfunction = core::ptr::null_mut();
        let kernel: CUkernel = function.cast();
        // SAFETY: as above.
        let result = unsafe { real::cuKernelGetFunction(&raw mut of_context, kernel) };
        (result == CUDA_SUCCESS).then(|| ask(of_context))?
    };
    ask(function).or_else(of_kernel).unwrap_or(0)
}

/// Reserves what a context of this GPU needs for frames of so many bytes beyond what it has. It stays charged: a context
/// keeps it.
pub(crate) fn reserve(gpu: &Limited, frame: u32, name: &CStr) -> bool {
    let known = &gpu.place().frame;
    // Relaxed: at worst two threads reserve for the same.
    let before = known.load(Ordering::Relaxed).max(default_frame(gpu));
    if frame <= before {
        return true;
    }
    let units = of_frames(gpu, frame.saturating_sub(before));
    if !gpu.reserve(units, name) {
        return false;
    }
    known.fetch_max(frame, Ordering::Relaxed);
    gpu.place().overhead.fetch_add(units, Ordering::Relaxed);
    true
}

/// The frames that a context has room for from the start: what `cuCtxGetLimit` says, which is part of what it takes.
fn default_frame(gpu: &Limited) -> u32 {
    let known = gpu.place().frame.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let limit = stack_limit();
    gpu.place().frame.fetch_max(limit, Ordering::Relaxed);
    limit
}

fn stack_limit() -> u32 {
    let mut bytes = 0;
    // SAFETY: there is room for the answer.
    let result = unsafe { asked::cuCtxGetLimit(&raw mut bytes, CU_LIMIT_STACK_SIZE) };
    if result == CUDA_SUCCESS {
        u32::try_from(bytes).unwrap_or(u32::MAX)
    } else {
        0
    }
}

/// What frames take on all threads of a GPU.
fn of_frames(gpu: &Limited, bytes: u32) -> u32 {
    units(u64::from(bytes).saturating_mul(threads(gpu)))
}

/// Sets a limit of the context. That on stacks takes memory at once, that on the kernels' heap when a kernel first uses it.
pub(crate) unsafe fn set_limit(limit: CUlimit, value: usize) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let call = || unsafe { real::cuCtxSetLimit(limit, value) };
    let Some(gpu) = here() else { return call() };
    let (units, frame) = match limit {
        CU_LIMIT_STACK_SIZE => {
            let frame = u32::try_from(value).unwrap_or(u32::MAX);
            let before = default_frame(&gpu);
            (of_frames(&gpu, frame.saturating_sub(before)), frame)
        }
        CU_LIMIT_MALLOC_HEAP_SIZE => (units(value as u64), 0),
        _ => return call(),
    };
    if !gpu.reserve(units, c"cuCtxSetLimit") {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    if result != CUDA_SUCCESS {
        gpu.refund(units);
        return result;
    }
    if limit == CU_LIMIT_STACK_SIZE {
        lowered(&gpu, frame);
    }
    gpu.place().overhead.fetch_add(units, Ordering::Relaxed);
    result
}

/// A lower limit on stacks gives back what was more.
fn lowered(gpu: &Limited, frame: u32) {
    let before = gpu.place().frame.swap(frame, Ordering::Relaxed);
    let less = of_frames(gpu, before.saturating_sub(frame));
    outside::lower(gpu, less);
}
