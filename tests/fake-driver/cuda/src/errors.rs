//! The errors that this driver returns, by name and in words.

use std::ffi::CStr;

use softmig_driver_sys::cuda::*;

macro_rules! errors {
    ($($name:ident $words:literal;)*) => {
        const ERRORS: &[(CUresult, &CStr, &CStr)] = &[$((
            $name,
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            match CStr::from_bytes_with_nul(concat!($words, "\0").as_bytes()) {
                Ok(words) => words,
                Err(_) => c"",
            },
        )),*];
    };
}

errors! {
    CUDA_SUCCESS "no error";
    CUDA_ERROR_INVALID_VALUE "invalid argument";
    CUDA_ERROR_OUT_OF_MEMORY "out of memory";
    CUDA_ERROR_NOT_INITIALIZED "initialization error";
    CUDA_ERROR_DEINITIALIZED "driver shutting down";
    CUDA_ERROR_DEVICE_UNAVAILABLE "CUDA-capable device(s) is/are busy or unavailable";
    CUDA_ERROR_NO_DEVICE "no CUDA-capable device is detected";
    CUDA_ERROR_INVALID_DEVICE "invalid device ordinal";
    CUDA_ERROR_INVALID_IMAGE "device kernel image is invalid";
    CUDA_ERROR_INVALID_CONTEXT "invalid device context";
    CUDA_ERROR_FILE_NOT_FOUND "file not found";
    CUDA_ERROR_OPERATING_SYSTEM "OS call failed or operation not supported on this OS";
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle";
    CUDA_ERROR_ILLEGAL_STATE "the operation cannot be performed in the present state";
    CUDA_ERROR_NOT_FOUND "named symbol not found";
    CUDA_ERROR_NOT_READY "device not ready";
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "cannot set while device is active in this process";
    CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region";
    CUDA_ERROR_NOT_PERMITTED "operation not permitted";
    CUDA_ERROR_NOT_SUPPORTED "operation not supported";
    CUDA_ERROR_SYSTEM_NOT_READY "system not yet initialized";
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing";
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture";
    CUDA_ERROR_STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences";
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began";
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work";
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream";
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "operation would make the legacy stream depend on a capturing blocking stream";
    CUDA_ERROR_CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream";
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "attempt to terminate a thread-local capture sequence from another thread";
    CUDA_ERROR_UNKNOWN "unknown error";
}

/// The error's meaning; `None` for an unknown number.
pub(crate) fn description(error: CUresult) -> Option<&'static CStr> {
    let found = ERRORS.iter().find(|(code, ..)| *code == error);
    found.map(|(_, _, words)| *words)
}

/// The error's name; `None` if the number is not an error's.
pub(crate) fn name(error: CUresult) -> Option<&'static CStr> {
    let found = ERRORS.iter().find(|(code, ..)| *code == error);
    found.map(|(_, name, _)| *name)
}
