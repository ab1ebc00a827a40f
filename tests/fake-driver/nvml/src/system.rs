//! NVML's answers on itself and on the driver.

use std::ffi::{CStr, c_char};

use softmig_driver_sys::nvml::*;

use crate::exports::exports;
use crate::session::session;
use crate::{Out, Outcome};

exports! {
    /// The driver's version.
    fn nvmlSystemGetDriverVersion(out: Out<c_char>, size: u32) =>
        session(|session| text(out, size, &session.node.description().driver));

    /// NVML's version: the CUDA version that it came with, and the driver's.
    fn nvmlSystemGetNVMLVersion(out: Out<c_char>, size: u32) => session(|session| {
        let node = session.node.description();
        text(out, size, &format!("{}.{}", node.cuda / 1000, node.driver))
    });

    /// The CUDA version that the driver knows.
    fn nvmlSystemGetCudaDriverVersion_v2(out: Out<i32>) => session(|session| {
        out.set(i32::try_from(session.node.description().cuda).unwrap_or(0))
    });
}

/// Leaves a text in a buffer that must be large enough.
pub(crate) fn text(out: Out<c_char>, size: u32, text: &str) -> Outcome {
    if size as usize <= text.len() {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    out.set_text(text, size as i32)
}

/// An error in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let words: &CStr = match result {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        NVML_ERROR_ALREADY_INITIALIZED => c"Already Initialized",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        NVML_ERROR_TIMEOUT => c"Timeout",
        NVML_ERROR_LIBRARY_NOT_FOUND => c"NVML Shared Library Not Found",
        NVML_ERROR_FUNCTION_NOT_FOUND => c"Function Not Found",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        NVML_ERROR_OPERATING_SYSTEM => c"GPU access blocked by the operating system",
        NVML_ERROR_NO_DATA => c"No data",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    words.as_ptr()
}

const _: unsafe extern "C" fn(nvmlReturn_t) -> *const c_char =
    softmig_driver_sys::nvml::nvmlErrorString;
