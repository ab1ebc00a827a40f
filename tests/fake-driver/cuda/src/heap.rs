//! Physical memory by the piece, as a context takes it.
//!
//! The driver takes memory in pieces of 2 MiB, and puts what is smaller together into one (seen on an H200: one byte
//! takes 2 MiB, and the next million none).

use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Kind, MemoryError, Process};

use crate::Outcome;
use crate::address::GRANULARITY;

/// What small pieces are rounded up to: addresses are multiples of it.
const ALIGNMENT: u64 = 512;

/// The small pieces of each context, device and kind.
#[derive(Default)]
pub(crate) struct Heap {
    small: BTreeMap<Place, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    context: usize,
    device: usize,
    kind: Kind,
}

/// Memory that was taken. It is not given back by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    place: Place,
    bytes: u64,
}

impl Heap {
    /// Takes memory of a device for a context.
    pub(crate) fn take(
        &mut self,
        node: &Process,
        context: usize,
        device: usize,
        kind: Kind,
        bytes: u64,
    ) -> Outcome<Piece> {
        let place = Place {
            context,
            device,
            kind,
        };
        let bytes = bytes
            .checked_next_multiple_of(ALIGNMENT)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if bytes >= GRANULARITY {
            node.charge(device, kind, whole(bytes)?).map_err(code)?;
        } else {
            let sum = self.small.entry(place).or_default();
            let more = whole(*sum + bytes)? - whole(*sum)?;
            node.charge(device, kind, more).map_err(code)?;
            *sum += bytes;
        }
        Ok(Piece { place, bytes })
    }

    /// Gives it back.
    pub(crate) fn give_back(&mut self, node: &Process, piece: Piece) {
        let Place { device, kind, .. } = piece.place;
        if piece.bytes >= GRANULARITY {
            node.refund(device, kind, whole(piece.bytes).unwrap_or(0));
            return;
        }
        let sum = self.small.entry(piece.place).or_default();
        let before = whole(*sum).unwrap_or(0);
        *sum = sum.saturating_sub(piece.bytes);
        node.refund(device, kind, before - whole(*sum).unwrap_or(0));
    }
}

fn whole(bytes: u64) -> Outcome<u64> {
    bytes
        .checked_next_multiple_of(GRANULARITY)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The driver's word for an account's refusal.
pub(crate) fn code(error: MemoryError) -> CUresult {
    match error {
        MemoryError::Full => CUDA_ERROR_OUT_OF_MEMORY,
        MemoryError::Ended => CUDA_ERROR_DEINITIALIZED,
        MemoryError::File => CUDA_ERROR_OPERATING_SYSTEM,
    }
}
