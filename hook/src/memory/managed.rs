//! Managed memory, which host and device share: allocations, and variables of code (`__managed__`), which no call
//! names.
//!
//! An allocation or variable as large as a piece or larger has a mapping of its own in this process; smaller ones share
//! mappings of a piece (research/gpu-memory.md). So after code was loaded, the kernel's list shows all mappings, and the
//! driver tells whether an unknown one is managed memory. A charged entry without a mapping is gone
//! ([`crate::ledger::mappings`]).

use core::ffi::CStr;

use softmig_driver_sys::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUresult};

use crate::driver::args::Given;
use crate::driver::{context, device};
use crate::ledger::mappings::{self, Found, NOWHERE, moment, remember, settle};
use crate::ledger::pieces::{PIECE, expect_others, in_pieces, piece_of};
use crate::ledger::{self, CallGuard, Holding, Holdings, Kind, LimitedGpu, here};

/// All of it is charged, as if it were on the GPU: it may come there at any time, without a call.
pub(crate) fn alloc(
    pointer: &Given<CUdeviceptr>,
    bytes: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(gpu) = here().filter(|_| bytes > 0) else {
        return call();
    };
    let units = in_pieces(bytes);
    let guard = CallGuard::on(&gpu);
    if !gpu.reserve(&guard, units, c"cuMemAllocManaged") {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    expect_others();
    // Before the memory is there, so that it is never taken for something without a name.
    gpu.count_apart(|state| &state.managed, units);
    let result = call();
    if result != CUDA_SUCCESS {
        gpu.count_apart_no_more(|state| &state.managed, units);
        gpu.refund(units);
        return result;
    }
    let Some(address) = pointer.get() else {
        return result;
    };
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
    let gpu = LimitedGpu::on(held.device.into());
    let _guard = gpu.as_ref().map(CallGuard::on);
    let result = match kind {
        Kind::Variable => ledger::given_back(Kind::Managed, address, call),
        _ => call(),
    };
    // A piece goes with the last that is in it. Memory mapped alone may have been taken for a variable while it went.
    settle(holdings, kind, name);
    Ok(result)
}

/// Charges managed memory at an address, if it is there and not charged yet. False if it does not fit: it is charged even
/// then, until it is freed.
pub(super) fn charge(address: u64, function: &CStr) -> bool {
    ledger::holdings().is_none_or(|holdings| seen(holdings, address, function))
}

/// Charges the driver's memory at an address, which `function` may have brought. False if it does not fit.
fn seen(holdings: &Holdings, address: u64, function: &CStr) -> bool {
    let Some((found, now)) = mappings::noticed(holdings, address) else {
        return true;
    };
    let Found {
        kind, name, units, ..
    } = found;
    let gpu = if found.device > NOWHERE {
        LimitedGpu::on(found.device)
    } else {
        anywhere()
    };
    let Some(gpu) = gpu else {
        return true;
    };
    let guard = CallGuard::on(&gpu);
    let fits = gpu.reserve(&guard, units, function);
    if !fits {
        gpu.charge(units);
    }
    gpu.count_apart(|state| &state.managed, units);
    expect_others();
    remember(&gpu, kind, name, units, now);
    // Another thread may be allocating or freeing it at this moment.
    let is_there = settle(holdings, kind, name);
    fits || !is_there
}

/// Charges the variables of code that was loaded. False if they do not fit: they are charged even then, until the code is
/// unloaded. Variables of code that another thread loads at this moment are charged too, and may be the ones
/// that do not fit.
pub(super) fn code_came(function: &CStr) -> bool {
    let mut fits = true;
    mappings::look(&mut |holdings, start| fits &= seen(holdings, start, function)) && fits
}

/// The first GPU that is limited.
pub(super) fn anywhere() -> Option<LimitedGpu> {
    (0..device::device_count()).find_map(LimitedGpu::on)
}
