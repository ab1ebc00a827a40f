//! `cuMemAlloc` and its like, and pitched memory.

use core::ffi::{CStr, c_uint};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};

use super::managed;
use crate::driver::context;
use crate::driver::cuda::real;
use crate::ledger::pieces::{PIECE, PIECE_UNITS, in_pieces, may_be_others, piece_of};
use crate::ledger::stale::FREED;
use crate::ledger::{self, Busy, Holding, Kind, Limited, here};

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
    if !may_be_others() {
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

pub(crate) unsafe fn free_v1(pointer: CUdeviceptr_v1) -> CUresult {
    // SAFETY: as above.
    free(pointer.into(), || unsafe { real::cuMemFree(pointer) })
}

pub(crate) unsafe fn free_v2(pointer: CUdeviceptr) -> CUresult {
    // SAFETY: as above.
    free(pointer, || unsafe { real::cuMemFree_v2(pointer) })
}

/// Frees in the order of a stream. Memory that is no pool's goes when the stream comes to it, which nobody tells: it stays
/// charged until the driver knows it no more ([`crate::ledger::stale`]). A small one's piece is refunded at once.
fn free_later(address: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    // What has pieces of its own begins with one; most of what is freed here is a pool's, and known by no address.
    let may_be = [
        (Kind::Address, address.is_multiple_of(PIECE)),
        (Kind::Managed, may_be_others()),
        (Kind::Opened, may_be_others()),
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
