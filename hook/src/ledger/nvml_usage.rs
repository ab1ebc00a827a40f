//! The driver's own figure for this process, from NVML: it knows also what no call names, such as contexts, code that
//! is loaded when it is first used, and the stacks of kernels.
//!
//! Looked at when half of what was left of the limit is gone, after code was loaded, and before a program hears that it
//! is out of memory; never in a call that finds room easily.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::CUDA_SUCCESS;
use softmig_driver_sys::nvml::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_FOUND, NVML_ERROR_UNINITIALIZED, NVML_SUCCESS,
    nvmlDevice_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlReturn_t,
};

use super::device::LimitedGpu;
use super::pools;
use crate::driver::args::{Name, Out};
use crate::driver::{context, cuda_queries, device, nvml_queries};
use crate::os;
use crate::os::cells::Mapped;

/// The bytes that a context takes besides the stacks of kernels, and the bytes of stack for each thread that a GPU can
/// run at once. Measured on an H200 (research/gpu-memory.md); on other GPUs a first guess, corrected when this process looks
/// outside.
const CONTEXT: u64 = 104 << 20;
const STACK: u64 = 1606;

/// The units that a green context adds to the primary one's.
pub(crate) const OF_GREEN_CONTEXT: u32 = softmig_region::units_of_mib(6);

/// The units of a context on a GPU.
pub(crate) fn of_context(gpu: &LimitedGpu) -> u32 {
    let known = gpu.state().context.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let stacks = super::device::threads(gpu).saturating_mul(STACK);
    let guess = softmig_region::units(CONTEXT.saturating_add(stacks));
    gpu.state().context.store(guess, Ordering::Relaxed);
    guess
}

/// Charges what the driver counts for this process and the account does not. `reserved` units are in the account and not
/// yet the driver's. False if the driver cannot be asked.
#[cold]
pub(crate) fn raise(gpu: &LimitedGpu, reserved: u32) -> bool {
    let _errno = os::Errno::save();
    let mut found: Option<(u32, u32)> = None;
    for _ in 0..LOOKS {
        let (named_before, was_alone) = (named(gpu), gpu.is_alone());
        let Some((low, high)) = look(gpu, reserved) else {
            break;
        };
        // Memory that another thread took and gave back during a look seems to have no name.
        found = Some((found.map_or(low, |(least, _)| least.min(low)), high));
        if was_alone && gpu.is_alone() && named_before == named(gpu) {
            break;
        }
    }
    if let Some((low, _)) = found {
        let before = gpu.state().overhead.fetch_max(low, Ordering::Relaxed);
        gpu.charge(low.saturating_sub(before));
    }
    found.is_some()
}

/// How many looks it takes at most where other threads take and give back memory at the same time.
const LOOKS: usize = 4;

/// Charges as [`raise`] does, and also refunds units that are charged too much. Units that are promised and not taken
/// yet stay charged. The caller counts as one call under way; while there are others, account and driver may differ,
/// and nothing is refunded.
#[cold]
pub(crate) fn correct(gpu: &LimitedGpu) {
    for _ in 0..PATIENCE {
        // Pools shrink by themselves: what they are charged too much would be missing here.
        pools::refresh_all(gpu);
        let was_alone = gpu.is_alone();
        let Some((low, high)) = look(gpu, 0) else {
            return;
        };
        pools::refresh_all(gpu);
        let Some((again_low, again_high)) = look(gpu, 0) else {
            return;
        };
        if was_alone && gpu.is_alone() && low == again_low && high == again_high {
            let state = gpu.state();
            let promised = state.promised.load(Ordering::Relaxed);
            let overhead = state.overhead.load(Ordering::Relaxed);
            set(gpu, overhead.min(high).max(promised).max(low));
            // The first guess was too much for this GPU.
            state.context.fetch_min(high, Ordering::Relaxed);
            rebase(gpu);
            return;
        }
        os::pause();
    }
}

/// How many pauses of a millisecond other threads' calls are waited for.
const PATIENCE: usize = 3;

/// Charges something without a name that is there or may come at any time, for as long as the process lives.
pub(crate) fn promise(gpu: &LimitedGpu, units: u32) {
    gpu.count_apart(|state| &state.promised, units);
    gpu.state().overhead.fetch_add(units, Ordering::Relaxed);
}

/// A promise is over.
pub(crate) fn release(gpu: &LimitedGpu, units: u32) {
    gpu.count_apart_no_more(|state| &state.promised, units);
    lower(gpu, units);
}

/// The first time that a context is seen on a GPU.
#[cold]
pub(crate) fn meet(gpu: &LimitedGpu) {
    let _errno = os::Errno::save();
    if !device::has_one_gpu() {
        context::expect_several_contexts();
    }
    set(gpu, of_context(gpu));
    rebase(gpu);
}

/// Keeps the free memory of now: later changes are compared with it.
fn rebase(gpu: &LimitedGpu) {
    let (mut free, mut total) = (0, 0);
    let result = cuda_queries::cuMemGetInfo_v2(&mut free, &mut total);
    if result == CUDA_SUCCESS {
        gpu.state().free.store(free as u64, Ordering::Relaxed);
        gpu.state().named.store(named(gpu), Ordering::Relaxed);
    }
}

/// How much has to come or go on the GPU for this process to look again after it loaded code.
const STEP: u64 = 32 << 20;

/// After code may have been loaded: looks outside if what is free on the GPU is another amount than before. That may be a
/// neighbour's doing, and then the look finds nothing.
pub(crate) fn after_code(gpu: &LimitedGpu) {
    let (mut free, mut total) = (0, 0);
    let result = cuda_queries::cuMemGetInfo_v2(&mut free, &mut total);
    if result != CUDA_SUCCESS {
        return;
    }
    noticed(gpu, free as u64);
}

/// Compares the free bytes of the GPU with what they were. Charges by name explain a part of the change.
pub(crate) fn noticed(gpu: &LimitedGpu, free: u64) {
    let state = gpu.state();
    let named = named(gpu);
    let bytes = softmig_region::bytes;
    // Relaxed: to look twice does no harm.
    let before = state.free.load(Ordering::Relaxed);
    let gone = before.saturating_add(bytes(state.named.load(Ordering::Relaxed)));
    let explained = free.saturating_add(bytes(named));
    if gone.abs_diff(explained) < STEP {
        return;
    }
    state.free.store(free, Ordering::Relaxed);
    state.named.store(named, Ordering::Relaxed);
    if !raise(gpu, 0) {
        let units = softmig_region::units;
        let (came, went) = (
            units(gone.saturating_sub(explained)),
            units(explained.saturating_sub(gone)),
        );
        guess(gpu, came, went);
    }
}

/// What came or went on the GPU, where the driver's figures do not have this process: its own code, or a neighbour's memory. So it
/// counts for as much as a context at most, which is more than the code of PyTorch or JAX takes (research/gpu-memory.md), and what
/// goes is given back.
fn guess(gpu: &LimitedGpu, came: u32, went: u32) {
    let state = gpu.state();
    let most = of_context(gpu);
    let next = |had: u32| had.saturating_add(came).min(most).saturating_sub(went);
    let set = |had| Some(next(had));
    let guessed = &state.guessed;
    let had = guessed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    let had = had.unwrap_or(0);
    let more = next(had).saturating_sub(had);
    state.overhead.fetch_add(more, Ordering::Relaxed);
    gpu.charge(more);
    lower(gpu, had.saturating_sub(next(had)));
}

/// Refunds these units for something without a name that has gone.
pub(crate) fn lower(gpu: &LimitedGpu, units: u32) {
    let overhead = &gpu.state().overhead;
    let had = overhead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |had| {
        Some(had.saturating_sub(units))
    });
    gpu.refund(had.unwrap_or(0).min(units));
}

/// The units that are charged by name.
fn named(gpu: &LimitedGpu) -> u32 {
    let state = gpu.state();
    let part = |part: &AtomicU32| part.load(Ordering::Relaxed);
    gpu.held_here()
        .saturating_sub(part(&state.overhead))
        .saturating_sub(part(&state.outlives))
}

/// The units that this process holds beyond those that are charged by name: at least and at most. Between them is
/// memory that other processes have as well, which the driver may count for them.
fn look(gpu: &LimitedGpu, reserved: u32) -> Option<(u32, u32)> {
    let state = gpu.state();
    let before = named(gpu);
    let used = softmig_region::units(seen_by_nvml(gpu)?);
    // Memory that other threads take meanwhile is in the account before the driver has it. Memory that they give back
    // is in the account for longer.
    let named = named(gpu).max(before);
    let part = |part: &AtomicU32| part.load(Ordering::Relaxed);
    let named = named
        .saturating_sub(part(&state.managed))
        .saturating_sub(reserved);
    let counted_here = named.saturating_sub(part(&state.elsewhere));
    Some((
        used.saturating_sub(named),
        used.saturating_sub(counted_here),
    ))
}

/// Charges `overhead` in the place of what was charged before.
fn set(gpu: &LimitedGpu, overhead: u32) {
    let before = gpu.state().overhead.swap(overhead, Ordering::Relaxed);
    gpu.charge(overhead.saturating_sub(before));
    gpu.refund(before.saturating_sub(overhead));
}

/// More than any GPU has.
const MOST_PROCESSES: usize = (16 << 10) / size_of::<nvmlProcessInfo_t>();

/// The bytes that are free on a GPU; `None` where the driver cannot be asked.
pub(crate) fn free(gpu: &LimitedGpu) -> Option<u64> {
    Some(memory(in_nvml(gpu)?)?.free)
}

/// The driver's figures for a GPU's memory; `None` where it has none.
pub(super) fn memory(device: nvmlDevice_t) -> Option<nvmlMemory_v2_t> {
    let mut memory = nvmlMemory_v2_t {
        version: softmig_driver_sys::struct_version::<nvmlMemory_v2_t>(2),
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    let result = nvml_queries::nvmlDeviceGetMemoryInfo_v2(device, &mut memory);
    (result == NVML_SUCCESS).then_some(memory)
}

/// A GPU in NVML, which is asked to be ready.
pub(super) fn in_nvml(gpu: &LimitedGpu) -> Option<nvmlDevice_t> {
    if !nvml_queries::is_ready() {
        return None;
    }
    let find = || device(b"GPU-", gpu).or_else(|_| device(b"MIG-", gpu));
    let found = match find() {
        // The program has ended NVML once too often.
        Err(NVML_ERROR_UNINITIALIZED) => {
            if !nvml_queries::start_again() {
                return None;
            }
            find()
        }
        found => found,
    };
    found.ok()
}

/// The bytes that the driver counts for this process; `None` where it cannot be asked, or does not say.
fn seen_by_nvml(gpu: &LimitedGpu) -> Option<u64> {
    let us = os::process_id();
    let mut known = None;
    processes(in_nvml(gpu)?, |process, bytes| {
        if process == us {
            known = known.max(Some(bytes));
        }
    })?;
    known
}

/// Calls `each` with each process on a GPU and the bytes that the driver counts for it, where it counts any. `None` where it cannot be
/// asked. It tells each process the numbers of its own namespace.
pub(super) fn processes(device: nvmlDevice_t, mut each: impl FnMut(u32, u64)) -> Option<()> {
    let mut infos: Mapped<nvmlProcessInfo_t> = Mapped::new(MOST_PROCESSES).ok()?;
    let mut count = MOST_PROCESSES as u32;
    let result = nvml_queries::nvmlDeviceGetComputeRunningProcesses_v3(
        device,
        &mut count,
        Out::list(&mut infos),
    );
    if result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE {
        return None;
    }
    // The driver says "not available" by the largest number.
    let known = infos
        .iter()
        .take(count as usize)
        .filter(|info| info.usedGpuMemory != u64::MAX);
    known.for_each(|info| each(info.pid, info.usedGpuMemory));
    Some(())
}

/// NVML's handle of a GPU, or of a part of one; or NVML's error.
fn device(kind: &[u8; 4], gpu: &LimitedGpu) -> Result<nvmlDevice_t, nvmlReturn_t> {
    let mut device: nvmlDevice_t = core::ptr::null_mut();
    let uuid = device::written(kind, gpu.uuid());
    let uuid = uuid.as_path().ok_or(NVML_ERROR_NOT_FOUND)?;
    let result = nvml_queries::nvmlDeviceGetHandleByUUID(Name(uuid), &mut device);
    if result == NVML_SUCCESS {
        Ok(device)
    } else {
        Err(result)
    }
}
