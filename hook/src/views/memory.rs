//! How much memory a GPU has, and how much of it is free.

use core::ffi::c_uint;

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlReturn_t,
};
use softmig_driver_sys::struct_version;

use super::slice::{self, Slice};
use crate::driver::args::Out;
use crate::driver::nvml_queries;
use crate::ledger::{self, nvml_usage, pools};
use crate::os::Errno;

/// A number of bytes in 32 bits. The driver gives the largest one if the number does not fit.
fn in_32_bits(bytes: u64) -> c_uint {
    c_uint::try_from(bytes).unwrap_or(c_uint::MAX)
}

/// The free memory and the total, in 32 bits.
pub(crate) fn info_32(
    free: Out<c_uint>,
    total: Out<c_uint>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS {
        lower(free, total, in_32_bits);
    }
    result
}

/// The free memory and the total.
pub(crate) fn info(
    free: Out<usize>,
    total: Out<usize>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS {
        if let (Some(free), Some(gpu)) = (free.get(), ledger::here()) {
            // Pools may have given memory back since, and code may have taken some.
            pools::refresh_all(&gpu);
            nvml_usage::noticed(&gpu, free as u64);
        }
        lower(free, total, |bytes| bytes as usize);
    }
    result
}

/// Lowers the driver's figures for the current context's GPU to those of its slice.
fn lower<T: Ord + Copy>(free: Out<T>, total: Out<T>, in_type: fn(u64) -> T) {
    if let Some(slice) = Slice::here() {
        at_most(free, in_type(slice.free()));
        at_most(total, in_type(slice.limit));
    }
}

fn at_most<T: Ord + Copy>(place: Out<T>, most: T) {
    if let Some(value) = place.get() {
        place.set(value.min(most));
    }
}

/// The total of a GPU, in 32 bits.
pub(crate) fn total_32(
    bytes: Out<c_uint>,
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    if let Some(limit) = slice::limit_of(device).filter(|_| result == CUDA_SUCCESS) {
        at_most(bytes, in_32_bits(limit));
    }
    result
}

/// The total of a GPU.
pub(crate) fn total(
    bytes: Out<usize>,
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    if let Some(limit) = slice::limit_of(device).filter(|_| result == CUDA_SUCCESS) {
        at_most(bytes, limit as usize);
    }
    result
}

/// NVML's figures of a GPU's memory.
pub(crate) fn nvml_info(
    place: Out<nvmlMemory_t>,
    device: nvmlDevice_t,
    call: impl FnOnce() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let result = call();
    if result == NVML_SUCCESS
        && let Some(shown) = shown(device)
        && let Some(mut memory) = place.get()
    {
        (memory.total, memory.used, memory.free) = (shown.total, shown.used, shown.free);
        place.set(memory);
    }
    result
}

/// The same with what the driver keeps for itself.
pub(crate) fn nvml_info_v2(
    place: Out<nvmlMemory_v2_t>,
    device: nvmlDevice_t,
    call: impl FnOnce() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let result = call();
    if result == NVML_SUCCESS
        && let Some(shown) = shown(device)
        && let Some(mut memory) = place.get()
    {
        // The fields of a later version of the struct are unknown.
        if memory.version != VERSION {
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        }
        (memory.total, memory.used, memory.free) = (shown.total, shown.used, shown.free);
        memory.reserved = 0;
        place.set(memory);
    }
    result
}

const VERSION: u32 = struct_version::<nvmlMemory_v2_t>(2);

/// NVML's figures of a slice: nothing is reserved, so that the rest adds up to the total.
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

/// The slice's figures; `None` if the driver's own are shown.
fn shown(device: nvmlDevice_t) -> Option<Shown> {
    let _errno = Errno::save();
    let slice = Slice::for_device(device)?;
    Some(Shown::new(&slice, usable(device)))
}

/// The memory that CUDA can hand out, without what the driver keeps for itself. A driver that cannot say keeps nothing.
fn usable(device: nvmlDevice_t) -> u64 {
    let mut memory = nvmlMemory_v2_t {
        version: VERSION,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    let result = nvml_queries::nvmlDeviceGetMemoryInfo_v2(device, &mut memory);
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
    fn nvmls_figures_add_up_to_the_total() {
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
    fn a_size_that_does_not_fit_32_bits_is_the_largest_that_does() {
        let bytes = [5, u64::from(u32::MAX), 1 << 32, u64::MAX];
        assert_eq!(bytes.map(in_32_bits), [5, u32::MAX, u32::MAX, u32::MAX]);
    }
}
