//! Error numbers, and the program's own `errno`.

use core::ffi::c_int;

use super::sys;

/// The error number of a system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

impl Error {
    /// The file does not exist.
    pub(crate) const MISSING: Self = Self(libc::ENOENT);
    /// The file is larger than what may be read of it.
    pub(crate) const TOO_LONG: Self = Self(libc::EFBIG);
    /// The call can be repeated later.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
}

/// Gives the program its own `errno` back when dropped.
pub(crate) struct Errno(c_int);

impl Errno {
    /// Remembers `errno`.
    pub(crate) fn save() -> Self {
        Self(sys::errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        sys::set_errno(self.0);
    }
}
