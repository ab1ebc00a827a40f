//! How large the elements of an array are.

use softmig_driver_sys::cuda::*;

use crate::Outcome;

/// The bytes of one element with this number of channels.
pub(crate) fn element(format: CUarray_format, channels: u32) -> Outcome<usize> {
    if let Some(channel) = channel(format) {
        return match channels {
            1 | 2 | 4 => Ok(channel * channels as usize),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        };
    }
    packed(format).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The bytes of one channel, where the format leaves open how many there are.
fn channel(format: CUarray_format) -> Option<usize> {
    Some(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return None,
    })
}

/// The bytes of an element whose format says how many channels it has. Block compression and video formats, which
/// share bytes between elements, are not offered.
fn packed(format: CUarray_format) -> Option<usize> {
    Some(match format {
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => 1,
        CU_AD_FORMAT_UNORM_INT8X2
        | CU_AD_FORMAT_SNORM_INT8X2
        | CU_AD_FORMAT_UNORM_INT16X1
        | CU_AD_FORMAT_SNORM_INT16X1 => 2,
        CU_AD_FORMAT_UNORM_INT8X4
        | CU_AD_FORMAT_SNORM_INT8X4
        | CU_AD_FORMAT_UNORM_INT16X2
        | CU_AD_FORMAT_SNORM_INT16X2
        | CU_AD_FORMAT_UNORM_INT_101010_2 => 4,
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => 8,
        _ => return None,
    })
}
