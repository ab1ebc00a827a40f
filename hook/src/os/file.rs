//! Opens and reads files.

use core::ffi::{CStr, c_int};

use super::error::Error;
use super::sys;

/// An open file, closed when dropped.
pub(crate) struct File(pub(super) c_int);

impl Drop for File {
    fn drop(&mut self) {
        let _ = sys::close(self.0);
    }
}

/// The kind and owner of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The owner, by the number in this user namespace.
    pub(crate) owner: u32,
    /// Its kind and who may do what with it.
    pub(crate) mode: u32,
    inode: u64,
    /// How long the file is.
    pub(crate) size: usize,
}

impl Status {
    /// A plain file that only its owner may write.
    pub(crate) fn is_kept_by_owner(&self) -> bool {
        self.is_plain() && self.mode & (libc::S_IWGRP | libc::S_IWOTH) == 0
    }

    /// A plain file.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

impl File {
    /// Opens a file without following a link in its last name, and without waiting for whatever it may be. One that is
    /// made on the way is its owner's alone.
    pub(crate) fn open(path: &CStr, flags: c_int) -> Result<Self, Error> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        sys::openat(path, flags, 0o600).map(|fd| Self(fd as c_int))
    }

    /// The kind and owner of the open file.
    pub(crate) fn status(&self) -> Result<Status, Error> {
        let mut stat = sys::empty_stat();
        sys::fstat(self.0, &mut stat)?;
        Ok(status_of(&stat))
    }

    /// Fills `buffer` from the file's beginning; a file that does not fit is an error.
    pub(crate) fn read_all<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let mut filled = 0_usize;
        loop {
            let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) else {
                return Err(Error::TOO_LONG);
            };
            match self.read(room)? {
                0 => return buffer.get(..filled).ok_or(Error::TOO_LONG),
                count => filled = filled.saturating_add(count),
            }
        }
    }

    /// Puts the file's next bytes into `room` and says how many; 0 at its end.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Error> {
        loop {
            match sys::read(self.0, room) {
                Err(Error(libc::EINTR)) => {}
                outcome => return outcome.map(|count| count as usize),
            }
        }
    }

    /// Writes `text` at once; what does not fit on the disk is lost.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), Error> {
        sys::write(self.0, text).map(drop)
    }

    /// Puts the next names of an open folder into `buffer` as the kernel writes them; an empty slice at the end.
    pub(crate) fn read_names<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let count = sys::getdents64(self.0, buffer)?;
        buffer.get(..count as usize).ok_or(Error::TOO_LONG)
    }
}

fn status_of(stat: &libc::stat) -> Status {
    Status {
        owner: stat.st_uid,
        mode: stat.st_mode,
        inode: stat.st_ino,
        size: usize::try_from(stat.st_size).unwrap_or(0),
    }
}

/// The inode behind a path, links followed.
pub(crate) fn inode(path: &CStr) -> Result<u64, Error> {
    let mut stat = sys::empty_stat();
    sys::stat(path, &mut stat)?;
    Ok(status_of(&stat).inode)
}
