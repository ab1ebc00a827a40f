//! Addresses: device memory is memory of the process, taken from the system only where a program touches it.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;

use softmig_driver_sys::cuda::*;

use crate::Outcome;

/// Memory is mapped, and physical memory is counted, in pieces of this size.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// Addresses that a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Area {
    /// New memory, all zero.
    pub(crate) fn new(bytes: u64) -> Outcome<Area> {
        map(None, bytes, READ_WRITE, ANONYMOUS, None)
    }

    /// New memory at a multiple of the granularity, all zero, and if need be below 4 GiB.
    pub(crate) fn piece(bytes: u64, low: bool) -> Outcome<Area> {
        let flags = if low { LOW } else { ANONYMOUS };
        aligned(bytes, GRANULARITY, READ_WRITE, flags)
    }

    /// New memory that host and device share, at a multiple of the granularity, all zero. In the list of the process's mappings
    /// it looks as a real driver's does (seen on an H200): shared, of a file of that name, and at each address the file's
    /// part with that number.
    pub(crate) fn managed(bytes: u64) -> Outcome<Area> {
        let area = Area::reserve(bytes, GRANULARITY)?;
        let placed = shared_file().and_then(|file| area.replace_by_file(file, area.start));
        placed.inspect_err(|_| area.give_back())?;
        Ok(area)
    }

    /// Addresses without memory, from a multiple of the alignment on.
    pub(crate) fn reserve(bytes: u64, alignment: u64) -> Outcome<Area> {
        aligned(
            bytes,
            alignment.max(GRANULARITY),
            libc::PROT_NONE,
            ANONYMOUS,
        )
    }

    /// Memory that others share: what is in the file.
    pub(crate) fn of_file(file: &File, bytes: u64) -> Outcome<Area> {
        map(None, bytes, READ_WRITE, libc::MAP_SHARED, Some((file, 0)))
    }

    /// Moves what is in the memory into a file that is as long, and puts that in its place.
    pub(crate) fn move_into(self, file: &File) -> Outcome {
        let copied = Area::of_file(file, self.length)?;
        // SAFETY: both are as long: the one is this memory, the other was just mapped.
        unsafe { copy(copied.start, self.start, self.length as usize) };
        copied.give_back();
        self.replace_by_file(file, 0)
    }
    /// Puts a part of a file at addresses that were reserved, or are memory whose content moves into the file.
    pub(crate) fn replace_by_file(self, file: &File, offset: u64) -> Outcome {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        map(
            Some(self.start),
            self.length,
            READ_WRITE,
            flags,
            Some((file, offset)),
        )?;
        Ok(())
    }

    /// Takes the memory away and keeps the addresses.
    pub(crate) fn empty(self) -> Outcome {
        let flags = ANONYMOUS | libc::MAP_FIXED;
        map(Some(self.start), self.length, libc::PROT_NONE, flags, None)?;
        Ok(())
    }

    /// Gives the addresses back.
    pub(crate) fn give_back(self) {
        unmap(self.start, self.length);
    }

    /// The same, of memory that host and device share: what was in it is forgotten.
    pub(crate) fn give_back_managed(self) {
        let start = std::ptr::without_provenance_mut(self.start as usize);
        // SAFETY: the addresses are an area of this driver's, of which the program has said that it is done with it.
        unsafe { libc::madvise(start, self.length as usize, libc::MADV_REMOVE) };
        self.give_back();
    }

    /// Whether all of these are among them.
    pub(crate) fn has(self, start: u64, length: u64) -> bool {
        // No sums: a program may name any addresses.
        let before = start.checked_sub(self.start);
        before.is_some_and(|before| before <= self.length && length <= self.length - before)
    }
}

/// The file behind the memory that host and device share.
fn shared_file() -> Outcome<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let make = || {
        // SAFETY: a name that ends in a zero byte.
        let made = unsafe { libc::memfd_create(c"nvidia-uvm".as_ptr(), libc::MFD_CLOEXEC) };
        if made < 0 {
            return None;
        }
        // SAFETY: just opened, and this function's alone.
        let file = unsafe { File::from_raw_fd(made) };
        // As long as there are addresses: pages that were never touched take nothing.
        file.set_len(1 << 47).ok()?;
        Some(file)
    };
    FILE.get_or_init(make)
        .as_ref()
        .ok_or(CUDA_ERROR_OPERATING_SYSTEM)
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Without reserving swap: a GPU has more memory than most machines that run tests.
const ANONYMOUS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Below 4 GiB, for programs of the time when addresses of a device had 32 bits.
const LOW: libc::c_int = ANONYMOUS | libc::MAP_32BIT;

fn aligned(
    bytes: u64,
    alignment: u64,
    protection: libc::c_int,
    flags: libc::c_int,
) -> Outcome<Area> {
    let larger = bytes
        .checked_add(alignment)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let all = map(None, larger, protection, flags, None)?;
    let start = all.start.next_multiple_of(alignment);
    let end = start + bytes;
    unmap(all.start, start - all.start);
    unmap(end, all.start + all.length - end);
    Ok(Area {
        start,
        length: bytes,
    })
}

fn map(
    at: Option<u64>,
    bytes: u64,
    protection: libc::c_int,
    flags: libc::c_int,
    file: Option<(&File, u64)>,
) -> Outcome<Area> {
    let length = usize::try_from(bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let at = std::ptr::without_provenance_mut(at.unwrap_or(0) as usize);
    let (descriptor, offset) =
        file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset as i64));
    // SAFETY: either the system picks addresses that are not in use, or they are an area of this driver's, which the
    // program that owns it asked to be changed.
    let start = unsafe { libc::mmap(at, length, protection, flags, descriptor, offset) };
    if start == libc::MAP_FAILED {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    Ok(Area {
        start: start as u64,
        length: bytes,
    })
}

fn unmap(start: u64, length: u64) {
    if length == 0 {
        return;
    }
    let start = std::ptr::without_provenance_mut(start as usize);
    // SAFETY: the addresses are an area of this driver's, of which the program has said that it is done with it.
    unsafe { libc::munmap(start, length as usize) };
}

/// Copies between device memory, host memory or both. The areas may overlap.
///
/// # Safety
/// Both must be memory of this process as long as said: checked for device memory, owed by the caller for the host's.
pub(crate) unsafe fn copy(to: u64, from: u64, bytes: usize) {
    let (to, from) = (to as usize as *mut u8, from as usize as *const u8);
    // SAFETY: as this function requires.
    unsafe { std::ptr::copy(from, to, bytes) };
}

/// Fills memory with `count` elements of one value. An element has one, two or four bytes.
///
/// # Safety
/// It must be memory of this process as long as said.
pub(crate) unsafe fn fill(to: u64, value: u32, size: usize, count: usize) {
    if size == 1 {
        // SAFETY: as this function requires.
        unsafe { std::ptr::write_bytes(to as usize as *mut u8, value as u8, count) };
        return;
    }
    for at in 0..count {
        let place = (to as usize + at * size) as *mut u8;
        // SAFETY: as this function requires, and the value has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), place, size) };
    }
}

/// Reads a word that another thread may be writing.
///
/// # Safety
/// It must be memory of this process, at a multiple of four.
pub(crate) unsafe fn read_word(from: u64) -> u32 {
    let from = from as usize as *const u32;
    // SAFETY: as this function requires.
    unsafe { from.read_volatile() }
}

/// Reads a word of 64 bits that another thread may be writing.
///
/// # Safety
/// It must be memory of this process, at a multiple of eight.
pub(crate) unsafe fn read_wide_word(from: u64) -> u64 {
    let from = from as usize as *const u64;
    // SAFETY: as this function requires.
    unsafe { from.read_volatile() }
}

/// Writes a word that another thread may be reading.
///
/// # Safety
/// As [`read_word`].
pub(crate) unsafe fn write_word(to: u64, value: u32) {
    let to = to as usize as *mut u32;
    // SAFETY: as this function requires.
    unsafe { to.write_volatile(value) };
}
