//! Reserve, call, keep or give back: the way of every function that takes memory.
//!
//! Every path by which a program takes device memory goes through [`charged`]. It reserves first, so that the job never
//! holds more than its slice, not even for a moment. Then it asks the driver, and refunds the part that the driver did
//! not give. No lock is held meanwhile, except by a thread that makes or ends a GPU's primary context
//! ([`super::context_lock`]). Memory that is given back is refunded once the driver has it.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

use super::allocations::{Holding, Holdings, Kind};
use super::device::LimitedGpu;
use super::in_progress::Busy;
use super::slot::holdings;

/// Asks the driver for something that takes `units`, if the job may have them. `keep` remembers it.
#[inline]
pub(crate) fn charged(
    gpu: &LimitedGpu,
    units: u32,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
    keep: impl FnOnce(),
) -> CUresult {
    let busy = Busy::on(gpu);
    if !gpu.reserve(&busy, units, function) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    if result == CUDA_SUCCESS {
        keep();
    } else {
        gpu.refund(units);
    }
    result
}

/// Gives memory back. Its entry is taken out before the call, because the driver may give the same name to another
/// thread at once. If the driver refuses, the entry is kept again; else the memory is refunded.
#[inline]
pub(crate) fn given_back(kind: Kind, name: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(holdings) = holdings() else {
        return call();
    };
    let Some(held) = holdings.take(kind, name) else {
        return call();
    };
    let gpu = LimitedGpu::on(held.device.into());
    let _busy = gpu.as_ref().map(Busy::on);
    let result = call();
    if result == CUDA_SUCCESS {
        refund(kind, &held);
    } else {
        holdings.put(kind, name, held);
    }
    result
}

/// Remembers something that the driver has just given. If something is known by that name, it has gone without a word:
/// the driver gives no name twice.
pub(crate) fn keep(gpu: &LimitedGpu, kind: Kind, name: u64, new: Holding) {
    let before = gpu
        .holdings()
        .change(kind, name, |known| (Some(new), known));
    if let Some(before) = before {
        refund(kind, &before);
    }
}

/// In the count of an address: others can have its memory, for as long as they like.
pub(crate) const OUTLIVES: u32 = u32::MAX - 1;

/// The same in the count of references to a piece or a handle, beside their number.
const DESCRIBED: u32 = 1 << 30;

impl Holding {
    /// Whether no reference of this process's is left.
    pub(crate) fn is_over(&self) -> bool {
        self.count & !DESCRIBED == 0
    }

    /// Whether others can have the memory when this process has given it back.
    fn outlives(&self, kind: Kind) -> bool {
        match kind {
            Kind::Address => self.count == OUTLIVES,
            Kind::Piece | Kind::Handle => self.count & DESCRIBED != 0,
            _ => false,
        }
    }
}

/// In the `other` of a handle: the memory is another process's.
pub(crate) const FROM_ELSEWHERE: u64 = 1;
/// Others may have the memory.
pub(crate) const EXPORTED: u64 = 2;

/// Refunds what was charged for something, unless others can have it still.
pub(crate) fn refund(kind: Kind, held: &Holding) {
    if matches!(kind, Kind::Graph | Kind::Kernel | Kind::Stacks) {
        // Nothing was charged for these by their name.
        return;
    }
    let Some(gpu) = LimitedGpu::on(held.device.into()) else {
        return;
    };
    let apart = match kind {
        Kind::Managed | Kind::ManagedPiece | Kind::Variable => Some(&gpu.state().managed),
        Kind::Opened | Kind::External => Some(&gpu.state().elsewhere),
        Kind::Handle if held.other > 0 => Some(&gpu.state().elsewhere),
        _ => None,
    };
    if let Some(apart) = apart {
        apart.fetch_sub(held.units, Ordering::Relaxed);
    }
    if held.outlives(kind) {
        gpu.outlive(held.units);
    } else {
        gpu.refund(held.units);
    }
}

/// Something was given what keeps it when this process has given it back, as another thread may have done since it was known as
/// `before`. `other` is [`EXPORTED`] where the driver may charge other processes with it, else 0.
pub(crate) fn described(holdings: &Holdings, kind: Kind, name: u64, before: &Holding, other: u64) {
    let known = holdings.change(kind, name, |known| {
        let after = known.map(|held| Holding {
            count: match kind {
                Kind::Address => OUTLIVES,
                _ => held.count | DESCRIBED,
            },
            other: held.other.max(other),
            ..held
        });
        (after, known)
    });
    let Some(gpu) = LimitedGpu::on(before.device.into()) else {
        return;
    };
    match known {
        Some(held) if other > 0 && held.other == 0 => {
            let elsewhere = &gpu.state().elsewhere;
            elsewhere.fetch_add(held.units, Ordering::Relaxed);
        }
        Some(_) => {}
        None => {
            gpu.charge(before.units);
            gpu.outlive(before.units);
        }
    }
}

/// One reference less to something that goes with its last.
pub(crate) fn released(kind: Kind, name: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(holdings) = holdings() else {
        return call();
    };
    let Some(held) = drop_reference(holdings, kind, name) else {
        return call();
    };
    let gpu = LimitedGpu::on(held.device.into());
    let _busy = gpu.as_ref().map(Busy::on);
    let result = call();
    settle(holdings, kind, name, held, result);
    result
}

/// Counts a reference less; what was known is returned, with the count that is left.
pub(crate) fn drop_reference(holdings: &Holdings, kind: Kind, name: u64) -> Option<Holding> {
    holdings.change(kind, name, |known| {
        let left = known.map(|held| Holding {
            count: held.count.saturating_sub(1),
            ..held
        });
        (left.filter(|held| !held.is_over()), left)
    })
}

/// After the driver was asked to drop a reference: refunds the last one, or counts it again.
pub(crate) fn settle(holdings: &Holdings, kind: Kind, name: u64, held: Holding, result: CUresult) {
    if result != CUDA_SUCCESS {
        add_reference(holdings, kind, name, held);
    } else if held.is_over() {
        refund(kind, &held);
    }
}

/// Counts a reference more, to what is known or else to `new`; true if it was known.
pub(crate) fn add_reference(holdings: &Holdings, kind: Kind, name: u64, new: Holding) -> bool {
    holdings.change(kind, name, |known| {
        let count = known.map_or(new.count, |held| held.count);
        let count = count.saturating_add(1);
        let held = Holding {
            count,
            ..known.unwrap_or(new)
        };
        (Some(held), known.is_some())
    })
}
