//! Files.

use core::ffi::{CStr, c_int};

use super::error::{Error, outcome};

/// An open file, closed when dropped.
pub(crate) struct File(pub(super) c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used after this.
        let _ = unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// What a file is and whose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// The owner, as this user namespace shows him.
    pub(crate) owner: u32,
    mode: u32,
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
        // SAFETY: `path` ends in a zero byte and lives through the call.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags,
                0o600,
            )
        };
        outcome(returned).map(|fd| Self(fd as c_int))
    }

    /// What the open file is.
    pub(crate) fn status(&self) -> Result<Status, Error> {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills a `stat`, for which there is room.
        outcome(unsafe { libc::syscall(libc::SYS_fstat, self.0, stat.as_mut_ptr()) })?;
        // SAFETY: a `stat` is plain numbers; all of it was zero before the kernel wrote to it.
        let stat = unsafe { stat.assume_init() };
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
            // SAFETY: the kernel writes at most `room`'s length into it.
            let returned =
                unsafe { libc::syscall(libc::SYS_read, self.0, room.as_mut_ptr(), room.len()) };
            match outcome(returned) {
                Err(Error(libc::EINTR)) => {}
                outcome => return outcome.map(|count| count as usize),
            }
        }
    }

    /// Writes `text` at once; what does not fit on the disk is lost.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), Error> {
        // SAFETY: the kernel only reads `text`.
        outcome(unsafe { libc::syscall(libc::SYS_write, self.0, text.as_ptr(), text.len()) })?;
        Ok(())
    }

    /// Puts the next names of an open folder into `buffer` as the kernel writes them; an empty slice at the end.
    pub(crate) fn read_names<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Error> {
        // SAFETY: the kernel writes at most `buffer`'s length into it.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                self.0,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        let count = outcome(returned)?;
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
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `path` ends in a zero byte, and the kernel fills a `stat`, for which there is room.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            stat.as_mut_ptr(),
            0,
        )
    };
    outcome(returned)?;
    // SAFETY: a `stat` is plain numbers; all of it was zero before the kernel wrote to it.
    let stat = unsafe { stat.assume_init() };
    Ok(status_of(&stat).inode)
}
