//! References that keep memory when this process has given it back: descriptors, and places in multicast objects. The
//! memory stays charged here until this process ends, since no call tells when the last of them is gone.

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUdeviceptr, CUmemGenericAllocationHandle, CUresult};

use crate::driver::cuda_queries;
use crate::ledger::pieces::piece_of;
use crate::ledger::{self, Holding, Holdings, Kind};

/// Something that is held: its kind, name, and what is known of it.
type Found = (Kind, u64, Holding);

/// Calls what keeps something that is held. It is looked for before the call: another thread may give it back meanwhile.
fn keeping(
    find: impl FnOnce(&Holdings) -> Option<Found>,
    other: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let found = ledger::holdings().and_then(|holdings| Some((holdings, find(holdings)?)));
    let result = call();
    if let (Some((holdings, (kind, name, before))), CUDA_SUCCESS) = (found, result) {
        ledger::described(holdings, kind, name, &before, other);
    }
    result
}

/// Physical memory by its handle.
fn physical(holdings: &Holdings, handle: CUmemGenericAllocationHandle) -> Option<Found> {
    Some((Kind::Handle, handle, holdings.get(Kind::Handle, handle)?))
}

/// The memory at an address, or around it.
fn at(holdings: &Holdings, address: CUdeviceptr) -> Option<Found> {
    let (mut base, mut length) = (0, 0);
    let known = cuda_queries::cuMemGetAddressRange_v2(&mut base, &mut length, address);
    if known != CUDA_SUCCESS {
        base = address;
    }
    let get = |kind, name| Some((kind, name, holdings.get(kind, name)?));
    get(Kind::Address, base)
        .or_else(|| get(Kind::Piece, piece_of(base)))
        .or_else(|| physical(holdings, holdings.get(Kind::Mapping, base)?.other))
}

/// Calls what keeps the memory at an address: it gives it a descriptor, or binds it to a multicast object.
pub(crate) fn address_outlives(address: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    keeping(|holdings| at(holdings, address), 0, call)
}

/// The same with physical memory. `other` is [`EXPORTED`](ledger::EXPORTED) where other processes get it, else 0.
pub(crate) fn handle_outlives(
    handle: CUmemGenericAllocationHandle,
    other: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    keeping(|holdings| physical(holdings, handle), other, call)
}
