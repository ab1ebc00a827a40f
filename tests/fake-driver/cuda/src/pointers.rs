//! Queries about an address.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::pools;
use crate::ranges::{Range, Source};
use softmig_fake_node::edge::{Edge, handle};

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

    /// Several attributes of the memory at an address. At an address without memory each attribute says so.
    fn cuPointerGetAttributes [cuPointerGetAttributes 7000] (
        count: u32, attributes: Out<CUpointer_attribute>, places: Out<*mut Raw>, address: CUdeviceptr
    ) => locked(|driver| {
        for index in 0..count as usize {
            let attribute = attributes.at(index)?;
            // SAFETY: the program gives a place for each attribute, of the size that this one has.
            let place = unsafe { Out::<Raw>::from_raw(places.at(index)?) };
            match driver.ranges.around(address) {
                Some(range) => tell(driver, range, place, attribute, address)?,
                None => tell_nothing(place, attribute)?,
            }
        }
        Ok(())
    });

    /// Where the memory at an address begins, and how long it is.
    fn cuMemGetAddressRange_v2 [cuMemGetAddressRange 3020] (
        start: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr
    ) => locked(|driver| {
        let range = driver.ranges.around(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        start.set_if_wanted(range.area.start);
        bytes.set_if_wanted(range.area.length as usize);
        Ok(())
    });
}

/// The attribute tells the value's type.
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
            Source::Host | Source::Registered => out.cast().set(address),
            _ if range.is_managed() => out.cast().set(address),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        },
        CU_POINTER_ATTRIBUTE_BUFFER_ID => out.cast().set(range.area.start),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => {
            let managed = match range.source {
                Source::Pool { pool, .. } => pools::is_managed(driver, pool),
                _ => range.is_managed(),
            };
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

/// Writes the value that says "no memory", as wide as the attribute is.
fn tell_nothing(out: Out<Raw>, attribute: CUpointer_attribute) -> Outcome {
    match attribute {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED => out.cast().set(0u32),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => out.cast().set(-2i32),
        CU_POINTER_ATTRIBUTE_CONTEXT
        | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        | CU_POINTER_ATTRIBUTE_HOST_POINTER
        | CU_POINTER_ATTRIBUTE_BUFFER_ID
        | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        | CU_POINTER_ATTRIBUTE_RANGE_SIZE
        | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => out.cast().set(0u64),
        _ => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}
