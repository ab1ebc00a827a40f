//! Arrays, which have a layout that only the driver knows. How much one takes it says for arrays whose memory comes later
//! (`CUDA_ARRAY3D_DEFERRED_MAPPING`): so a twin of that kind is made first, which takes nothing.

use core::ffi::c_uint;

use softmig_driver_sys::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
    CUDA_ARRAY3D_SPARSE, CUDA_SUCCESS, CUarray, CUdevice, CUmipmappedArray, CUresult,
};
use softmig_region::units;

use crate::driver::cuda::real;
use crate::driver::stream::relaxed;
use crate::driver::{args, context, cuda_queries};
use crate::ledger::{self, Holding, Kind, Limited, here};

/// Arrays have pieces of this size of their own; those of at most half of it share them, in parts of 64 KiB.
const PIECE: u64 = 2 << 20;

/// What arrays take.
fn in_pieces(bytes: u64) -> u32 {
    if bytes <= PIECE / 2 {
        units(bytes)
    } else {
        units(bytes.div_ceil(PIECE).saturating_mul(PIECE))
    }
}

/// The bytes of an array whose twin's requirements cannot be had: each element as large as any.
fn at_most(shape: &CUDA_ARRAY3D_DESCRIPTOR, levels: u64) -> u64 {
    const ELEMENT: u64 = 16;
    let side = |length: usize| (length as u64).max(1);
    let elements = side(shape.Width)
        .saturating_mul(side(shape.Height))
        .saturating_mul(side(shape.Depth));
    // All smaller levels together take less than the largest.
    elements
        .saturating_mul(ELEMENT)
        .saturating_mul(levels.min(2))
}

fn takes_nothing(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0
}

fn requirements(ask: impl FnOnce(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS) -> CUresult) -> Option<u64> {
    let mut answer = core::mem::MaybeUninit::<CUDA_ARRAY_MEMORY_REQUIREMENTS>::zeroed();
    if ask(answer.as_mut_ptr()) != CUDA_SUCCESS {
        return None;
    }
    // SAFETY: plain numbers, all zero before the driver wrote.
    Some(unsafe { answer.assume_init_ref() }.size as u64)
}

/// What an array of this shape takes.
fn size_of_array(shape: &CUDA_ARRAY3D_DESCRIPTOR, device: CUdevice) -> Option<u64> {
    let twin = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: shape.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING,
        ..*shape
    };
    let mut array: CUarray = core::ptr::null_mut();
    relaxed(|| {
        // SAFETY: a description, and room for the answer.
        let made = unsafe { real::cuArray3DCreate_v2(&raw mut array, &raw const twin) };
        if made != CUDA_SUCCESS {
            return None;
        }
        // SAFETY: our own array, and room for the answer.
        let size = requirements(|answer| unsafe {
            cuda_queries::cuArrayGetMemoryRequirements(answer, array, device)
        });
        // SAFETY: our own array.
        let _ = unsafe { real::cuArrayDestroy(array) };
        size
    })
}

/// What a mipmapped array of this shape takes.
fn size_of_mipmap(
    shape: &CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
    device: CUdevice,
) -> Option<u64> {
    let twin = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: shape.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING,
        ..*shape
    };
    let mut array: CUmipmappedArray = core::ptr::null_mut();
    relaxed(|| {
        // SAFETY: a description, and room for the answer.
        let made = unsafe { real::cuMipmappedArrayCreate(&raw mut array, &raw const twin, levels) };
        if made != CUDA_SUCCESS {
            return None;
        }
        // SAFETY: our own array, and room for the answer.
        let size = requirements(|answer| unsafe {
            cuda_queries::cuMipmappedArrayGetMemoryRequirements(answer, array, device)
        });
        // SAFETY: our own array.
        let _ = unsafe { real::cuMipmappedArrayDestroy(array) };
        size
    })
}

/// Remembers an array by its handle.
fn remember(gpu: &Limited, kind: Kind, handle: u64, units: u32) {
    let held = Holding {
        units,
        device: gpu.number(),
        count: 1,
        other: context::current(),
    };
    gpu.holdings().put(kind, handle, held);
}

fn create(
    shape: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    call: impl FnOnce() -> CUresult,
    handle: impl FnOnce() -> CUarray,
) -> CUresult {
    let (Some(shape), Some(gpu)) = (shape.filter(|shape| !takes_nothing(shape)), here()) else {
        return call();
    };
    let size = size_of_array(&shape, gpu.number().into());
    let units = in_pieces(size.unwrap_or_else(|| at_most(&shape, 1)));
    ledger::charged(&gpu, units, c"cuArrayCreate", call, || {
        remember(&gpu, Kind::Array, handle() as u64, units);
    })
}

fn flat(width: usize, height: usize, format: c_uint, channels: c_uint) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: 0,
        Format: format,
        NumChannels: channels,
        Flags: 0,
    }
}

pub(crate) unsafe fn create_v1(
    handle: *mut CUarray,
    description: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let shape = unsafe { args::read(description) };
    // What is looked at here is what the driver gets.
    let description = args::of(shape.as_ref(), description);
    let asked = shape.map(|shape| {
        flat(
            shape.Width as usize,
            shape.Height as usize,
            shape.Format,
            shape.NumChannels,
        )
    });
    create(
        asked,
        // SAFETY: as above.
        || unsafe { real::cuArrayCreate(handle, description) },
        // SAFETY: the driver has just written there.
        || unsafe { handle.read() },
    )
}

pub(crate) unsafe fn create_v2(
    handle: *mut CUarray,
    description: *const CUDA_ARRAY_DESCRIPTOR,
) -> CUresult {
    // SAFETY: as above.
    let shape = unsafe { args::read(description) };
    // What is looked at here is what the driver gets.
    let description = args::of(shape.as_ref(), description);
    let asked = shape.map(|shape| flat(shape.Width, shape.Height, shape.Format, shape.NumChannels));
    create(
        asked,
        // SAFETY: as above.
        || unsafe { real::cuArrayCreate_v2(handle, description) },
        // SAFETY: as above.
        || unsafe { handle.read() },
    )
}

pub(crate) unsafe fn create_3d_v1(
    handle: *mut CUarray,
    description: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: as above.
    let shape = unsafe { args::read(description) };
    // What is looked at here is what the driver gets.
    let description = args::of(shape.as_ref(), description);
    let asked = shape.map(|shape| CUDA_ARRAY3D_DESCRIPTOR {
        Width: shape.Width as usize,
        Height: shape.Height as usize,
        Depth: shape.Depth as usize,
        Format: shape.Format,
        NumChannels: shape.NumChannels,
        Flags: shape.Flags,
    });
    create(
        asked,
        // SAFETY: as above.
        || unsafe { real::cuArray3DCreate(handle, description) },
        // SAFETY: as above.
        || unsafe { handle.read() },
    )
}

pub(crate) unsafe fn create_3d_v2(
    handle: *mut CUarray,
    description: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: as above.
    let shape = unsafe { args::read(description) };
    // What is looked at here is what the driver gets.
    let description = args::of(shape.as_ref(), description);
    create(
        shape,
        // SAFETY: as above.
        || unsafe { real::cuArray3DCreate_v2(handle, description) },
        // SAFETY: as above.
        || unsafe { handle.read() },
    )
}

pub(crate) unsafe fn destroy(array: CUarray) -> CUresult {
    // SAFETY: as above.
    ledger::given_back(Kind::Array, array as u64, || unsafe {
        real::cuArrayDestroy(array)
    })
}

pub(crate) unsafe fn create_mipmapped(
    handle: *mut CUmipmappedArray,
    description: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> CUresult {
    // SAFETY: as above.
    let asked = unsafe { args::read(description) };
    let description = args::of(asked.as_ref(), description);
    // SAFETY: as above.
    let call = || unsafe { real::cuMipmappedArrayCreate(handle, description, levels) };
    let shape = asked.filter(|shape| !takes_nothing(shape));
    let (Some(shape), Some(gpu)) = (shape, here()) else {
        return call();
    };
    let size = size_of_mipmap(&shape, levels, gpu.number().into());
    let units = in_pieces(size.unwrap_or_else(|| at_most(&shape, levels.into())));
    ledger::charged(&gpu, units, c"cuMipmappedArrayCreate", call, || {
        // SAFETY: as above.
        let handle = unsafe { handle.read() };
        remember(&gpu, Kind::Mipmap, handle as u64, units);
    })
}

pub(crate) unsafe fn destroy_mipmapped(array: CUmipmappedArray) -> CUresult {
    // SAFETY: as above.
    ledger::given_back(Kind::Mipmap, array as u64, || unsafe {
        real::cuMipmappedArrayDestroy(array)
    })
}
