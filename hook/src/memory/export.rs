//! References that keep memory when this process has given it back: descriptors, other processes, and places in multicast objects.
//! No call tells when the last of them is gone: see [`crate::ledger::orphans`].

use softmig_driver_sys::cuda::{
    CUDA_SUCCESS, CUdeviceptr, CUipcMemHandle, CUmemGenericAllocationHandle, CUresult,
};

use crate::driver::args::Given;
use crate::driver::{cuda_queries, nvml_queries};
use crate::identity::gate;
use crate::ledger::pieces::piece_of;
use crate::ledger::{self, Holdings, Kind, Known, LimitedGpu};

/// Something that is held: its kind and name.
type Found = (Kind, u64, Known);

/// Calls what keeps something that is held. It is looked for before the call, because another thread may give it back meanwhile, and
/// after it, because another thread may have been given its name since. Which of the two is kept is not known then, so both count.
fn keeping(
    find: impl Fn(&Holdings) -> Option<Found>,
    other: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(holdings) = ledger::holdings() else {
        return call();
    };
    let before = find(holdings);
    let result = call();
    if result == CUDA_SUCCESS {
        kept(holdings, before, find(holdings), other);
    }
    result
}

#[inline(never)]
fn kept(holdings: &Holdings, before: Option<Found>, after: Option<Found>, other: u64) {
    let is_same = |now: &Found| {
        let same =
            |(kind, name, known): &Found| (*kind, *name) == (now.0, now.1) && known.is(&now.2);
        before.as_ref().is_some_and(same)
    };
    let changed = after.filter(|now| !is_same(now));
    for (kind, name, known) in [before, changed].into_iter().flatten() {
        ledger::described(holdings, kind, name, &known, other);
    }
}

/// Physical memory by its handle.
fn physical(holdings: &Holdings, handle: CUmemGenericAllocationHandle) -> Option<Found> {
    Some((Kind::Handle, handle, holdings.find(Kind::Handle, handle)?))
}

/// The memory at an address, or around it.
fn at(holdings: &Holdings, address: CUdeviceptr) -> Option<Found> {
    let (mut base, mut length) = (0, 0);
    let known = cuda_queries::cuMemGetAddressRange_v2(&mut base, &mut length, address);
    if known != CUDA_SUCCESS {
        base = address;
    }
    let find = |kind, name| Some((kind, name, holdings.find(kind, name)?));
    find(Kind::Address, base)
        .or_else(|| find(Kind::Piece, piece_of(base)))
        .or_else(|| physical(holdings, holdings.get(Kind::Mapping, base)?.other))
}

/// Calls what keeps the memory at an address: it gives it a descriptor, or binds it to a multicast object.
pub(crate) fn address_outlives(address: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    keeping(|holdings| at(holdings, address), 0, call)
}

/// Calls what gives other processes a handle of the memory at an address.
pub(crate) fn share(
    handle: &Given<CUipcMemHandle>,
    address: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // Else whoever opens it is charged.
    if !gate::is_limited_process() || !nvml_queries::lists_all() {
        return call();
    }
    let result = address_outlives(address, call);
    if result == CUDA_SUCCESS
        && let Some(handle) = handle.get()
        && let Some((_, _, known)) = ledger::holdings().and_then(|holdings| at(holdings, address))
        && let Some(gpu) = LimitedGpu::on(known.held.device.into())
    {
        gpu.share(name(&handle));
    }
    result
}

/// A name of shared memory, which is not 0: FNV-1a of the bytes of its handle.
pub(super) fn name(handle: &CUipcMemHandle) -> u64 {
    let next = |name: u64, byte: &_| (name ^ u64::from(*byte as u8)).wrapping_mul(0x0100_0000_01b3);
    handle
        .reserved
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, next)
        .max(1)
}

/// The same with physical memory. `other` is [`EXPORTED`](ledger::EXPORTED) where other processes get it, else 0.
pub(crate) fn handle_outlives(
    handle: CUmemGenericAllocationHandle,
    other: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    keeping(|holdings| physical(holdings, handle), other, call)
}
