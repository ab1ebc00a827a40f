//! Moving managed memory to where it will be used. It counts for its device from the start, so nothing changes.

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::streams::{self, Default};

/// The device number of the host: CU_DEVICE_CPU.
const HOST: CUdevice = -1;

exports! {
    static SYMBOLS;

    /// Moves managed memory to a device, or to the host.
    fn cuMemPrefetchAsync [cuMemPrefetchAsync 8000], cuMemPrefetchAsync_ptsz [8000] (
        address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream
    ) |per_thread| => locked(|driver| {
        if device != HOST {
            driver.device(device)?;
        }
        prefetch(driver, address, bytes, stream, per_thread)
    });
}

/// Checks the arguments. Moving managed memory has no effect that a program could see.
pub(crate) fn prefetch(
    driver: &mut Driver,
    address: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    per_thread: bool,
) -> Outcome {
    streams::resolve(driver, stream as usize, Default::of(per_thread))?;
    let range = driver
        .ranges
        .around(address)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !range.is_managed() || bytes == 0 || !range.area.has(address, bytes as u64) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}
