//! Memory that another process opens: its content moves into a file that both map. It stays counted where it was taken.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::address::{self, Area};
use crate::driver::Driver;
use crate::ranges::{Range, Source};

/// What one process tells another, as bytes of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) file: u64,
    bytes: u64,
    device: u64,
    /// The process that shares it: it cannot open its own.
    owner: u64,
}

/// What a ticket begins with, so that no other bytes are taken for one.
const MARK: u64 = u64::from_le_bytes(*b"fakecuda");

impl Ticket {
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [MARK, self.file, self.bytes, self.device, self.owner];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads it; one that is none opens nothing.
    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Ticket {
        let mut words = bytes.chunks_exact(8).map(|word| {
            word.iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        });
        let mut next = || words.next().unwrap_or(0);
        let known = next() == MARK;
        Ticket {
            file: if known { next() } else { 0 },
            bytes: next(),
            device: next(),
            owner: next(),
        }
    }
}

/// Lets others open what begins at this address.
pub(crate) fn share(driver: &mut Driver, start: CUdeviceptr) -> Outcome<Ticket> {
    let node = driver.node;
    let range = driver
        .ranges
        .at_mut(start)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (Source::Device { shared, .. } | Source::Pool { shared, .. }) = &mut range.source else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let file = match shared {
        Some(known) => *known,
        None => {
            let bytes = range.area.length;
            let (number, file) = node.shared_file(bytes).map_err(failed)?;
            let copy = Area::of_file(&file, bytes)?;
            // SAFETY: both are as long as the allocation: the one is it, the other was just mapped.
            unsafe { address::copy(copy.start, range.area.start, bytes as usize) };
            copy.give_back();
            range.area.replace_by_file(&file, 0)?;
            *shared = Some(number);
            number
        }
    };
    Ok(Ticket {
        file,
        bytes: range.area.length,
        device: range.device as u64,
        owner: std::process::id().into(),
    })
}

/// Opens what another process shares.
pub(crate) fn open(driver: &mut Driver, ticket: &Ticket, context: usize) -> Outcome<CUdeviceptr> {
    let device = usize::try_from(ticket.device).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    driver
        .ordinal(device)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if ticket.owner == u64::from(std::process::id()) {
        // Seen on an H200.
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let file = driver
        .node
        .open_shared_file(ticket.file)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let area = Area::of_file(&file, ticket.bytes)?;
    driver.ranges.insert(Range {
        area,
        context,
        device,
        source: Source::Imported,
    });
    Ok(area.start)
}

/// A file of the program's own, by its descriptor.
pub(crate) fn borrow(descriptor: usize) -> Outcome<File> {
    let number = RawFd::try_from(descriptor).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: `fcntl` takes any number; it is how to ask whether one is open.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: it is open, and the program that named it keeps it so during the call.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(file.try_clone_to_owned().map_err(failed)?.into())
}

/// The driver's word for a refusal of the system.
pub(crate) fn failed(_: io::Error) -> CUresult {
    CUDA_ERROR_OPERATING_SYSTEM
}
