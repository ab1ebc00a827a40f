//! Descriptors by which other devices, a network card say, reach device memory.
//!
//! Each keeps the memory, as an exported handle does; of plain memory, the whole piece.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::entry::locked;
use crate::export::exports;
use crate::ranges::Source;
use crate::sharing;

/// Sizes must be multiples of it.
const PAGE: u64 = 4096;

exports! {
    static SYMBOLS;

    /// A descriptor of what is at these addresses.
    fn cuMemGetHandleForAddressRange [cuMemGetHandleForAddressRange 11070] (
        out: Out<c_void>, address: CUdeviceptr, bytes: usize, kind: CUmemRangeHandleType, flags: u64
    ) => locked(|driver| {
        let range = driver.ranges.around(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = bytes as u64;
        let whole = bytes != 0 && bytes.is_multiple_of(PAGE) && range.area.has(address, bytes);
        if kind != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || !whole {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let block = match range.source {
            Source::Mapped { physical } => {
                let known = driver.memory.physical.get(&physical).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                known.block.id
            }
            Source::Device { part } => driver.heap.share(driver.node, part)?.0.id,
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        let file = driver.node.export_block(block);
        out.cast::<i32>().set(file.map_err(sharing::failed)?.into_raw_fd())
    });
}
