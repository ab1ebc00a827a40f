//! `cuMemAlloc` and its like, and pitched memory.

use core::ffi::CStr;

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult};

use super::managed;
use crate::driver::args::Given;
use crate::driver::context;
use crate::ledger::pieces::{PIECE, in_pieces, may_be_others, piece_of};
use crate::ledger::stale::FREED;
use crate::ledger::{self, Ending, Holding, Kind, LimitedGpu, Way, here};

/// Allocates `bytes`. The driver writes the address to `pointer`.
pub(crate) fn alloc<P: Copy + Into<u64>>(
    pointer: &Given<P>,
    bytes: u64,
    function: &CStr,
    call: impl Fn() -> CUresult,
) -> CUresult {
    allocated(&|| pointer.get().map(Into::into), bytes, function, &call)
}

fn allocated(
    address: &dyn Fn() -> Option<u64>,
    bytes: u64,
    function: &CStr,
    call: &dyn Fn() -> CUresult,
) -> CUresult {
    // The driver itself refuses to allocate 0 bytes.
    let Some(gpu) = here().filter(|_| bytes > 0) else {
        return call();
    };
    let units = in_pieces(bytes);
    ledger::charged(&gpu, units, function, call, || {
        if let Some(address) = address() {
            remember(&gpu, address, bytes, units);
        }
    })
}

/// The driver rounds the length of a row up to at most this.
const PITCH: u64 = 512;

/// Allocates `height` rows of `width` bytes.
pub(crate) fn alloc_pitched<P: Copy + Into<u64>>(
    pointer: &Given<P>,
    width: u64,
    height: u64,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let row = width.div_ceil(PITCH).saturating_mul(PITCH);
    alloc(
        pointer,
        row.saturating_mul(height),
        c"cuMemAllocPitch",
        call,
    )
}

fn remember(gpu: &LimitedGpu, address: u64, bytes: u64, units: u32) {
    let new = Holding {
        units,
        device: gpu.number(),
        count: 0,
        other: context::current(),
    };
    if bytes >= PIECE {
        ledger::keep(gpu, Kind::Address, address, new);
        return;
    }
    let charged = ledger::add_reference(gpu.holdings(), Kind::Piece, piece_of(address), new);
    gpu.refund(charged);
}

/// Frees what is at an address.
pub(crate) fn free(address: u64, call: impl Fn() -> CUresult) -> CUresult {
    freed(address, &call)
}

fn freed(address: u64, call: &dyn Fn() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    // An allocation with pieces of its own begins with one.
    let is_large = address.is_multiple_of(PIECE);
    let large = is_large.then(|| Ending::begin(Kind::Address, address, Way::Stays));
    let known = large.filter(Ending::is_known);
    let ending =
        known.unwrap_or_else(|| Ending::begin(Kind::Piece, piece_of(address), Way::OneReference));
    if ending.is_known() || !may_be_others() {
        return ending.around(call);
    }
    match managed::free(holdings, address, call) {
        Ok(result) => result,
        Err(call) => ledger::given_back(Kind::Opened, address, call),
    }
}

/// Frees in the order of a stream. Memory outside pools is freed when the stream comes to it. No call tells when, so it
/// stays charged until the driver no longer knows it ([`crate::ledger::stale`]). A small one's piece is refunded at once.
pub(crate) fn free_later(address: u64, call: impl Fn() -> CUresult) -> CUresult {
    freed_later(address, &call)
}

fn freed_later(address: u64, call: &dyn Fn() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    // An allocation with pieces of its own begins with one. Most memory that is freed here belongs to a pool and is
    // known by no address.
    let may_be = [
        (Kind::Address, address.is_multiple_of(PIECE)),
        (Kind::Managed, may_be_others()),
        (Kind::Opened, may_be_others()),
    ];
    let found = may_be
        .into_iter()
        .filter_map(|(kind, may_be)| may_be.then_some(kind))
        .find_map(|kind| Some((kind, holdings.find(kind, address)?)));
    let Some((kind, known)) = found else {
        return ledger::released(Kind::Piece, piece_of(address), call);
    };
    // The maker of opened memory is charged as well.
    if kind == Kind::Opened || known.held.count == ledger::OUTLIVES {
        return ledger::given_back(kind, address, call);
    }
    let result = call();
    if result == CUDA_SUCCESS {
        holdings.change_known(kind, address, &known, |held| {
            let count = match held.count {
                // It was given a descriptor meanwhile.
                ledger::OUTLIVES => ledger::OUTLIVES,
                _ => FREED,
            };
            (Some(Holding { count, ..held }), ())
        });
    }
    result
}
