//! Physical memory by the piece, as a context takes it.
//!
//! The driver takes memory in pieces of 2 MiB, and puts what is smaller together into one; nothing lies across the
//! boundary of two pieces unless it begins at one (seen on an H200). A context's memory is therefore the number of
//! pieces that its addresses touch, and here, too, a piece is a stretch of addresses.

use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Block, Kind, MemoryError, Process};

use crate::Outcome;
use crate::address::{Area, GRANULARITY};

/// Addresses are multiples of it.
const ALIGNMENT: u64 = 512;

/// All pieces, by their first address.
#[derive(Default)]
pub(crate) struct Heap(BTreeMap<u64, Piece>);

/// Owner and kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    /// Below 4 GiB, for programs of the time when addresses had 32 bits.
    pub(crate) low: bool,
}

/// Memory of the device.
#[derive(Debug)]
struct Piece {
    place: Place,
    area: Area,
    /// Parts in use: where each begins, and its length.
    parts: BTreeMap<u64, u64>,
    /// The first address that no part ever had.
    end: u64,
    /// Nothing longer than this fits between the parts.
    gap: u64,
    /// The block, once it is shared.
    block: Option<Block>,
}

/// A part of a piece. It is not given back by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    piece: u64,
    pub(crate) start: u64,
}

impl Heap {
    /// Takes memory of a device for a context.
    pub(crate) fn take(&mut self, node: &Process, place: Place, bytes: u64) -> Outcome<Part> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(ALIGNMENT)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if bytes < GRANULARITY {
            let mut pieces = self.0.values_mut().filter(|piece| piece.place == place);
            if let Some(part) = pieces.find_map(|piece| piece.take(bytes)) {
                return Ok(part);
            }
        }
        let whole = bytes
            .checked_next_multiple_of(GRANULARITY)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let Place { device, kind, .. } = place;
        node.charge(device, kind, whole).map_err(code)?;
        let area = match kind {
            Kind::Managed => Area::managed(whole),
            _ => Area::piece(whole, place.low),
        };
        let area = area.inspect_err(|_| node.refund(device, kind, whole))?;
        let piece = Piece {
            place,
            area,
            parts: BTreeMap::from([(area.start, bytes)]),
            end: area.start + bytes,
            gap: 0,
            block: None,
        };
        self.0.insert(area.start, piece);
        Ok(Part {
            piece: area.start,
            start: area.start,
        })
    }

    /// Gives it back; a piece that nothing is left of goes at once.
    pub(crate) fn give_back(&mut self, node: &Process, part: Part) {
        let Some(piece) = self.0.get_mut(&part.piece) else {
            return;
        };
        if piece.parts.remove(&part.start).is_some() {
            // The next search finds out how long the longest gap is.
            piece.gap = piece.area.length;
        }
        if !piece.parts.is_empty() {
            return;
        }
        if let Some(piece) = self.0.remove(&part.piece) {
            let Place { device, kind, .. } = piece.place;
            match piece.block {
                Some(block) => node.drop_block(block.id),
                None => node.refund(device, kind, piece.area.length),
            }
            match kind {
                Kind::Managed => piece.area.give_back_managed(),
                _ => piece.area.give_back(),
            }
        }
    }

    /// The block by which others can hold a part's whole piece, and where in it the part begins.
    pub(crate) fn share(&mut self, node: &Process, part: Part) -> Outcome<(Block, u64)> {
        let piece = self
            .0
            .get_mut(&part.piece)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let offset = part.start - piece.area.start;
        if let Some(block) = piece.block {
            return Ok((block, offset));
        }
        let (Place { device, kind, .. }, bytes) = (piece.place, piece.area.length);
        let block = node.turn_into_block(device, kind, bytes).map_err(code)?;
        piece.block = Some(block);
        let file = node.open_block(block.id);
        piece
            .area
            .move_into(&file.map_err(crate::sharing::failed)?)?;
        Ok((block, offset))
    }
}

impl Piece {
    /// Takes a part of it, if there is room without crossing into the next piece.
    fn take(&mut self, bytes: u64) -> Option<Part> {
        if self.area.length > GRANULARITY {
            return None;
        }
        let start = if self.behind() - self.end >= bytes {
            self.end
        } else if self.gap >= bytes {
            let start = self.find_gap(bytes);
            if start.is_none() {
                // Shorter ones may fit.
                self.gap = bytes - ALIGNMENT;
            }
            start?
        } else {
            return None;
        };
        self.end = self.end.max(start + bytes);
        self.parts.insert(start, bytes);
        Some(Part {
            piece: self.area.start,
            start,
        })
    }

    fn find_gap(&self, bytes: u64) -> Option<u64> {
        let mut free = self.area.start;
        for (start, length) in &self.parts {
            if start - free >= bytes {
                return Some(free);
            }
            free = start + length;
        }
        (self.behind() - free >= bytes).then_some(free)
    }

    /// The first address that is not the piece's.
    fn behind(&self) -> u64 {
        self.area.start + self.area.length
    }
}

/// The driver's word for an account's refusal.
pub(crate) fn code(error: MemoryError) -> CUresult {
    match error {
        MemoryError::Full => CUDA_ERROR_OUT_OF_MEMORY,
        MemoryError::Ended => CUDA_ERROR_DEINITIALIZED,
        MemoryError::File => CUDA_ERROR_OPERATING_SYSTEM,
    }
}
