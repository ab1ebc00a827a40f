//! Reserve, call, keep or give back: the way of every function that takes memory.
//!
//! Every path by which a program takes device memory goes through [`charged`]. It reserves first, so that the job never
//! holds more than its slice, not even for a moment. Then it asks the driver, and refunds the part that the driver did
//! not give. No lock is held meanwhile, except by a thread that makes or ends a GPU's primary context
//! ([`super::context_lock`]). Memory that is given back is refunded once the driver has it.

use core::ffi::CStr;

use softmig_driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

use super::allocations::{Holding, Holdings, Kind, Known};
use super::device::LimitedGpu;
use super::in_progress::CallGuard;
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
    let guard = CallGuard::on(gpu);
    if !gpu.reserve(&guard, units, function) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    if result == CUDA_SUCCESS {
        keep();
    } else {
        gpu.refund(units);
    }
    if result == CUDA_ERROR_OUT_OF_MEMORY {
        gpu.note_missing(units, function);
    }
    result
}

/// Gives back memory that no descriptor can keep.
#[inline]
pub(crate) fn given_back(kind: Kind, name: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    Ending::begin(kind, name, Way::TakenOut).around(call)
}

/// Gives back one reference to a handle or a piece, which goes with its last.
#[inline]
pub(crate) fn released(kind: Kind, name: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    Ending::begin(kind, name, Way::OneReference).around(call)
}

/// The treatment of the entry of something that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is taken out before the call, because the driver may give the same name to another thread at once. If the driver
    /// refuses, it is kept again.
    TakenOut,
    /// It stays until the driver has the memory: another thread may give the memory a descriptor meanwhile, which keeps it.
    Stays,
    /// The same, and there is one reference less.
    OneReference,
}

/// Something that the driver is asked to end, or a reference to it.
pub(crate) struct Ending {
    kind: Kind,
    name: u64,
    way: Way,
    known: Option<(&'static Holdings, Known)>,
    _guard: Option<CallGuard>,
}

impl Ending {
    #[inline(never)]
    pub(crate) fn begin(kind: Kind, name: u64, way: Way) -> Self {
        let find = |holdings: &'static Holdings| {
            let known = match way {
                Way::TakenOut => holdings.take_out(kind, name),
                Way::Stays | Way::OneReference => holdings.find(kind, name),
            };
            Some((holdings, known?))
        };
        let known = holdings().and_then(find);
        let gpu = known.and_then(|(_, known)| LimitedGpu::on(known.held.device.into()));
        Self {
            kind,
            name,
            way,
            known,
            _guard: gpu.as_ref().map(CallGuard::on),
        }
    }

    /// Whether there is such a thing.
    pub(crate) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Calls the driver, which ends it.
    #[inline]
    pub(crate) fn around(self, call: impl FnOnce() -> CUresult) -> CUresult {
        let result = call();
        self.ended(result);
        result
    }

    /// The driver has answered. If the entry stayed, the name may be another thread's by now: then [`keep`] refunds, and not
    /// this.
    #[inline(never)]
    fn ended(self, result: CUresult) {
        let Some((holdings, known)) = self.known else {
            return;
        };
        let (kind, name) = (self.kind, self.name);
        let over = match (self.way, result) {
            (Way::TakenOut, CUDA_SUCCESS) => Some(known.held),
            (Way::TakenOut, _) => {
                let _ = holdings.put(kind, name, known.held);
                None
            }
            (way, CUDA_SUCCESS) => {
                let over = holdings.change_known(kind, name, &known, |held| {
                    let left = match way {
                        Way::OneReference => held.without_one(),
                        _ => None,
                    };
                    (left, left.is_none().then_some(held))
                });
                over.flatten()
            }
            _ => None,
        };
        if let Some(held) = over {
            refund(kind, &held);
        }
    }
}

/// Remembers something that the driver has just given. If something is known by that name, it has gone without a word:
/// the driver gives no name twice.
pub(crate) fn keep(gpu: &LimitedGpu, kind: Kind, name: u64, new: Holding) {
    if let Some(before) = gpu.holdings().put(kind, name, new) {
        refund(kind, &before);
    }
}

/// In the count of an address: others can have its memory, for as long as they like.
pub(crate) const OUTLIVES: u32 = u32::MAX - 1;

/// The same in the count of references to a piece or a handle, beside their number.
pub(crate) const DESCRIBED: u32 = 1 << 30;

impl Holding {
    /// The same with one reference of this process's less; `None` for the last.
    fn without_one(self) -> Option<Self> {
        let references = self.count & !DESCRIBED;
        (references > 1).then(|| Self {
            count: self.count.saturating_sub(1),
            ..self
        })
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
    match kind {
        Kind::Managed | Kind::ManagedPiece | Kind::Variable => {
            gpu.count_apart_no_more(|state| &state.managed, held.units);
        }
        Kind::Opened | Kind::External => {
            gpu.count_elsewhere_no_more(held.units);
        }
        Kind::Handle if held.other > 0 => {
            gpu.count_elsewhere_no_more(held.units);
        }
        _ => {}
    }
    if held.outlives(kind) {
        gpu.orphan(held.units);
    } else {
        gpu.refund(held.units);
    }
}

/// Something was given what keeps it when this process has given it back, as another thread may have done since it was known.
/// `other` is [`EXPORTED`] where the driver may charge other processes with it, else 0.
pub(crate) fn described(holdings: &Holdings, kind: Kind, name: u64, known: &Known, other: u64) {
    let before = holdings.change_known(kind, name, known, |held| {
        let after = Holding {
            count: match kind {
                Kind::Address => OUTLIVES,
                _ => held.count | DESCRIBED,
            },
            // Memory of another process stays so.
            other: if held.other == 0 { other } else { held.other },
            ..held
        };
        (Some(after), held)
    });
    let Some(gpu) = LimitedGpu::on(known.held.device.into()) else {
        return;
    };
    match before {
        Some(held) => {
            if !held.outlives(kind) {
                gpu.export(held.units);
            }
            if other > 0 && held.other == 0 {
                gpu.count_elsewhere(held.units);
            }
        }
        None => {
            gpu.charge(known.held.units);
            gpu.export(known.held.units);
            gpu.orphan(known.held.units);
        }
    }
}

/// One reference less to something that the driver has been asked about already. Refunds it with the last one.
pub(crate) fn drop_reference(holdings: &Holdings, kind: Kind, name: u64) {
    let over = holdings.change(kind, name, |known| {
        let left = known.and_then(Holding::without_one);
        (left, known.filter(|_| left.is_none()))
    });
    if let Some(held) = over {
        refund(kind, &held);
    }
}

/// One reference more to what is known, or else the first to `new`. Returns how many of the units of `new` are charged already.
pub(crate) fn add_reference(holdings: &Holdings, kind: Kind, name: u64, new: Holding) -> u32 {
    holdings.change(kind, name, |known| {
        let before = known.map_or(0, |held| held.units.min(new.units));
        let held = known.unwrap_or(new);
        let held = Holding {
            count: held.count.saturating_add(1),
            units: held.units.max(new.units),
            // The context of the one before may be ending.
            other: new.other,
            ..held
        };
        (Some(held), before)
    })
}
