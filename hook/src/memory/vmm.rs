//! Virtual memory management: physical memory that has a handle and lives until it is released and unmapped by all.

use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUresult,
};
use softmig_region::{UNIT, units};

use crate::driver::args::{Given, In, zeroed};
use crate::driver::{cuda_queries, nvml_queries};
use crate::identity::gate;
use crate::ledger::{self, CallGuard, DESCRIBED, FROM_ELSEWHERE, Holding, Kind, LimitedGpu};

/// The GPU that memory with these properties lies on; `None` for the host's, which is left alone. No context is needed.
fn on(properties: &CUmemAllocationProp) -> Option<LimitedGpu> {
    let location = properties.location;
    let is_on_gpu = location.type_ == CU_MEM_LOCATION_TYPE_DEVICE && gate::is_limited_process();
    is_on_gpu.then(|| LimitedGpu::on(location.id))?
}

/// Makes physical memory.
pub(crate) fn create(
    handle: &Given<CUmemGenericAllocationHandle>,
    properties: In<CUmemAllocationProp>,
    size: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(gpu) = properties.get().and_then(|properties| on(&properties)) else {
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
        if let Some(handle) = handle.get() {
            ledger::keep(&gpu, Kind::Handle, handle, held);
        }
    })
}

/// The calls that have mapped memory into arrays, or are about to: which tiles are still mapped is unknown, so from then on they may
/// keep what is released.
static INTO_ARRAYS: AtomicU32 = AtomicU32::new(0);

/// Gives a reference to physical memory back.
pub(crate) fn release(
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if INTO_ARRAYS.load(Ordering::SeqCst) > 0
        && let Some(holdings) = ledger::holdings()
        && let Some(known) = holdings.find(Kind::Handle, handle)
    {
        ledger::described(holdings, Kind::Handle, handle, &known, 0);
    }
    ledger::released(Kind::Handle, handle, call)
}

/// Counts the mapping as a reference to the memory. That of another process is charged when it is mapped, which is when
/// its size is known.
pub(crate) fn map(
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    let Some(held) = holdings.get(Kind::Handle, handle) else {
        return call();
    };
    let end = (offset as u64).saturating_add(size as u64);
    let more = units(end).saturating_sub(held.units);
    let gpu =
        LimitedGpu::on(held.device.into()).filter(|_| held.other == FROM_ELSEWHERE && more > 0);
    let guard = gpu.as_ref().map(CallGuard::on);
    if let (Some(gpu), Some(guard)) = (&gpu, &guard) {
        if !gpu.reserve(guard, more, c"cuMemMap") {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        gpu.count_elsewhere(more);
    }
    let reserved = if gpu.is_some() { more } else { 0 };
    // Counted before it is there: another thread may release the handle meanwhile, or have mapped as much of it.
    let (is_known, needed) = holdings.change(Kind::Handle, handle, |known| {
        let missing = |held: &Holding| units(end).saturating_sub(held.units).min(reserved);
        let needed = known.as_ref().map_or(0, missing);
        let counted = known.map(|held| Holding {
            count: held.count.saturating_add(1),
            units: held.units.saturating_add(needed),
            ..held
        });
        (counted, (counted.is_some(), needed))
    });
    if let Some(gpu) = gpu {
        let spare = reserved.saturating_sub(needed);
        gpu.count_elsewhere_no_more(spare);
        gpu.refund(spare);
        if held.count & DESCRIBED != 0 {
            gpu.export(needed);
        }
    }
    let result = call();
    if result != CUDA_SUCCESS {
        if is_known {
            ledger::drop_reference(holdings, Kind::Handle, handle);
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
pub(crate) fn unmap(
    address: CUdeviceptr,
    size: usize,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    let Some(holdings) = ledger::holdings().filter(|_| result == CUDA_SUCCESS) else {
        return result;
    };
    // The addresses stay the program's until it frees them, so nothing else is mapped there meanwhile.
    let end = address.saturating_add(size as u64);
    let mut next = address;
    while next < end {
        let Some(mapping) = holdings.take(Kind::Mapping, next) else {
            break;
        };
        ledger::drop_reference(holdings, Kind::Handle, mapping.other);
        let length = u64::from(mapping.count).saturating_mul(UNIT).max(UNIT);
        next = next.saturating_add(length);
    }
    result
}

/// Maps memory into arrays, or unmaps it.
pub(crate) fn map_array(call: impl FnOnce() -> CUresult) -> CUresult {
    // Before the call: another thread may release the memory meanwhile.
    INTO_ARRAYS.fetch_add(1, Ordering::SeqCst);
    let result = call();
    if result != CUDA_SUCCESS {
        INTO_ARRAYS.fetch_sub(1, Ordering::SeqCst);
    }
    result
}

/// A further handle of memory that is mapped somewhere: the same handle again, with one more reference. Counted before it
/// is there, as above, where the address is that of a mapping.
pub(crate) fn retain(
    handle: &Given<CUmemGenericAllocationHandle>,
    address: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    let more = |name| {
        holdings.change(Kind::Handle, name, |known| {
            let counted = known.map(|held| Holding {
                count: held.count.saturating_add(1),
                ..held
            });
            (counted, counted.is_some())
        })
    };
    let mapping = holdings.get(Kind::Mapping, address);
    let counted = mapping
        .map(|mapping| mapping.other)
        .filter(|&name| more(name));
    let result = call();
    let given = (result == CUDA_SUCCESS).then(|| handle.get()).flatten();
    if given == counted {
        return result;
    }
    if let Some(name) = given {
        more(name);
    }
    if let Some(name) = counted {
        ledger::drop_reference(holdings, Kind::Handle, name);
    }
    result
}

/// Takes a handle of another process's memory.
pub(crate) fn import(
    handle: &Given<CUmemGenericAllocationHandle>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS
        && gate::is_limited_process()
        && let Some(handle) = handle.get()
    {
        remember_import(handle);
    }
    result
}

fn remember_import(handle: CUmemGenericAllocationHandle) {
    let mut properties: CUmemAllocationProp = zeroed();
    let result = cuda_queries::cuMemGetAllocationPropertiesFromHandle(&mut properties, handle);
    if result != CUDA_SUCCESS {
        return;
    }
    let Some(gpu) = on(&properties) else {
        return;
    };
    // A handle that is known may be this process's own memory again, or one that another thread releases just now. The memory
    // behind it may be larger either way.
    let newly = gpu.holdings().change(Kind::Handle, handle, |known| {
        let held = known.unwrap_or(Holding {
            units: 0,
            device: gpu.number(),
            count: 0,
            other: FROM_ELSEWHERE,
        });
        // The descriptor that it came by may keep it.
        let described = if nvml_queries::lists_all() {
            DESCRIBED
        } else {
            0
        };
        let after = Holding {
            count: held.count.saturating_add(1) | described,
            other: FROM_ELSEWHERE,
            ..held
        };
        let newly = |is_new: bool| if is_new { held.units } else { 0 };
        let is_newly_described = (held.count ^ after.count) & DESCRIBED != 0;
        (
            Some(after),
            (newly(held.other == 0), newly(is_newly_described)),
        )
    });
    let (newly_elsewhere, newly_exported) = newly;
    gpu.count_elsewhere(newly_elsewhere);
    gpu.export(newly_exported);
}
