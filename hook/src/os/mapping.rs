//! Memory from the kernel: this process's own, and what it shares with the others of its job.

use core::ffi::c_int;
use core::ops::Range;
use core::ptr::NonNull;

use super::error::Error;
use super::file::File;
use super::sys;

/// Memory of this process, all zero. Only [`unmap`](super::unmap) gives it back.
pub(crate) fn map(size: usize) -> Result<NonNull<u8>, Error> {
    map_as(size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// A file's first bytes, as all who map it see them. The file stays open, and its locks held, as long as this process or a
/// child of its that has not called exec maps it.
pub(crate) fn map_shared(file: &File, size: usize) -> Result<NonNull<u8>, Error> {
    map_as(size, libc::MAP_SHARED, file.0)
}

/// Makes memory all zero again in the children of a fork. Linux before 4.14 cannot.
pub(super) fn is_wiped_in_children(start: NonNull<u8>, size: usize) -> bool {
    sys::wipe_on_fork(start, size).is_ok()
}

/// Whether anything is mapped at an address, the first of a page.
pub(crate) fn is_mapped(address: u64) -> bool {
    let mut is_in_memory = 0_u8;
    sys::mincore(address, &mut is_in_memory) != Err(Error(libc::ENOMEM))
}

fn map_as(size: usize, kind: c_int, file: c_int) -> Result<NonNull<u8>, Error> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let start = sys::mmap(size, access, kind, file)? as *mut u8;
    NonNull::new(start).ok_or(Error(libc::ENOMEM))
}

impl File {
    /// Takes the lock of one byte, which belongs to this open file and ends when that is closed and mapped nowhere;
    /// false if another has it.
    pub(crate) fn lock_byte(&self, offset: u64) -> Result<bool, Error> {
        self.try_lock(libc::F_WRLCK, offset)
    }

    /// The same, shared: several may have it together, while none has it alone.
    pub(crate) fn share_byte(&self, offset: u64) -> Result<bool, Error> {
        self.try_lock(libc::F_RDLCK, offset)
    }

    /// Gives such a lock back.
    pub(crate) fn unlock_byte(&self, offset: u64) {
        let _ = self.set_lock(libc::F_UNLCK, offset);
    }

    /// Whether the lock of one byte is held alone through another open file than this.
    pub(crate) fn is_locked(&self, offset: u64) -> bool {
        self.other_lock(one_byte(offset)) == Some(libc::F_WRLCK)
    }

    /// Whether that of one of these bytes is held through another open file, be it alone or shared.
    pub(crate) fn is_any_held(&self, bytes: Range<u64>) -> bool {
        self.other_lock(bytes)
            .is_some_and(|kind| kind != libc::F_UNLCK)
    }

    fn other_lock(&self, bytes: Range<u64>) -> Option<c_int> {
        let mut lock = region(libc::F_WRLCK, bytes);
        sys::lock(self.0, libc::F_OFD_GETLK, &mut lock).ok()?;
        Some(lock.l_type.into())
    }

    fn try_lock(&self, kind: c_int, offset: u64) -> Result<bool, Error> {
        match self.set_lock(kind, offset) {
            Ok(()) => Ok(true),
            Err(Error(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_lock(&self, kind: c_int, offset: u64) -> Result<(), Error> {
        let mut lock = region(kind, one_byte(offset));
        sys::lock(self.0, libc::F_OFD_SETLK, &mut lock).map(drop)
    }
}

pub(crate) const fn one_byte(offset: u64) -> Range<u64> {
    offset..offset.saturating_add(1)
}

fn region(kind: c_int, bytes: Range<u64>) -> libc::flock {
    let length = bytes.end.saturating_sub(bytes.start);
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: bytes.start.cast_signed(),
        l_len: length.cast_signed(),
        l_pid: 0,
    }
}
