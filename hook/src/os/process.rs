//! This process: who runs it, and what it was started with.

use core::ffi::{c_int, c_long};

use super::error::Error;
use super::file::inode;
use super::sys;

/// The user who started this process. A set-uid program keeps this number.
pub(crate) fn real_uid() -> u32 {
    number(sys::getuid()) as u32
}

/// This process.
pub(crate) fn process_id() -> u32 {
    number(sys::getpid()) as u32
}

/// A name of this process in all PID namespaces: in its lower half the number, in the upper half the namespace in which that is its
/// number. 0 where the namespace cannot be known.
pub(crate) fn process_name() -> u64 {
    let namespace = inode(c"/proc/self/ns/pid");
    namespace.map_or(0, |inode| inode << 32 | u64::from(process_id()))
}

/// Whether the process of this name is in the machine's own PID namespace (the kernel's `PROC_PID_INIT_INO`).
pub(crate) fn is_outermost(name: u64) -> bool {
    name >> 32 == OUTERMOST
}

/// The name of a process there.
pub(crate) fn outermost(process: u32) -> u64 {
    OUTERMOST << 32 | u64::from(process)
}

const OUTERMOST: u64 = 0xefff_fffc;

/// Whether a process has ended and its parent knows, so that the kernel has closed its files. False where that cannot be known.
pub(crate) fn is_gone(name: u64) -> bool {
    let is_named = name != 0 && name >> 32 == process_name() >> 32;
    is_named && sys::is_there(name as u32) == Err(Error(libc::ESRCH))
}

/// This thread.
pub(crate) fn thread_id() -> u64 {
    number(sys::gettid())
}

/// The result of a system call that cannot fail.
fn number(returned: Result<c_long, Error>) -> u64 {
    returned.unwrap_or(0).cast_unsigned()
}

/// Whether the kernel gave this program more rights than its user has, or other ones (`AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    sys::auxiliary(libc::AT_SECURE) != 0
}

/// Whether writing to a file can never exceed the process's limit on their size, which would end it (`SIGXFSZ`).
pub(crate) fn may_write_files() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let which = libc::RLIMIT_FSIZE as c_int;
    sys::limit(which, &mut limit).is_ok() && limit.rlim_cur == libc::RLIM_INFINITY
}
