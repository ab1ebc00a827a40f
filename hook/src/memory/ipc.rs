//! Memory of other processes and other interfaces. It lives as long as any of those who can use it, and its maker may be gone: so whoever
//! opens it is charged. Memory that a process of the same job shares by a handle is charged to that one, and after it to the job: see
//! [`super::export`].

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_SUCCESS, CUdeviceptr,
    CUexternalMemory, CUipcMemHandle, CUresult,
};
use softmig_region::units;

use super::export;
use crate::driver::args::{Given, In};
use crate::driver::device::device_of;
use crate::driver::{context, cuda_queries, nvml_queries};
use crate::identity::gate;
use crate::ledger::pieces::{expect_others, in_pieces};
use crate::ledger::{self, CallGuard, Holding, Kind, LimitedGpu, here};

/// Remembers memory that was opened; how large it is the driver says only now. Opened again it has the same address.
fn opened(
    pointer: &Given<CUdeviceptr>,
    result: CUresult,
    handle: Option<&CUipcMemHandle>,
    close: fn(CUdeviceptr) -> CUresult,
) -> CUresult {
    if result != CUDA_SUCCESS || !gate::is_limited_process() {
        return result;
    }
    let Some(address) = pointer.get() else {
        return result;
    };
    // It lies where its maker had it, which may be another GPU than that of the calling thread's context.
    let there = device_of(address).map(LimitedGpu::on);
    let Some(gpu) = there.unwrap_or_else(here) else {
        return result;
    };
    let (mut base, mut size) = (0, 0);
    let known = cuda_queries::cuMemGetAddressRange_v2(&mut base, &mut size, address);
    let is_the_jobs = handle.is_some_and(|handle| gpu.is_shared(export::name(handle)))
        && nvml_queries::lists_all();
    let units = if known == CUDA_SUCCESS && !is_the_jobs {
        in_pieces(size as u64)
    } else {
        0
    };
    let new = Holding {
        units,
        device: gpu.number(),
        count: 0,
        other: context::current(),
    };
    let guard = CallGuard::on(&gpu);
    if !gpu.reserve(&guard, units, c"cuIpcOpenMemHandle") {
        let _ = close(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let charged = ledger::add_reference(gpu.holdings(), Kind::Opened, address, new);
    gpu.refund(charged);
    gpu.count_elsewhere(units.saturating_sub(charged));
    expect_others();
    result
}

/// Opens memory of another process.
pub(crate) fn open(
    pointer: &Given<CUdeviceptr>,
    handle: CUipcMemHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let close = cuda_queries::cuIpcCloseMemHandle;
    opened(pointer, call(), Some(&handle), close)
}

/// Opens memory of another interface, such as Vulkan.
pub(crate) fn import(
    memory: &Given<CUexternalMemory>,
    description: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let (Some(asked), Some(gpu)) = (description.get(), here()) else {
        return call();
    };
    let units = units(asked.size);
    ledger::charged(&gpu, units, c"cuImportExternalMemory", call, || {
        let held = Holding {
            units,
            device: gpu.number(),
            count: 1,
            other: context::current(),
        };
        gpu.count_elsewhere(units);
        if let Some(memory) = memory.get() {
            ledger::keep(&gpu, Kind::External, memory as u64, held);
        }
    })
}

/// Opens a block of another process's pool.
pub(crate) fn import_pointer(
    pointer: &Given<CUdeviceptr>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    opened(pointer, call(), None, cuda_queries::cuMemFree_v2)
}
