//! What the driver knows of an address.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::ranges::{Range, Source};
use softmig_fake_node::edge::handle;

/// The manual's `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

exports! {
    static SYMBOLS;

    /// One attribute of the memory at an address.
    fn cuPointerGetAttribute [cuPointerGetAttribute 4000] (
        out: Out<Raw>, attribute: CUpointer_attribute, address: CUdeviceptr
    ) => locked(|driver| {
        let range = driver.ranges.around(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        tell(driver, range, out, attribute, address)
    });
}

/// What a value is depends on the attribute.
type Raw = c_void;

fn tell(
    driver: &Driver,
    range: &Range,
    out: Out<Raw>,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Outcome {
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => out.cast::<CUcontext>().set(handle(range.context)),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            let kind = if range.is_device() { DEVICE } else { HOST };
            out.cast().set(kind)
        }
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => out.cast().set(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => match range.source {
            Source::Host | Source::Registered | Source::Managed { .. } => out.cast().set(address),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        },
        CU_POINTER_ATTRIBUTE_BUFFER_ID => out.cast().set(range.area.start),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => {
            let managed = matches!(range.source, Source::Managed { .. });
            out.cast().set(i32::from(managed))
        }
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => out.cast().set(driver.ordinal(range.device)?),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
            let capable = matches!(range.source, Source::Device { .. });
            out.cast().set(i32::from(capable))
        }
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => out.cast().set(range.area.start),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => out.cast().set(range.area.length as usize),
        CU_POINTER_ATTRIBUTE_MAPPED => out.cast().set(1i32),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match range.source {
            Source::Pool { pool, .. } => out.cast::<CUmemoryPool>().set(handle(pool)),
            _ => out.cast::<CUmemoryPool>().set(handle(0)),
        },
        _ => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}
