//! The managed memory that this process knows. An allocation or variable as large as a piece or larger has a mapping of
//! its own in this process; smaller ones share mappings of a piece (research/gpu-memory.md). No thread waits for another:
//! each charged entry has the [`moment`] at which it was last seen, and a look forgets only entries that were last seen
//! before it began.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CUdevice,
};

use super::allocations::{Holding, Holdings, Kind};
use super::device::LimitedGpu;
use super::in_progress::CallGuard;
use super::pieces::{PIECE, in_pieces, piece_of};
use super::{charge, slot};
use crate::driver::device::{attribute_of, device_of};
use crate::os;

/// Whether there ever was a variable or a piece.
static ANY: AtomicBool = AtomicBool::new(false);

/// A moment later than all before.
pub(crate) fn moment() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // SeqCst: a thread that gets a later moment sees what was mapped or remembered before an earlier one.
    LAST.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
}

/// Remembers a piece or a variable that is charged and was seen. If it was known, it is charged twice, and once is enough.
pub(crate) fn remember(gpu: &LimitedGpu, kind: Kind, name: u64, units: u32, seen: u64) {
    ANY.store(true, Ordering::SeqCst);
    let before = gpu.holdings().change(kind, name, |known| {
        let new = Holding {
            units,
            device: gpu.number(),
            count: 0,
            // Others may have seen it later, and go by that.
            other: known.map_or(seen, |known| known.other.max(seen)),
        };
        (Some(new), known)
    });
    if let Some(before) = before {
        charge::refund(kind, &before);
    }
}

/// Notes that a known piece or variable was seen; false if it is not known.
fn touch(holdings: &Holdings, kind: Kind, name: u64, units: u32, seen: u64) -> bool {
    holdings.change(kind, name, |known| match known {
        Some(known) if known.units == units => {
            let other = known.other.max(seen);
            (Some(Holding { other, ..known }), true)
        }
        known => (known, false),
    })
}

/// Forgets it, unless another thread has seen it since it was known as `before`.
fn forget(holdings: &Holdings, kind: Kind, name: u64, before: &Holding) -> bool {
    let forgotten = holdings.change(kind, name, |known| {
        let is_same = known.as_ref() == Some(before);
        (known.filter(|_| !is_same), is_same)
    });
    if forgotten {
        let gpu = LimitedGpu::on(before.device.into());
        let _guard = gpu.as_ref().map(CallGuard::on);
        charge::refund(kind, before);
    }
    forgotten
}

/// Forgets a piece or variable that is not there; true if there is one.
pub(crate) fn settle(holdings: &Holdings, kind: Kind, name: u64) -> bool {
    while let Some(known) = holdings.get(kind, name) {
        let is_there = match kind {
            Kind::ManagedPiece => os::is_mapped(name),
            _ => {
                let is_same = |found: Found| found.name == name && found.units == known.units;
                holdings.get(Kind::Managed, name).is_none() && Found::at(name).is_some_and(is_same)
            }
        };
        if is_there {
            return true;
        }
        if forget(holdings, kind, name, &known) {
            return false;
        }
    }
    false
}

/// Managed memory outside of pools, as the driver knows it.
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) name: u64,
    pub(crate) units: u32,
    pub(crate) device: CUdevice,
}

/// A number below that of any GPU: the driver gives it for memory that does not belong to a GPU.
pub(crate) const NOWHERE: CUdevice = -1;

impl Found {
    /// The memory at an address, which needs no context.
    fn at(address: u64) -> Option<Self> {
        let is_managed = attribute_of(address, CU_POINTER_ATTRIBUTE_IS_MANAGED)?;
        let pool = attribute_of(address, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
        if is_managed == 0 || pool.is_some_and(|pool| pool != 0) {
            return None;
        }
        let start = attribute_of(address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
        let bytes = attribute_of(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE)?;
        let (kind, name) = if bytes < PIECE {
            (Kind::ManagedPiece, piece_of(start))
        } else {
            (Kind::Variable, start)
        };
        Some(Self {
            kind,
            name,
            units: in_pieces(bytes),
            device: device_of(address).unwrap_or(NOWHERE),
        })
    }
}

/// Notes that memory of the driver's was seen at an address. If it is not charged yet, it is returned with the moment
/// at which it was seen.
#[inline(never)]
pub(crate) fn noticed(holdings: &Holdings, address: u64) -> Option<(Found, u64)> {
    if holdings.get(Kind::Managed, address).is_some() {
        return None;
    }
    // The memory is there at this moment, and maybe not when it is remembered.
    let now = moment();
    let Some(found) = Found::at(address) else {
        // The first allocation of a piece may be gone, and others in it not.
        let piece = piece_of(address);
        if os::is_mapped(piece) {
            touch(holdings, Kind::ManagedPiece, piece, in_pieces(PIECE), now);
        }
        return None;
    };
    let is_known = touch(holdings, found.kind, found.name, found.units, now)
        || holdings.get(Kind::Managed, found.name).is_some();
    (!is_known).then_some((found, now))
}

/// Calls `see` with all that is mapped, and forgets what is not there. False where it cannot be seen.
pub(crate) fn look(see: &mut dyn FnMut(&Holdings, u64)) -> bool {
    let Some(holdings) = slot::holdings() else {
        return true;
    };
    let _errno = os::Errno::save();
    let begun = moment();
    if os::each_mapping_of_itself(|start| see(holdings, start)).is_err() {
        return false;
    }
    for kind in [Kind::ManagedPiece, Kind::Variable] {
        holdings.each(kind, |name, held| {
            if held.other < begun {
                forget(holdings, kind, name, &held);
            }
        });
    }
    true
}

/// Refunds what is there no more.
pub(crate) fn forget_gone() {
    if ANY.load(Ordering::SeqCst) {
        look(&mut |holdings, start| {
            noticed(holdings, start);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_meanwhile_is_not_forgotten() {
        let holdings = Holdings::new();
        let (kind, name, units) = (Kind::Variable, PIECE, in_pieces(PIECE));
        let known = Holding {
            units,
            device: 0,
            count: 0,
            other: moment(),
        };
        holdings.put(kind, name, known);
        let later = moment();
        assert!(touch(&holdings, kind, name, units, later));
        assert!(!forget(&holdings, kind, name, &known));
        // One who saw it before comes late.
        assert!(touch(&holdings, kind, name, units, known.other));
        assert_eq!(holdings.get(kind, name).unwrap().other, later);
        // Another variable, at the same address.
        assert!(!touch(&holdings, kind, name, units * 2, moment()));
        assert_eq!(holdings.get(kind, name).unwrap().other, later);
    }
}
