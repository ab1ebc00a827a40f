//! What keeps memory when this process has given it back: descriptors, and places in multicast objects. The memory stays charged
//! here until this process ends, since nobody says when the last of them is gone.

use core::ffi::{c_ulonglong, c_void};

use softmig_driver_sys::cuda::{
    CUDA_SUCCESS, CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemGenericAllocationHandle,
    CUmemRangeHandleType, CUresult,
};

use crate::driver::cuda::real;
use crate::driver::cuda_queries;
use crate::ledger::pieces::piece_of;
use crate::ledger::{self, EXPORTED, Holding, Holdings, Kind};

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

/// What is at an address, or around it.
fn at(holdings: &Holdings, address: CUdeviceptr) -> Option<Found> {
    let (mut base, mut length) = (0, 0);
    // SAFETY: there is room for both answers.
    let known =
        unsafe { cuda_queries::cuMemGetAddressRange_v2(&raw mut base, &raw mut length, address) };
    if known != CUDA_SUCCESS {
        base = address;
    }
    let get = |kind, name| Some((kind, name, holdings.get(kind, name)?));
    get(Kind::Address, base)
        .or_else(|| get(Kind::Piece, piece_of(base)))
        .or_else(|| physical(holdings, holdings.get(Kind::Mapping, base)?.other))
}

/// Gives a descriptor to what is at an address.
pub(crate) unsafe fn descriptor(
    handle: *mut c_void,
    address: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    keeping(
        |holdings| at(holdings, address),
        0,
        || unsafe { real::cuMemGetHandleForAddressRange(handle, address, size, kind, flags) },
    )
}

/// Gives physical memory to other processes.
pub(crate) unsafe fn export(
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    keeping(
        |holdings| physical(holdings, handle),
        EXPORTED,
        || unsafe { real::cuMemExportToShareableHandle(shareable, handle, kind, flags) },
    )
}

pub(crate) unsafe fn bind(
    multicast: CUmemGenericAllocationHandle,
    multicast_offset: usize,
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    size: usize,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    keeping(
        |holdings| physical(holdings, handle),
        0,
        || unsafe {
            real::cuMulticastBindMem(multicast, multicast_offset, handle, offset, size, flags)
        },
    )
}

pub(crate) unsafe fn bind_v2(
    multicast: CUmemGenericAllocationHandle,
    device: CUdevice,
    multicast_offset: usize,
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    size: usize,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    keeping(
        |holdings| physical(holdings, handle),
        0,
        || unsafe {
            real::cuMulticastBindMem_v2(
                multicast,
                device,
                multicast_offset,
                handle,
                offset,
                size,
                flags,
            )
        },
    )
}

pub(crate) unsafe fn bind_at(
    multicast: CUmemGenericAllocationHandle,
    multicast_offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    keeping(
        |holdings| at(holdings, address),
        0,
        || unsafe { real::cuMulticastBindAddr(multicast, multicast_offset, address, size, flags) },
    )
}

pub(crate) unsafe fn bind_at_v2(
    multicast: CUmemGenericAllocationHandle,
    device: CUdevice,
    multicast_offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: as above.
    keeping(
        |holdings| at(holdings, address),
        0,
        || unsafe {
            real::cuMulticastBindAddr_v2(multicast, device, multicast_offset, address, size, flags)
        },
    )
}
