//! Error numbers, and the program's own `errno`.

use core::ffi::{c_int, c_long};

/// The error number of a system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

impl Error {
    /// There is no such file.
    pub(crate) const MISSING: Self = Self(libc::ENOENT);
    /// The file is larger than what may be read of it.
    pub(crate) const TOO_LONG: Self = Self(libc::EFBIG);
    /// Not now.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
}

/// Where this thread's `errno` is.
fn errno() -> *mut c_int {
    // SAFETY: the C library returns this thread's own `errno`, which is always there.
    unsafe { libc::__errno_location() }
}

/// Gives the program its own `errno` back when dropped.
pub(crate) struct Errno(c_int);

impl Errno {
    /// Remembers `errno`.
    pub(crate) fn save() -> Self {
        // SAFETY: always there, and nobody else reads or writes it.
        Self(unsafe { errno().read() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: always there, and nobody else reads or writes it.
        unsafe { errno().write(self.0) };
    }
}

/// What a system call returned.
pub(super) fn outcome(returned: c_long) -> Result<c_long, Error> {
    match returned {
        // SAFETY: always there, and nobody else reads or writes it.
        -1 => Err(Error(unsafe { errno().read() })),
        returned => Ok(returned),
    }
}
