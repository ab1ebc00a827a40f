//! `ioctl`, by which libcuda tells the kernel driver what to make.

#![expect(unsafe_code, reason = "called by C")]

use core::ffi::{c_int, c_ulong, c_void};

use softmig_region::calls;

use crate::driver::args::Pointer;
use crate::os::Errno;
use crate::pacing::{self, channels};

/// The program's `ioctl(2)`.
///
/// # Safety
///
/// As for glibc's.
#[cfg_attr(panic = "abort", unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) } as c_int;
    if result == 0 && calls::is_known(request) {
        let _errno = Errno::save();
        // SAFETY: by the kernel's convention of requests, the driver that answered has read and written as many bytes there as
        // this request says, and `note` reads no more.
        let argument = unsafe { argument.cast_const().cast::<u32>().checked() };
        if channels::note(file, request, argument) {
            pacing::channels_changed();
        }
    }
    result
}
