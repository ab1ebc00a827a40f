//! How much memory a GPU has, and how much of it is free.

use core::ffi::c_uint;

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlReturn_t,
};
use softmig_driver_sys::struct_version;

use super::slice::{self, Slice};
use crate::driver::cuda::real as cuda;
use crate::driver::nvml::real as nvml;
use crate::ledger::{self, nvml_usage, pools};
use crate::os::Errno;

/// To programs of 32 bits the driver says the most that they can count to.
fn in_32_bits(bytes: u64) -> c_uint {
    c_uint::try_from(bytes).unwrap_or(c_uint::MAX)
}

pub(crate) unsafe fn info(free: *mut c_uint, total: *mut c_uint) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let result = unsafe { cuda::cuMemGetInfo(free, total) };
    if result == CUDA_SUCCESS {
        // SAFETY: the driver has just written there.
        unsafe {
            lower(
                free,
                |slice| in_32_bits(slice.free()),
                total,
                |slice| in_32_bits(slice.limit),
            )
        };
    }
    result
}

pub(crate) unsafe fn info_v2(free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { cuda::cuMemGetInfo_v2(free, total) };
    if result == CUDA_SUCCESS {
        // SAFETY: as above.
        if let (Some(free), Some(gpu)) = (unsafe { free.as_ref() }, ledger::here()) {
            // What pools gave back and what code took since.
            pools::refresh_all(&gpu);
            nvml_usage::noticed(&gpu, *free as u64);
        }
        // SAFETY: as above.
        unsafe {
            lower(
                free,
                |slice| slice.free() as usize,
                total,
                |slice| slice.limit as usize,
            )
        };
    }
    result
}

/// Lowers what the driver said of the current context's GPU.
///
/// # Safety
///
/// Both are null or places that may be written to.
unsafe fn lower<T: Ord + Copy>(
    free: *mut T,
    free_of: impl Fn(&Slice) -> T,
    total: *mut T,
    total_of: impl Fn(&Slice) -> T,
) {
    let Some(slice) = Slice::here() else { return };
    // SAFETY: the caller's promise.
    if let Some(free) = unsafe { free.as_mut() } {
        *free = free_of(&slice).min(*free);
    }
    // SAFETY: the caller's promise.
    if let Some(total) = unsafe { total.as_mut() } {
        *total = total_of(&slice).min(*total);
    }
}

pub(crate) unsafe fn total(bytes: *mut c_uint, device: CUdevice) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { cuda::cuDeviceTotalMem(bytes, device) };
    if result == CUDA_SUCCESS
        // SAFETY: the driver has just written there.
        && let Some(bytes) = unsafe { bytes.as_mut() }
        && let Some(limit) = slice::limit_of(device)
    {
        *bytes = in_32_bits(limit).min(*bytes);
    }
    result
}

pub(crate) unsafe fn total_v2(bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { cuda::cuDeviceTotalMem_v2(bytes, device) };
    if result == CUDA_SUCCESS
        // SAFETY: the driver has just written there.
        && let Some(bytes) = unsafe { bytes.as_mut() }
        && let Some(limit) = slice::limit_of(device)
    {
        *bytes = (limit as usize).min(*bytes);
    }
    result
}

pub(crate) unsafe fn nvml_info(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    // SAFETY: as above.
    let result = unsafe { nvml::nvmlDeviceGetMemoryInfo(device, memory) };
    if result == NVML_SUCCESS
        && let Some(shown) = shown(device)
        // SAFETY: the driver has just written there.
        && let Some(memory) = unsafe { memory.as_mut() }
    {
        (memory.total, memory.used, memory.free) = (shown.total, shown.used, shown.free);
    }
    result
}

pub(crate) unsafe fn nvml_info_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: as above.
    let result = unsafe { nvml::nvmlDeviceGetMemoryInfo_v2(device, memory) };
    if result == NVML_SUCCESS
        && let Some(shown) = shown(device)
        // SAFETY: as above.
        && let Some(memory) = unsafe { memory.as_mut() }
    {
        // A later version of the struct: where its fields are, nobody here knows.
        if memory.version != VERSION {
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        }
        (memory.total, memory.used, memory.free) = (shown.total, shown.used, shown.free);
        memory.reserved = 0;
    }
    result
}

const VERSION: u32 = struct_version::<nvmlMemory_v2_t>(2);

/// What NVML shows of a slice: nothing is reserved, so that the rest adds up to the total.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    total: u64,
    used: u64,
    free: u64,
}

impl Shown {
    fn new(slice: &Slice, usable: u64) -> Self {
        let total = slice.limit.min(usable);
        let used = slice.held.min(total);
        let free = total.saturating_sub(used);
        Self { total, used, free }
    }
}

/// `None` where the driver's figures stand.
fn shown(device: nvmlDevice_t) -> Option<Shown> {
    let _errno = Errno::save();
    let slice = Slice::of(device)?;
    Some(Shown::new(&slice, usable(device)))
}

/// What CUDA can hand out of a GPU: not what the driver keeps for itself. A driver that cannot say keeps nothing.
fn usable(device: nvmlDevice_t) -> u64 {
    let mut memory = nvmlMemory_v2_t {
        version: VERSION,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: there is room for the answer.
    let result = unsafe { nvml::nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory) };
    if result == NVML_SUCCESS {
        memory.total.saturating_sub(memory.reserved)
    } else {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvml_shows_adds_up_to_the_total() {
        for (limit, held, usable, (total, used, free)) in [
            (100, 0, 1000, (100, 0, 100)),
            (100, 40, 1000, (100, 40, 60)),
            (100, 120, 1000, (100, 100, 0)),
            (100, 95, 90, (90, 90, 0)),
            (100, 40, u64::MAX, (100, 40, 60)),
        ] {
            let shown = Shown::new(&Slice { limit, held }, usable);
            assert_eq!(shown, Shown { total, used, free });
        }
    }

    #[test]
    fn what_32_bits_cannot_count_is_the_most_they_can() {
        let bytes = [5, u64::from(u32::MAX), 1 << 32, u64::MAX];
        assert_eq!(bytes.map(in_32_bits), [5, u32::MAX, u32::MAX, u32::MAX]);
    }
}
