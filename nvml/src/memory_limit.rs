//! The limit that the driver itself holds a control group to, which NVML has from driver 615 on.
//!
//! nvml-wrapper does not know the function yet, so it is looked up by its name, and missing in older drivers.

use libloading::Library;
use nvml_wrapper::Nvml;
use std::ffi::{CString, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::library::LIBRARY;

/// `nvmlGetMemoryLimits_v1_t` of NVIDIA's nvml.h (CUDA 13.4 and later).
#[repr(C)]
struct MemoryLimits {
    /// The group's folder.
    group: *const c_char,
    /// Bytes that are guaranteed.
    soft: u64,
    /// Bytes that can be had, or [`NO_LIMIT`].
    hard: u64,
    /// Bytes that are taken.
    used: u64,
}

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`.
const NO_LIMIT: u64 = u64::MAX;

/// `nvmlDeviceGetMemoryLimits_v1`.
type Get = unsafe extern "C" fn(*mut c_void, *mut MemoryLimits) -> c_uint;

/// The most bytes of this GPU's memory that the processes of a control group can have; `None` without a limit,
/// and with drivers that do not have such limits. `group` is the group's folder below `/sys/fs/cgroup`.
pub fn memory_limit(nvml: &Nvml, uuid: &str, group: &Path) -> Option<u64> {
    let group = CString::new(group.as_os_str().as_bytes()).ok()?;
    let device = nvml.device_by_uuid(uuid).ok()?;
    // SAFETY: the library is loaded already, as `nvml` shows, so none of its code runs now.
    let library = unsafe { Library::new(LIBRARY) }.ok()?;
    // SAFETY: NVML's name of a function of this type.
    let get = unsafe { library.get::<Get>(b"nvmlDeviceGetMemoryLimits_v1\0") }.ok()?;
    let mut limits = MemoryLimits {
        group: group.as_ptr(),
        soft: 0,
        hard: NO_LIMIT,
        used: 0,
    };
    // SAFETY: the handle is used while `nvml` is there.
    let handle = unsafe { device.handle() };
    // SAFETY: the struct is NVML's, and the name in it lives until the end of this function.
    let result = unsafe { get(handle.cast(), &raw mut limits) };
    (result == 0 && limits.hard != NO_LIMIT).then_some(limits.hard)
}
