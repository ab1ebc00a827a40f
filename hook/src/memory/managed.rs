//! Managed memory, which host and device share: allocated, or variables of code (`__managed__`), which no call names.
//!
//! Whatever is as large as a piece or larger has a mapping of its own in this process; what is smaller shares mappings of a
//! piece, allocations and variables alike (docs/gpu-notes.md). So after code was loaded the kernel's list of mappings says
//! what is there, and the driver says whether a mapping that nobody knows is managed memory; and what is charged and has no
//! mapping any more is gone. Nothing waits for anything: what is charged has the [`moment`] at which it was last seen, and
//! a look forgets only what was seen before it began.

use core::ffi::{CStr, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice,
    CUdeviceptr, CUpointer_attribute, CUresult,
};

use super::alloc::{self, PIECE, in_pieces, piece_of};
use crate::driver::cuda::real;
use crate::driver::{context, cuda_queries, device};
use crate::ledger::{self, Busy, Holding, Holdings, Kind, Limited, here};
use crate::os;

/// All of it is charged, as if it were on the GPU: it may come there at any time, without a call.
pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let call = || unsafe { real::cuMemAllocManaged(pointer, bytes, flags) };
    let Some(gpu) = here().filter(|_| bytes > 0) else {
        return call();
    };
    let bytes = bytes as u64;
    let units = in_pieces(bytes);
    let busy = Busy::on(&gpu);
    if !gpu.reserve(&busy, units, c"cuMemAllocManaged") {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let managed = &gpu.place().managed;
    alloc::expect_others();
    // Relaxed: a sum; before the memory is there, so that it is never taken for something without a name.
    managed.fetch_add(units, Ordering::Relaxed);
    let result = call();
    if result != CUDA_SUCCESS {
        managed.fetch_sub(units, Ordering::Relaxed);
        gpu.refund(units);
        return result;
    }
    // SAFETY: the driver has just written there.
    let address = unsafe { pointer.read() };
    if bytes < PIECE {
        remember(&gpu, Kind::ManagedPiece, piece_of(address), units, moment());
        return result;
    }
    let holding = Holding {
        units,
        device: gpu.number(),
        count: 1,
        other: context::current(),
    };
    ledger::keep(&gpu, Kind::Managed, address, holding);
    // Another thread may have looked before this one was here.
    settle(gpu.holdings(), Kind::Variable, address);
    result
}

/// Frees managed memory, if that is what is at an address.
pub(super) fn free<F: FnOnce() -> CUresult>(
    holdings: &Holdings,
    address: u64,
    call: F,
) -> Result<CUresult, F> {
    let (kind, name, held) = match holdings.get(Kind::Managed, address) {
        Some(held) => (Kind::Variable, address, held),
        None => match holdings.get(Kind::ManagedPiece, piece_of(address)) {
            Some(held) => (Kind::ManagedPiece, piece_of(address), held),
            None => return Err(call),
        },
    };
    let gpu = Limited::on(held.device.into());
    let _busy = gpu.as_ref().map(Busy::on);
    let result = match kind {
        Kind::Variable => ledger::given_back(Kind::Managed, address, call),
        _ => call(),
    };
    // A piece goes with the last that is in it. What has its own mapping may have been taken for a variable while it went.
    settle(holdings, kind, name);
    Ok(result)
}

/// Whether there ever was a variable or a piece.
static ANY: AtomicBool = AtomicBool::new(false);

/// A moment later than all before.
fn moment() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // SeqCst: who gets a later one sees what was mapped or remembered before an earlier one.
    LAST.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
}

/// Remembers a piece or a variable that is charged and was seen. If it was known, it is charged twice, and once is enough.
fn remember(gpu: &Limited, kind: Kind, name: u64, units: u32, seen: u64) {
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
        ledger::refund(kind, &before);
    }
}

/// What is known of a piece or variable was seen; false if nothing is.
fn touch(holdings: &Holdings, kind: Kind, name: u64, units: u32, seen: u64) -> bool {
    holdings.change(kind, name, |known| match known {
        Some(known) if known.units == units => {
            let other = known.other.max(seen);
            (Some(Holding { other, ..known }), true)
        }
        known => (known, false),
    })
}

/// Forgets it, unless somebody has seen it since it was known as `before`.
fn forget(holdings: &Holdings, kind: Kind, name: u64, before: &Holding) -> bool {
    let forgotten = holdings.change(kind, name, |known| {
        let is_same = known.as_ref() == Some(before);
        (known.filter(|_| !is_same), is_same)
    });
    if forgotten {
        let gpu = Limited::on(before.device.into());
        let _busy = gpu.as_ref().map(Busy::on);
        ledger::refund(kind, before);
    }
    forgotten
}

/// Forgets a piece or variable that is not there; true if there is one.
fn settle(holdings: &Holdings, kind: Kind, name: u64) -> bool {
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

/// Managed memory that is no pool's, as the driver knows it.
struct Found {
    kind: Kind,
    name: u64,
    units: u32,
    device: CUdevice,
}

/// Less than any GPU's number: what the driver says of memory that is no GPU's.
const NOWHERE: CUdevice = -1;

impl Found {
    /// What is at an address, which needs no context.
    fn at(address: u64) -> Option<Self> {
        let is_managed: u32 = attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address)?;
        let pool: Option<u64> = attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
        if is_managed == 0 || pool.is_some_and(|pool| pool != 0) {
            return None;
        }
        let start: u64 = attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)?;
        let bytes: u64 = attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address)?;
        let (kind, name) = if bytes < PIECE {
            (Kind::ManagedPiece, piece_of(start))
        } else {
            (Kind::Variable, start)
        };
        Some(Self {
            kind,
            name,
            units: in_pieces(bytes),
            device: attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address).unwrap_or(NOWHERE),
        })
    }
}

/// What the driver says of an address: a number.
fn attribute<T: Default>(attribute: CUpointer_attribute, address: u64) -> Option<T> {
    let mut value = T::default();
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: there is room for the answer.
    let result = unsafe { cuda_queries::cuPointerGetAttribute(place, attribute, address) };
    (result == CUDA_SUCCESS).then_some(value)
}

/// Charges managed memory at an address, if that is what is there, and nobody has. False if there is no room for it: it is
/// charged all the same, as long as it is there.
pub(super) fn charge(address: u64, function: &CStr) -> bool {
    ledger::holdings().is_none_or(|holdings| seen(holdings, address, Some(function)))
}

/// Something of the driver's is at an address. Without a function that may have brought it, nothing new is charged.
fn seen(holdings: &Holdings, address: u64, function: Option<&CStr>) -> bool {
    if holdings.get(Kind::Managed, address).is_some() {
        return true;
    }
    // What is known to be there is so at this moment, and maybe not when it is remembered.
    let now = moment();
    let Some(found) = Found::at(address) else {
        // What a piece began with may be gone, and others in it not.
        let piece = piece_of(address);
        if os::is_mapped(piece) {
            touch(holdings, Kind::ManagedPiece, piece, in_pieces(PIECE), now);
        }
        return true;
    };
    let Found {
        kind, name, units, ..
    } = found;
    let is_known =
        touch(holdings, kind, name, units, now) || holdings.get(Kind::Managed, name).is_some();
    let (Some(function), false) = (function, is_known) else {
        return true;
    };
    let gpu = if found.device > NOWHERE {
        Limited::on(found.device)
    } else {
        anywhere()
    };
    let Some(gpu) = gpu else {
        return true;
    };
    let busy = Busy::on(&gpu);
    let fits = gpu.reserve(&busy, units, function);
    if !fits {
        gpu.charge(units);
    }
    gpu.place().managed.fetch_add(units, Ordering::Relaxed);
    alloc::expect_others();
    remember(&gpu, kind, name, units, now);
    // It may be another thread's, who allocates or frees it at this moment.
    let is_there = settle(holdings, kind, name);
    fits || !is_there
}

/// Looks at all that is mapped; see [`seen`]. False also where that cannot be seen.
fn look(function: Option<&CStr>) -> bool {
    let Some(holdings) = ledger::holdings() else {
        return true;
    };
    let _errno = os::Errno::save();
    let begun = moment();
    let mut fits = true;
    let looked = os::each_mapping_of_itself(|start| fits &= seen(holdings, start, function));
    if looked.is_err() {
        return false;
    }
    for kind in [Kind::ManagedPiece, Kind::Variable] {
        holdings.each(kind, |name, held| {
            if held.other < begun {
                forget(holdings, kind, name, &held);
            }
        });
    }
    fits
}

/// After code was loaded: charges its variables. False if there is no room for them: they are charged as long as they are
/// there. So are those that another thread loads at this moment, which may be what there is no room for.
pub(super) fn code_came(function: &CStr) -> bool {
    look(Some(function))
}

/// Refunds what is there no more.
pub(crate) fn forget_gone() {
    if ANY.load(Ordering::SeqCst) {
        look(None);
    }
}

/// The first GPU that is limited.
pub(super) fn anywhere() -> Option<Limited> {
    (0..device::device_count()).find_map(Limited::on)
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
