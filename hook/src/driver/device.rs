//! GPUs: how many there are, their UUIDs, and which one an address is on.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use softmig_driver_sys::cuda::{
    CU_MEMORYTYPE_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUpointer_attribute, CUuuid,
};

use super::args::Out;
use super::cuda_queries;
use crate::os::fixed_str::Text;

/// Whether this process sees one GPU only, which never changes once the driver is in use.
pub(crate) fn has_one_gpu() -> bool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number and nothing else.
    let mut count = COUNT.load(Ordering::Relaxed);
    if count == 0 {
        count = u32::try_from(device_count()).unwrap_or(0);
        COUNT.store(count, Ordering::Relaxed);
    }
    count == 1
}

/// How many GPUs CUDA counts in this process; 0 before `cuInit`.
pub(crate) fn device_count() -> c_int {
    let mut count = 0;
    match cuda_queries::cuDeviceGetCount(&mut count) {
        CUDA_SUCCESS => count,
        _ => 0,
    }
}

/// A GPU by its number; before CUDA 12 the driver numbers devices as it counts them, and so it does since.
pub(crate) fn uuid(device: CUdevice) -> Option<CUuuid> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let mut result = cuda_queries::cuDeviceGetUuid_v2(&mut uuid, device);
    if result == CUDA_ERROR_NOT_FOUND {
        result = cuda_queries::cuDeviceGetUuid(&mut uuid, device);
    }
    (result == CUDA_SUCCESS).then_some(uuid)
}

/// A UUID as the driver's own tools write it.
pub(crate) fn written(kind: &[u8; 4], uuid: &CUuuid) -> Text<48> {
    let mut text = Text::new();
    text.push(kind);
    for (at, byte) in uuid.bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push(b"-");
        }
        for digit in [byte.cast_unsigned() >> 4, byte.cast_unsigned() & 15] {
            text.push(&[if digit < 10 {
                b'0'.wrapping_add(digit)
            } else {
                b'a'.wrapping_add(digit).wrapping_sub(10)
            }]);
        }
    }
    text
}

/// An attribute of an address: a number, which may be smaller than 64 bits. `None` for the host's memory.
pub(crate) fn attribute_of(address: CUdeviceptr, attribute: CUpointer_attribute) -> Option<u64> {
    let (mut kind, mut value) = (0_u64, 0_u64);
    let mut attributes = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, attribute];
    let mut places = [&mut kind, &mut value].map(|place| core::ptr::from_mut(place).cast());
    // Of an unknown address this is zero, and no error: compute-sanitizer would report one as the program's.
    let asked = cuda_queries::cuPointerGetAttributes(
        2,
        Out::list(&mut attributes),
        Out::list(&mut places),
        address,
    );
    (asked == CUDA_SUCCESS && kind != 0).then_some(value)
}

/// Whether an address is one of a GPU's memory. An unknown address is the host's.
pub(crate) fn is_on_device(address: CUdeviceptr) -> bool {
    let kind = attribute_of(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    kind == Some(CU_MEMORYTYPE_DEVICE.into())
}

/// The GPU that an address is on.
pub(crate) fn device_of(address: CUdeviceptr) -> Option<CUdevice> {
    let device = attribute_of(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
    Some((device as u32).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_drivers_tools_write_it() {
        let mut uuid = CUuuid { bytes: [0; 16] };
        for (byte, number) in uuid
            .bytes
            .iter_mut()
            .zip([0x0a_u8, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
        {
            *byte = number.cast_signed();
        }
        assert_eq!(
            written(b"GPU-", &uuid).as_bytes(),
            b"GPU-0aff0102-0304-0506-0708-090a0b0c0d0e"
        );
    }
}
