//! Arrays, which have a layout that only the driver knows. How much one takes it says for arrays whose memory comes later
//! (`CUDA_ARRAY3D_DEFERRED_MAPPING`): so a twin of that kind is made first, which takes nothing.

use core::ffi::c_uint;

use softmig_driver_sys::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
    CUDA_ARRAY3D_SPARSE, CUDA_SUCCESS, CUarray, CUdevice, CUmipmappedArray, CUresult,
};
use softmig_region::units;

use crate::driver::args::{Given, In, zeroed};
use crate::driver::stream::relaxed;
use crate::driver::{context, cuda_queries};
use crate::ledger::{self, Holding, Kind, LimitedGpu, here};

/// Arrays have pieces of this size of their own; those of at most half of it share them, in parts of 64 KiB.
const PIECE: u64 = 2 << 20;

/// The units of an array.
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

/// The bytes that an array of this shape takes.
fn size_of_array(shape: &CUDA_ARRAY3D_DESCRIPTOR, device: CUdevice) -> Option<u64> {
    let twin = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: shape.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING,
        ..*shape
    };
    let mut array: CUarray = core::ptr::null_mut();
    let mut answer: CUDA_ARRAY_MEMORY_REQUIREMENTS = zeroed();
    relaxed(|| {
        if cuda_queries::cuArray3DCreate_v2(&mut array, &twin) != CUDA_SUCCESS {
            return None;
        }
        let asked = cuda_queries::cuArrayGetMemoryRequirements(&mut answer, array, device);
        let _ = cuda_queries::cuArrayDestroy(array);
        (asked == CUDA_SUCCESS).then_some(answer.size as u64)
    })
}

/// The bytes that a mipmapped array of this shape takes.
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
    let mut answer: CUDA_ARRAY_MEMORY_REQUIREMENTS = zeroed();
    relaxed(|| {
        if cuda_queries::cuMipmappedArrayCreate(&mut array, &twin, levels) != CUDA_SUCCESS {
            return None;
        }
        let asked = cuda_queries::cuMipmappedArrayGetMemoryRequirements(&mut answer, array, device);
        let _ = cuda_queries::cuMipmappedArrayDestroy(array);
        (asked == CUDA_SUCCESS).then_some(answer.size as u64)
    })
}

/// Remembers an array by its handle.
fn remember(gpu: &LimitedGpu, kind: Kind, handle: u64, units: u32) {
    let held = Holding {
        units,
        device: gpu.number(),
        count: 1,
        other: context::current(),
    };
    let _ = gpu.holdings().put(kind, handle, held);
}

/// Makes an array.
pub(crate) fn create<D: Copy + Shape>(
    handle: &Given<CUarray>,
    description: In<D>,
    call: impl Fn() -> CUresult,
) -> CUresult {
    create_as(handle, description.get().map(|it| it.shape()), &call)
}

fn create_as(
    handle: &Given<CUarray>,
    shape: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    call: &dyn Fn() -> CUresult,
) -> CUresult {
    let (Some(shape), Some(gpu)) = (shape.filter(|shape| !takes_nothing(shape)), here()) else {
        return call();
    };
    let size = size_of_array(&shape, gpu.number().into());
    let units = in_pieces(size.unwrap_or_else(|| at_most(&shape, 1)));
    ledger::charged(&gpu, units, c"cuArrayCreate", call, || {
        if let Some(handle) = handle.get() {
            remember(&gpu, Kind::Array, handle as u64, units);
        }
    })
}

/// Makes a mipmapped array.
pub(crate) fn create_mipmapped(
    handle: &Given<CUmipmappedArray>,
    description: In<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let shape = description.get().filter(|shape| !takes_nothing(shape));
    let (Some(shape), Some(gpu)) = (shape, here()) else {
        return call();
    };
    let size = size_of_mipmap(&shape, levels, gpu.number().into());
    let units = in_pieces(size.unwrap_or_else(|| at_most(&shape, levels.into())));
    ledger::charged(&gpu, units, c"cuMipmappedArrayCreate", call, || {
        if let Some(handle) = handle.get() {
            remember(&gpu, Kind::Mipmap, handle as u64, units);
        }
    })
}

/// A description of an array, in any of the driver's forms.
pub(crate) trait Shape {
    /// The same in the form that has all.
    fn shape(&self) -> CUDA_ARRAY3D_DESCRIPTOR;
}

impl Shape for CUDA_ARRAY3D_DESCRIPTOR {
    fn shape(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        *self
    }
}

impl Shape for CUDA_ARRAY3D_DESCRIPTOR_v1 {
    fn shape(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.Width as usize,
            Height: self.Height as usize,
            Depth: self.Depth as usize,
            Format: self.Format,
            NumChannels: self.NumChannels,
            Flags: self.Flags,
        }
    }
}

impl Shape for CUDA_ARRAY_DESCRIPTOR {
    fn shape(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.Width,
            Height: self.Height,
            Depth: 0,
            Format: self.Format,
            NumChannels: self.NumChannels,
            Flags: 0,
        }
    }
}

impl Shape for CUDA_ARRAY_DESCRIPTOR_v1 {
    fn shape(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.Width as usize,
            Height: self.Height as usize,
            Depth: 0,
            Format: self.Format,
            NumChannels: self.NumChannels,
            Flags: 0,
        }
    }
}
