//! Memory of other processes and other interfaces. Whoever can use it is charged for it: it lives as long as any of them
//! keeps it, and the process that made it may be gone.

use core::ffi::c_uint;
use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_SUCCESS, CUdeviceptr,
    CUexternalMemory, CUipcMemHandle, CUmemPoolPtrExportData, CUmemoryPool, CUresult,
};
use softmig_region::units;

use crate::driver::cuda::real;
use crate::driver::device::device_of;
use crate::driver::{args, context, cuda_queries};
use crate::identity::gate;
use crate::ledger::pieces::{expect_others, in_pieces};
use crate::ledger::{self, Busy, Holding, Kind, Limited, here};

/// Remembers memory that was opened; how large it is the driver says only now. Opened again it has the same address.
fn opened(
    pointer: *mut CUdeviceptr,
    result: CUresult,
    close: impl FnOnce(CUdeviceptr) -> CUresult,
) -> CUresult {
    if result != CUDA_SUCCESS || !gate::is_limited_process() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let address = unsafe { pointer.read() };
    // It lies where its maker had it, which may be another GPU than that of the calling thread's context.
    let there = device_of(address).map(Limited::on);
    let Some(gpu) = there.unwrap_or_else(here) else {
        return result;
    };
    let (mut base, mut size) = (0, 0);
    // SAFETY: there is room for both answers.
    let known =
        unsafe { cuda_queries::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address) };
    let units = if known == CUDA_SUCCESS {
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
    let busy = Busy::on(&gpu);
    if !gpu.reserve(&busy, units, c"cuIpcOpenMemHandle") {
        let _ = close(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if ledger::add_reference(gpu.holdings(), Kind::Opened, address, new) {
        gpu.refund(units);
    } else {
        gpu.place().elsewhere.fetch_add(units, Ordering::Relaxed);
    }
    expect_others();
    result
}

fn close_again(address: CUdeviceptr) -> CUresult {
    // SAFETY: it was opened just now, and the program has not heard of it.
    unsafe { real::cuIpcCloseMemHandle(address) }
}

pub(crate) unsafe fn open(
    pointer: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let result = unsafe { real::cuIpcOpenMemHandle(pointer, handle, flags) };
    opened(pointer, result, close_again)
}

pub(crate) unsafe fn open_v2(
    pointer: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuIpcOpenMemHandle_v2(pointer, handle, flags) };
    opened(pointer, result, close_again)
}

pub(crate) unsafe fn close(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: as above.
    ledger::released(Kind::Opened, pointer, || unsafe {
        real::cuIpcCloseMemHandle(pointer)
    })
}

pub(crate) unsafe fn import(
    memory: *mut CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> CUresult {
    // SAFETY: the program's argument.
    let asked = unsafe { args::read(description) };
    let description = args::of(asked.as_ref(), description);
    // SAFETY: as above.
    let call = || unsafe { real::cuImportExternalMemory(memory, description) };
    let (Some(asked), Some(gpu)) = (asked, here()) else {
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
        // SAFETY: the driver has just written there.
        let memory = unsafe { memory.read() };
        gpu.place().elsewhere.fetch_add(units, Ordering::Relaxed);
        ledger::keep(&gpu, Kind::External, memory as u64, held);
    })
}

pub(crate) unsafe fn destroy(memory: CUexternalMemory) -> CUresult {
    // SAFETY: as above.
    ledger::given_back(Kind::External, memory as u64, || unsafe {
        real::cuDestroyExternalMemory(memory)
    })
}

/// A block of another process's pool.
pub(crate) unsafe fn import_pointer(
    pointer: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuMemPoolImportPointer(pointer, pool, data) };
    opened(pointer, result, |address| {
        // SAFETY: it was imported just now, and the program has not heard of it.
        unsafe { real::cuMemFree_v2(address) }
    })
}
