//! Virtual memory management: physical memory that has a handle and lives until it is released and unmapped by all.

use core::ffi::{c_uint, c_ulonglong, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUarrayMapInfo,
    CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUresult, CUstream,
};
use softmig_region::{UNIT, units};

use crate::driver::cuda::real;
use crate::driver::{args, cuda_queries};
use crate::identity::gate;
use crate::ledger::{self, Busy, FROM_ELSEWHERE, Holding, Kind, Limited};

/// The GPU that memory with these properties lies on; `None` for the host's, which is left alone. No context is needed.
fn on(properties: *const CUmemAllocationProp) -> Option<Limited> {
    if !gate::is_limited_process() {
        return None;
    }
    // SAFETY: the program's argument.
    let location = unsafe { args::read(properties) }?.location;
    (location.type_ == CU_MEM_LOCATION_TYPE_DEVICE).then(|| Limited::on(location.id))?
}

pub(crate) unsafe fn create(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    properties: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the program's argument.
    let asked = unsafe { args::read(properties) };
    // What is looked at here is what the driver gets: another thread may change the program's.
    let properties = args::of(asked.as_ref(), properties);
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let call = || unsafe { real::cuMemCreate(handle, size, properties, flags) };
    let Some(gpu) = on(properties) else {
        return call();
    };
    let units = units(size as u64);
    ledger::charged(&gpu, units, c"cuMemCreate", call, || {
        let held = Holding {
            units,
            device: gpu.number(),
            count: 1,
            other: 0,
        };
        // SAFETY: the driver has just written there.
        let handle = unsafe { handle.read() };
        ledger::keep(&gpu, Kind::Handle, handle, held);
    })
}

/// Set once memory was mapped into arrays: which tiles are still mapped nobody says, so from then on what is released
/// stays charged until the process ends.
static IN_ARRAYS: AtomicBool = AtomicBool::new(false);

pub(crate) unsafe fn release(handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { real::cuMemRelease(handle) };
    // Relaxed: a flag and nothing else.
    if IN_ARRAYS.load(Ordering::Relaxed) {
        return call();
    }
    ledger::released(Kind::Handle, handle, call)
}

/// Counts the mapping as a reference to the memory. That of another process is charged when it is mapped, which is when
/// its size is known.
pub(crate) unsafe fn map(
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { real::cuMemMap(address, size, offset, handle, flags) };
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    let Some(held) = holdings.get(Kind::Handle, handle) else {
        return call();
    };
    let end = (offset as u64).saturating_add(size as u64);
    let more = units(end).saturating_sub(held.units);
    let gpu = Limited::on(held.device.into()).filter(|_| held.other == FROM_ELSEWHERE && more > 0);
    let busy = gpu.as_ref().map(Busy::on);
    if let (Some(gpu), Some(busy)) = (&gpu, &busy) {
        if !gpu.reserve(busy, more, c"cuMemMap") {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        gpu.place().elsewhere.fetch_add(more, Ordering::Relaxed);
    }
    let reserved = if gpu.is_some() { more } else { 0 };
    // Counted before it is there: another thread may release the handle meanwhile, or have mapped as much of it.
    let (is_known, needed) = holdings.change(Kind::Handle, handle, |known| {
        let missing = |held: &Holding| units(end).saturating_sub(held.units).min(reserved);
        let needed = known.as_ref().map_or(0, missing);
        let known = known.map(|held| Holding {
            count: held.count.saturating_add(1),
            units: held.units.saturating_add(needed),
            ..held
        });
        (known, (known.is_some(), needed))
    });
    if let Some(gpu) = gpu {
        let spare = reserved.saturating_sub(needed);
        gpu.place().elsewhere.fetch_sub(spare, Ordering::Relaxed);
        gpu.refund(spare);
    }
    let result = call();
    if result != CUDA_SUCCESS {
        if is_known
            && let Some(held) = ledger::drop_reference(holdings, Kind::Handle, handle)
            && held.is_over()
        {
            ledger::refund(Kind::Handle, &held);
        }
        return result;
    }
    let mapping = Holding {
        units: 0,
        device: held.device,
        count: softmig_region::units(size as u64),
        other: handle,
    };
    holdings.put(Kind::Mapping, address, mapping);
    result
}

/// Unmaps one mapping or several that lie one behind the other.
pub(crate) unsafe fn unmap(address: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuMemUnmap(address, size) };
    let Some(holdings) = ledger::holdings().filter(|_| result == CUDA_SUCCESS) else {
        return result;
    };
    // The addresses stay the program's until it frees them, so nobody else maps there meanwhile.
    let end = address.saturating_add(size as u64);
    let mut next = address;
    while next < end {
        let Some(mapping) = holdings.take(Kind::Mapping, next) else {
            break;
        };
        if let Some(held) = ledger::drop_reference(holdings, Kind::Handle, mapping.other) {
            ledger::settle(holdings, Kind::Handle, mapping.other, held, result);
        }
        let length = u64::from(mapping.count).saturating_mul(UNIT).max(UNIT);
        next = next.saturating_add(length);
    }
    result
}

pub(crate) unsafe fn map_array(
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> CUresult {
    IN_ARRAYS.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { real::cuMemMapArrayAsync(list, count, stream) }
}

pub(crate) unsafe fn map_array_ptsz(
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> CUresult {
    IN_ARRAYS.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { real::cuMemMapArrayAsync_ptsz(list, count, stream) }
}

/// A further handle of memory that is mapped somewhere: the same handle again, with one more reference. Counted before it
/// is there, as above, where the address is that of a mapping.
pub(crate) unsafe fn retain(
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> CUresult {
    // SAFETY: as above.
    let call = || unsafe { real::cuMemRetainAllocationHandle(handle, address) };
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    let more = |name| {
        holdings.change(Kind::Handle, name, |known| {
            let known = known.map(|held| Holding {
                count: held.count.saturating_add(1),
                ..held
            });
            (known, known.is_some())
        })
    };
    let mapping = holdings.get(Kind::Mapping, address as u64);
    let counted = mapping
        .map(|mapping| mapping.other)
        .filter(|&name| more(name));
    let result = call();
    if result == CUDA_SUCCESS {
        // SAFETY: the driver has just written there.
        let name = unsafe { handle.read() };
        if counted != Some(name) {
            more(name);
        }
    }
    if let Some(name) = counted
        && (result != CUDA_SUCCESS
            // SAFETY: as above.
            || unsafe { handle.read() } != name)
        && let Some(held) = ledger::drop_reference(holdings, Kind::Handle, name)
        && held.is_over()
    {
        ledger::refund(Kind::Handle, &held);
    }
    result
}

pub(crate) unsafe fn import(
    handle: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuMemImportFromShareableHandle(handle, os_handle, kind) };
    if result == CUDA_SUCCESS && gate::is_limited_process() {
        // SAFETY: the driver has just written there.
        remember_import(unsafe { handle.read() });
    }
    result
}

fn remember_import(handle: CUmemGenericAllocationHandle) {
    let mut properties = core::mem::MaybeUninit::<CUmemAllocationProp>::zeroed();
    // SAFETY: there is room for the answer.
    let result = unsafe {
        cuda_queries::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle)
    };
    if result != CUDA_SUCCESS {
        return;
    }
    let Some(gpu) = on(properties.as_ptr()) else {
        return;
    };
    let held = Holding {
        units: 0,
        device: gpu.number(),
        count: 0,
        other: FROM_ELSEWHERE,
    };
    ledger::add_reference(gpu.holdings(), Kind::Handle, handle, held);
}
