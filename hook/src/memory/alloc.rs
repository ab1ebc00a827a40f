//! `cuMemAlloc` and its like, and pitched memory.

use core::ffi::{CStr, c_uint};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use softmig_region::{UNIT, units};

use core::sync::atomic::{AtomicBool, Ordering};

use super::managed;
use crate::driver::cuda::real;
use crate::driver::{context, cuda_queries};
use crate::ledger::{self, Busy, Holding, Kind, Limited, here};

/// The driver takes memory from the GPU in pieces of this size. Smaller allocations share pieces, and none lies in two;
/// larger ones have pieces of their own (docs/gpu-notes.md).
pub(super) const PIECE: u64 = 2 << 20;

/// What a piece costs.
const PIECE_UNITS: u32 = (PIECE / UNIT) as u32;

/// The pieces that so many bytes take when nothing is shared, in units.
pub(super) fn in_pieces(bytes: u64) -> u32 {
    units(bytes.div_ceil(PIECE).saturating_mul(PIECE))
}

/// Allocates `bytes`, whose address `address` tells after `call`.
fn allocate(
    bytes: u64,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
    address: impl FnOnce() -> u64,
) -> CUresult {
    // The driver refuses nothing, too.
    let Some(gpu) = here().filter(|_| bytes > 0) else {
        return call();
    };
    let units = in_pieces(bytes);
    ledger::charged(&gpu, units, function, call, || {
        remember(&gpu, address(), bytes, units);
    })
}

fn remember(gpu: &Limited, address: u64, bytes: u64, units: u32) {
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
    if ledger::add_reference(gpu.holdings(), Kind::Piece, piece_of(address), new) {
        gpu.refund(PIECE_UNITS);
    }
}

pub(super) fn piece_of(address: u64) -> u64 {
    address & !(PIECE.wrapping_sub(1))
}

/// Frees what is at an address.
fn free(address: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    // What has pieces of its own begins with one.
    let is_small = !address.is_multiple_of(PIECE);
    if !is_small && holdings.get(Kind::Address, address).is_some() {
        return ledger::given_back(Kind::Address, address, call);
    }
    if let Some(held) = ledger::drop_reference(holdings, Kind::Piece, piece_of(address)) {
        return piece_freed(address, held, call);
    }
    if !ANY_OTHERS.load(Ordering::Relaxed) {
        return call();
    }
    match managed::free(holdings, address, call) {
        Ok(result) => result,
        Err(call) => ledger::given_back(Kind::Opened, address, call),
    }
}

/// Frees one of the allocations in a piece.
fn piece_freed(address: u64, held: Holding, call: impl FnOnce() -> CUresult) -> CUresult {
    let gpu = Limited::on(held.device.into());
    let _busy = gpu.as_ref().map(Busy::on);
    let result = call();
    if let Some(holdings) = ledger::holdings() {
        ledger::settle(holdings, Kind::Piece, piece_of(address), held, result);
    }
    result
}

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr_v1, bytes: c_uint) -> CUresult {
    allocate(
        bytes.into(),
        c"cuMemAlloc",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuMemAlloc(pointer, bytes) },
        // SAFETY: the driver has just written there.
        || unsafe { pointer.read() }.into(),
    )
}

pub(crate) unsafe fn alloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    allocate(
        bytes as u64,
        c"cuMemAlloc",
        // SAFETY: as above.
        || unsafe { real::cuMemAlloc_v2(pointer, bytes) },
        // SAFETY: as above.
        || unsafe { pointer.read() },
    )
}

/// The rows of pitched memory are as long as the GPU likes them: the pitch is at most the width rounded up to this.
const PITCH: u64 = 512;

fn pitched(width: u64, height: u64) -> u64 {
    width
        .div_ceil(PITCH)
        .saturating_mul(PITCH)
        .saturating_mul(height)
}

pub(crate) unsafe fn alloc_pitch(
    pointer: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element_size: c_uint,
) -> CUresult {
    allocate(
        pitched(width.into(), height.into()),
        c"cuMemAllocPitch",
        // SAFETY: as above.
        || unsafe { real::cuMemAllocPitch(pointer, pitch, width, height, element_size) },
        // SAFETY: as above.
        || unsafe { pointer.read() }.into(),
    )
}

pub(crate) unsafe fn alloc_pitch_v2(
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element_size: c_uint,
) -> CUresult {
    allocate(
        pitched(width as u64, height as u64),
        c"cuMemAllocPitch",
        // SAFETY: as above.
        || unsafe { real::cuMemAllocPitch_v2(pointer, pitch, width, height, element_size) },
        // SAFETY: as above.
        || unsafe { pointer.read() },
    )
}

/// Whether this process ever had managed memory, or another process's.
static ANY_OTHERS: AtomicBool = AtomicBool::new(false);

/// There is such memory.
pub(super) fn expect_others() {
    ANY_OTHERS.store(true, Ordering::Relaxed);
}

pub(crate) unsafe fn free_v1(pointer: CUdeviceptr_v1) -> CUresult {
    // SAFETY: as above.
    free(pointer.into(), || unsafe { real::cuMemFree(pointer) })
}

pub(crate) unsafe fn free_v2(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: as above.
    free(pointer, || unsafe { real::cuMemFree_v2(pointer) })
}

/// Frees in the order of a stream. Memory that is no pool's goes when the stream comes to it, which nobody tells: it stays
/// charged until the driver knows it no more ([`forget_freed`]). A small one's piece is refunded at once.
fn free_later(address: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    // What has pieces of its own begins with one; most of what is freed here is a pool's, and known by no address.
    let may_be = [
        (Kind::Address, address.is_multiple_of(PIECE)),
        (Kind::Managed, ANY_OTHERS.load(Ordering::Relaxed)),
        (Kind::Opened, ANY_OTHERS.load(Ordering::Relaxed)),
    ];
    let large = may_be
        .into_iter()
        .filter_map(|(kind, may_be)| may_be.then_some(kind))
        .find(|&kind| holdings.get(kind, address).is_some());
    let Some(kind) = large else {
        return match ledger::drop_reference(holdings, Kind::Piece, piece_of(address)) {
            Some(held) => piece_freed(address, held, call),
            None => call(),
        };
    };
    if kind == Kind::Opened {
        // Its maker is charged as well.
        return ledger::given_back(kind, address, call);
    }
    if holdings
        .get(kind, address)
        .is_some_and(|held| held.count == ledger::OUTLIVES)
    {
        return ledger::given_back(kind, address, call);
    }
    let result = call();
    if result == CUDA_SUCCESS {
        holdings.change(kind, address, |known| {
            let known = known.map(|held| Holding {
                count: match held.count {
                    // It was given a descriptor meanwhile.
                    ledger::OUTLIVES => ledger::OUTLIVES,
                    _ => FREED,
                },
                ..held
            });
            (known, ())
        });
    }
    result
}

/// In the count of an address: the program has freed it.
const FREED: u32 = u32::MAX;

/// Refunds what was freed in the order of a stream that has come to it.
pub(crate) fn forget_freed(gpu: &Limited) {
    for kind in [Kind::Address, Kind::Managed] {
        gpu.holdings().each(kind, |address, held| {
            if held.count != FREED || held.device != gpu.number() {
                return;
            }
            let (mut base, mut size) = (0, 0);
            // SAFETY: there is room for both answers.
            let known = unsafe {
                cuda_queries::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address)
            };
            if known != CUDA_SUCCESS
                && let Some(held) = gpu.holdings().take(kind, address)
            {
                ledger::refund(kind, &held);
            }
        });
    }
    managed::forget_gone();
}

pub(crate) unsafe fn free_async(pointer: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: as above.
    free_later(pointer, || unsafe { real::cuMemFreeAsync(pointer, stream) })
}

pub(crate) unsafe fn free_async_ptsz(pointer: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: as above.
    free_later(pointer, || unsafe {
        real::cuMemFreeAsync_ptsz(pointer, stream)
    })
}
