//! Figures of memory pools, and how they behave.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::capture::refuse_while_capturing;
use crate::entry::locked;
use crate::export::exports;
use crate::pools::{get_mut, read};

exports! {
    static SYMBOLS;

    /// A figure of a pool.
    fn cuMemPoolGetAttribute [cuMemPoolGetAttribute 11020] (
        pool: CUmemoryPool, attribute: CUmemPool_attribute, out: Out<c_void>
    ) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let pool = read(driver, pool as usize)?;
        let figure = match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                let reuse = pool.reuse.get(attribute as usize - 1).copied().unwrap_or(1);
                return out.cast::<i32>().set(reuse);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.reserved,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.reserved_high,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used + pool.forgotten,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used_high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        out.cast::<u64>().set(figure)
    });

    /// Changes how a pool behaves.
    fn cuMemPoolSetAttribute [cuMemPoolSetAttribute 11020] (
        pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Out<c_void>
    ) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let pool = get_mut(driver, pool as usize)?;
        match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                let reuse = pool.reuse.get_mut(attribute as usize - 1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                *reuse = value.cast::<i32>().get()?;
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold = value.cast::<u64>().get()?,
            // The high marks may be set to 0, to begin anew.
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value.cast::<u64>().get()? == 0 => pool.reserved_high = pool.reserved,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if value.cast::<u64>().get()? == 0 => pool.used_high = pool.used,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    });
}
