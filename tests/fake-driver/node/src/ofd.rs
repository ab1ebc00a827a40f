//! The proof that a process is alive: a lock on one byte of the node's file, which lives as long as a mapping made
//! through it.
//!
//! The descriptor is closed at once, so a program that closes all descriptors loses nothing; the mapping is not
//! inherited by a child, and ends with the process or its exec. The kernel then drops the lock, however the end came.
//!
//! A second lock belongs to a descriptor that stays open, as the driver's files do. Children inherit it, and what a process had stays
//! until they have closed it too (seen on an H100).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The byte that is locked for the first slot: far beyond the end of any node's file.
const FIRST_BYTE: i64 = 1 << 40;

/// Takes the lock for the open file; false if another open file has it.
pub(crate) fn take(file: &File, slot: usize) -> io::Result<bool> {
    let mut region = region(libc::F_WRLCK, slot);
    match control(file, libc::F_OFD_SETLK, &mut region) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the lock of the process's files, for the open file that is one.
pub(crate) fn take_files(file: &File, slot: usize) -> io::Result<()> {
    let mut region = region(libc::F_WRLCK, FILES + slot);
    control(file, libc::F_OFD_SETLK, &mut region)
}

/// Whether a process that had the files of this slot, or a child of its, has them still.
pub(crate) fn has_files(file: &File, slot: usize) -> bool {
    is_taken(file, FILES + slot)
}

/// The byte for the files of the first slot, after those for slots.
const FILES: usize = 1 << 20;

/// Marks the open file as alive, along with any number of others.
pub(crate) fn share(file: &File) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut region(libc::F_RDLCK, 0))
}

/// Whether another open file has the lock.
pub(crate) fn is_taken(file: &File, slot: usize) -> bool {
    let mut region = region(libc::F_WRLCK, slot);
    // In doubt it is: nothing is taken from a process because a question failed.
    control(file, libc::F_OFD_GETLK, &mut region).is_err()
        || region.l_type != libc::F_UNLCK as libc::c_short
}

fn region(kind: libc::c_int, slot: usize) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: FIRST_BYTE + slot as i64,
        l_len: 1,
        l_pid: 0,
    }
}

fn control(file: &File, command: libc::c_int, region: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the three commands used here take a pointer to one lock description, which `region` is.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(region)) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
