//! This process: who runs it, and what it was started with.

use core::ffi::CStr;

use super::error::outcome;

/// The user who started this process: what a set-uid program keeps of him.
pub(crate) fn real_uid() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_getuid) }) as u32
}

/// This process.
pub(crate) fn process_id() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_getpid) }) as u32
}

/// This thread.
pub(crate) fn thread_id() -> u64 {
    // SAFETY: takes no argument and cannot fail.
    (unsafe { libc::syscall(libc::SYS_gettid) }).cast_unsigned()
}

/// Whether the kernel gave this program more rights than its user has, or other ones (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: only reads what the kernel put beside the program's stack.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

/// A variable of the environment.
///
/// Read once, in the process's first call to the driver. A program that changes its environment in another thread at
/// that moment races with us as with every `getenv`.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: `name` ends in a zero byte.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a value ends in a zero byte and stays where it is until the variable is changed; see above.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Whether writing to a file can never exceed the process's limit on their size, which would end it (`SIGXFSZ`).
pub(crate) fn may_write_files() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let none: *const libc::rlimit = core::ptr::null();
    // SAFETY: the kernel fills one `rlimit` and is given none to set.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            none,
            &raw mut limit,
        )
    };
    outcome(returned).is_ok() && limit.rlim_cur == libc::RLIM_INFINITY
}
