//! Memory from the kernel: this process's own, and what it shares with the others of its job.

use core::ffi::{c_int, c_long, c_void};
use core::ptr::NonNull;

use super::error::{Error, outcome};
use super::file::File;

const MADV_WIPEONFORK: c_int = 18;

/// Memory of this process, all zero. Nobody gives it back but [`unmap`].
pub(crate) fn map(size: usize) -> Result<NonNull<u8>, Error> {
    map_as(size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// A file's first bytes, as all who map it see them. The file stays open, and its locks held, as long as this process or a
/// child of its that has not called exec maps it.
pub(crate) fn map_shared(file: &File, size: usize) -> Result<NonNull<u8>, Error> {
    map_as(size, libc::MAP_SHARED, file.0)
}

/// Makes memory all zero again in the children of a fork. Linux before 4.14 cannot.
pub(crate) fn is_wiped_in_children(start: NonNull<u8>, size: usize) -> bool {
    advise(start, size, MADV_WIPEONFORK).is_ok()
}

/// Gives memory back. No reference to it may be left.
pub(crate) fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { libc::syscall(libc::SYS_munmap, start.as_ptr(), size) };
}

/// Whether anything is mapped at an address, the first of a page.
pub(crate) fn is_mapped(address: u64) -> bool {
    let mut is_in_memory = 0_u8;
    // SAFETY: asks about one page, wherever it is, and has room for the answer.
    let returned =
        unsafe { libc::syscall(libc::SYS_mincore, address, 1_usize, &raw mut is_in_memory) };
    outcome(returned) != Err(Error(libc::ENOMEM))
}

fn map_as(size: usize, kind: c_int, file: c_int) -> Result<NonNull<u8>, Error> {
    let nowhere: *mut c_void = core::ptr::null_mut();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: takes numbers, and no address to map over.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            nowhere,
            size,
            access,
            kind,
            file,
            0 as c_long,
        )
    };
    let start = outcome(returned)? as *mut u8;
    NonNull::new(start).ok_or(Error(libc::ENOMEM))
}

fn advise(start: NonNull<u8>, size: usize, advice: c_int) -> Result<(), Error> {
    // SAFETY: changes what a fork does with a mapping of ours, and nothing else.
    let returned = unsafe { libc::syscall(libc::SYS_madvise, start.as_ptr(), size, advice) };
    outcome(returned).map(drop)
}

impl File {
    /// Takes the lock of one byte, which belongs to this open file and ends when that is closed and mapped by nobody;
    /// false if another has it.
    pub(crate) fn lock_byte(&self, offset: u64) -> Result<bool, Error> {
        self.try_lock(libc::F_WRLCK, offset)
    }

    /// The same for as many as like to have it together, while nobody has it alone.
    pub(crate) fn share_byte(&self, offset: u64) -> Result<bool, Error> {
        self.try_lock(libc::F_RDLCK, offset)
    }

    /// Gives such a lock back.
    pub(crate) fn unlock_byte(&self, offset: u64) {
        let _ = self.set_lock(libc::F_UNLCK, offset);
    }

    /// Whether somebody has the lock of one byte alone, through another open file than this.
    pub(crate) fn is_locked(&self, offset: u64) -> bool {
        let mut lock = one_byte(libc::F_WRLCK, offset);
        // SAFETY: the kernel reads and writes one `flock`.
        let returned =
            unsafe { libc::syscall(libc::SYS_fcntl, self.0, libc::F_OFD_GETLK, &raw mut lock) };
        outcome(returned).is_ok() && lock.l_type == libc::F_WRLCK as i16
    }

    fn try_lock(&self, kind: c_int, offset: u64) -> Result<bool, Error> {
        match self.set_lock(kind, offset) {
            Ok(()) => Ok(true),
            Err(Error(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_lock(&self, kind: c_int, offset: u64) -> Result<(), Error> {
        let lock = one_byte(kind, offset);
        // SAFETY: the kernel reads one `flock`.
        let returned =
            unsafe { libc::syscall(libc::SYS_fcntl, self.0, libc::F_OFD_SETLK, &raw const lock) };
        outcome(returned).map(drop)
    }
}

fn one_byte(kind: c_int, offset: u64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: offset.cast_signed(),
        l_len: 1,
        l_pid: 0,
    }
}
