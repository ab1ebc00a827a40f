//! Memory that another process opens: its content moves into a file that both map.
//!
//! As seen on an H200: it counts for the process that took it, and when that one has let go, for the one that opened
//! it; of plain memory, that is the whole piece of which it was a part. A pool's memory then counts for no
//! process, though the device still lacks it.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Block, BlockId};

use crate::Outcome;
use crate::address::Area;
use crate::driver::Driver;
use crate::ranges::{Range, Source};

/// Shared memory, as the bytes of a handle tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    block: u64,
    /// Where in the block it begins.
    offset: u64,
    bytes: u64,
    /// The process that shares it: it cannot open its own.
    owner: u64,
}

/// The mark of a ticket, so that no other bytes are taken for one.
const MARK: u64 = u64::from_le_bytes(*b"fakecuda");

impl Ticket {
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [MARK, self.block, self.offset, self.bytes, self.owner];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a ticket. Bytes that are not a ticket's make one that opens nothing.
    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Ticket {
        let mut words = bytes.chunks_exact(8).map(|word| {
            word.iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        });
        let mut next = || words.next().unwrap_or(0);
        let known = next() == MARK;
        Ticket {
            block: if known { next() } else { 0 },
            offset: next(),
            bytes: next(),
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
    let (block, offset) = match &mut range.source {
        Source::Device { part } => {
            let (block, offset) = driver.heap.share(node, *part)?;
            (block.id, offset)
        }
        Source::Pool { shared, bytes, .. } => match shared {
            Some(known) => (*known, 0),
            None => {
                let shadow = node.create_shadow(range.device, *bytes);
                let block = shadow.map_err(crate::heap::code)?.id;
                let file = node.open_block(block).map_err(failed)?;
                range.area.move_into(&file)?;
                *shared = Some(block);
                (block, 0)
            }
        },
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(Ticket {
        block: block.0,
        offset,
        bytes: range.area.length,
        owner: std::process::id().into(),
    })
}

/// Opens what another process shares.
pub(crate) fn open(driver: &mut Driver, ticket: &Ticket, context: usize) -> Outcome<CUdeviceptr> {
    if ticket.owner == u64::from(std::process::id()) {
        // Seen on an H200.
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let block = driver
        .node
        .hold_block_numbered(ticket.block)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    *driver.opened.entry(block.id).or_insert(0) += 1;
    let mapped = map(driver, ticket, block);
    if mapped.is_err() {
        let_go(driver, block.id);
    }
    let (whole, start) = mapped?;
    driver.ranges.insert(Range {
        area: Area {
            start,
            length: ticket.bytes,
        },
        context,
        device: block.device,
        source: Source::Imported {
            whole,
            block: block.id,
        },
    });
    Ok(start)
}

fn map(driver: &Driver, ticket: &Ticket, block: Block) -> Outcome<(Area, CUdeviceptr)> {
    driver
        .ordinal(block.device)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let file = driver
        .node
        .open_block(block.id)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let whole = Area::of_file(&file, block.bytes)?;
    let start = whole.start.saturating_add(ticket.offset);
    if !whole.has(start, ticket.bytes) {
        whole.give_back();
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok((whole, start))
}

/// Closes what was opened; with the last of a block, this process holds it no more.
pub(crate) fn let_go(driver: &mut Driver, block: BlockId) {
    let times = driver.opened.entry(block).or_insert(1);
    *times -= 1;
    if *times == 0 {
        driver.opened.remove(&block);
        driver.node.drop_block(block);
    }
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
