//! Declarations of the functions of the CUDA driver and NVML that softmig knows, made from NVIDIA's headers by
//! hook/bindings.
//!
//! Nothing is linked: the hook and the fake driver export these names themselves, and check their signatures against
//! the declarations here. Enums are plain integers with constants, since a newer driver may return any value. A struct
//! whose fields are not used here has the size and alignment of the real one, but no fields.
//!
//! In [`cuda::CUmemLocation`] `id` is what CUDA 12 and 13.0 say it is. Later headers divide it into a device (the
//! lowest byte) and a locality domain (the next one) for locations of the type
//! [`cuda::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`] alone.

#![no_std]

#[rustfmt::skip] // It is compared with the generator's output, byte for byte.
#[expect(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "the names are the header's, and NVIDIA's manual documents them"
)]
pub mod cuda;
#[rustfmt::skip] // It is compared with the generator's output, byte for byte.
#[expect(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "the names are the header's, and NVIDIA's manual documents them"
)]
pub mod nvml;

/// The value of the field `version` of a struct of NVML in version `version` of the struct: its size, and the version
/// in the highest byte.
///
/// ```
/// use softmig_driver_sys::{nvml::nvmlMemory_v2_t, struct_version};
/// assert_eq!(struct_version::<nvmlMemory_v2_t>(2), 0x0200_0028);
/// ```
#[must_use]
pub const fn struct_version<T>(version: u8) -> u32 {
    // No struct of NVML comes near 16 MiB, where the size would run into the version.
    size_of::<T>() as u32 | (version as u32) << 24
}
