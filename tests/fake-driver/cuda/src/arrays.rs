//! Arrays: memory for textures, sized by its format. Nothing ever reads or writes it here.

use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::Outcome;
use crate::array_shape::Shape;
use crate::capture::refuse_while_capturing;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::heap::{Part, Place};
use crate::room::with_room;
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// Arrays and mipmapped arrays.
#[derive(Default)]
pub(crate) struct Arrays {
    arrays: BTreeMap<usize, Array>,
    mipmapped: BTreeMap<usize, Mipmapped>,
}

/// One array.
#[derive(Clone, Copy, Debug)]
struct Array {
    context: usize,
    shape: Shape,
    /// Its memory: none of its own where it is a level, or sparse.
    piece: Option<Part>,
    /// The mipmapped array that it is a level of.
    level_of: Option<usize>,
}

/// A mipmapped array.
#[derive(Clone, Debug)]
struct Mipmapped {
    context: usize,
    /// Of the largest level.
    shape: Shape,
    piece: Option<Part>,
    levels: Vec<usize>,
}

exports! {
    static SYMBOLS;

    /// Makes an array of at most two dimensions, for programs that count in 32 bits.
    fn cuArrayCreate [cuArrayCreate 2000] (out: Out<CUarray>, array: In<CUDA_ARRAY_DESCRIPTOR_v1>) => locked(|driver| {
        driver.contexts.old_current()?;
        let asked = array.get()?;
        let shape = Shape {
            size: [asked.Width as usize, asked.Height as usize, 0],
            format: asked.Format,
            channels: asked.NumChannels,
            flags: 0,
        };
        out.set(handle(create(driver, &shape)?))
    });

    /// Makes an array of at most two dimensions.
    fn cuArrayCreate_v2 [cuArrayCreate 3020] (out: Out<CUarray>, array: In<CUDA_ARRAY_DESCRIPTOR>) => locked(|driver| {
        let asked = array.get()?;
        let shape = Shape {
            size: [asked.Width, asked.Height, 0],
            format: asked.Format,
            channels: asked.NumChannels,
            flags: 0,
        };
        out.set(handle(create(driver, &shape)?))
    });

    /// Makes an array, for programs that count in 32 bits.
    fn cuArray3DCreate [cuArray3DCreate 2000] (out: Out<CUarray>, array: In<CUDA_ARRAY3D_DESCRIPTOR_v1>) =>
        locked(|driver| {
            driver.contexts.old_current()?;
            let asked = array.get()?;
            let shape = Shape {
                size: [asked.Width as usize, asked.Height as usize, asked.Depth as usize],
                format: asked.Format,
                channels: asked.NumChannels,
                flags: asked.Flags,
            };
            out.set(handle(create(driver, &shape)?))
        });

    /// Makes an array.
    fn cuArray3DCreate_v2 [cuArray3DCreate 3020] (out: Out<CUarray>, array: In<CUDA_ARRAY3D_DESCRIPTOR>) =>
        locked(|driver| {
            let shape = Shape::of(&array.get()?);
            out.set(handle(create(driver, &shape)?))
        });

    /// Ends an array. An unknown array answers "destroyed", and a level is left alone, as on an H200.
    fn cuArrayDestroy [cuArrayDestroy 2000] (array: CUarray) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let known = driver.arrays.arrays.get(&(array as usize));
        let array_is = known.copied().ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        if array_is.level_of.is_some() {
            return Ok(());
        }
        driver.arrays.arrays.remove(&(array as usize));
        give_back(driver, array_is.piece);
        Ok(())
    });

    /// How an array was asked for.
    fn cuArray3DGetDescriptor_v2 [cuArray3DGetDescriptor 3020] (
        out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray
    ) => locked(|driver| {
        let known = driver.arrays.arrays.get(&(array as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        out.set(known.shape.descriptor())
    });

    /// The memory to map to an array that was made without.
    fn cuArrayGetMemoryRequirements [cuArrayGetMemoryRequirements 11060] (
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice
    ) => locked(|driver| {
        driver.device(device)?;
        let known = driver.arrays.arrays.get(&(array as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        out.set(requirements(&known.shape, known.shape.bytes()?)?)
    });

    /// The memory to map to a mipmapped array that was made without.
    fn cuMipmappedArrayGetMemoryRequirements [cuMipmappedArrayGetMemoryRequirements 11060] (
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUmipmappedArray, device: CUdevice
    ) => locked(|driver| {
        driver.device(device)?;
        let known = driver.arrays.mipmapped.get(&(array as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let levels = u32::try_from(known.levels.len()).unwrap_or(u32::MAX);
        out.set(requirements(&known.shape, known.shape.bytes_of_levels(levels)?)?)
    });

    /// Makes an array that comes in sizes, each half the one before.
    fn cuMipmappedArrayCreate [cuMipmappedArrayCreate 5000] (
        out: Out<CUmipmappedArray>, array: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: u32
    ) => locked(|driver| {
        let shape = Shape::of(&array.get()?);
        out.set(handle(create_mipmapped(driver, &shape, levels)?))
    });

    /// One size of it.
    fn cuMipmappedArrayGetLevel [cuMipmappedArrayGetLevel 5000] (
        out: Out<CUarray>, array: CUmipmappedArray, level: u32
    ) => locked(|driver| {
        let known = driver.arrays.mipmapped.get(&(array as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let level = known.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(handle(*level))
    });

    /// Ends it.
    fn cuMipmappedArrayDestroy [cuMipmappedArrayDestroy 5000] (array: CUmipmappedArray) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let known = driver.arrays.mipmapped.remove(&(array as usize)).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        for level in known.levels {
            driver.arrays.arrays.remove(&level);
        }
        give_back(driver, known.piece);
        Ok(())
    });
}

fn create(driver: &mut Driver, shape: &Shape) -> Outcome<usize> {
    refuse_while_capturing(driver)?;
    let (context, _) = driver.contexts.current()?;
    shape.check()?;
    let piece = take(driver, shape, shape.bytes()?)?;
    Ok(driver.arrays.enter(Array {
        context,
        shape: *shape,
        piece,
        level_of: None,
    }))
}

fn create_mipmapped(driver: &mut Driver, shape: &Shape, levels: u32) -> Outcome<usize> {
    refuse_while_capturing(driver)?;
    let (context, _) = driver.contexts.current()?;
    shape.check()?;
    if levels == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // More than there can be are as many as there can be.
    let levels = levels.min(shape.most_levels());
    let piece = take(driver, shape, shape.bytes_of_levels(levels)?)?;
    let number = new_handle();
    let level = |level| Array {
        context,
        shape: shape.level(level),
        piece: None,
        level_of: Some(number),
    };
    let levels = (0..levels)
        .map(|number| driver.arrays.enter(level(number)))
        .collect();
    driver.arrays.mipmapped.insert(
        number,
        Mipmapped {
            context,
            shape: *shape,
            piece,
            levels,
        },
    );
    Ok(number)
}

/// Where memory for an array begins at multiples of.
const PAGE: u64 = 64 << 10;

fn requirements(shape: &Shape, bytes: u64) -> Outcome<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
    if shape.flags & CUDA_ARRAY3D_DEFERRED_MAPPING == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let size = bytes
        .checked_next_multiple_of(PAGE)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: size as usize,
        alignment: PAGE as usize,
        reserved: [0; 4],
    })
}

fn take(driver: &mut Driver, shape: &Shape, bytes: u64) -> Outcome<Option<Part>> {
    if shape.is_sparse() {
        return Ok(None);
    }
    let (context, described) = driver.contexts.current()?;
    let place = Place {
        context,
        device: described.device,
        kind: Kind::Array,
        low: false,
    };
    with_room(driver, |driver| {
        Ok(Some(driver.heap.take(driver.node, place, bytes)?))
    })
}

fn give_back(driver: &mut Driver, piece: Option<Part>) {
    if let Some(piece) = piece {
        driver.heap.give_back(driver.node, piece);
    }
}

/// Ends the arrays of a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    let mut pieces = Vec::new();
    driver.arrays.arrays.retain(|_, array| {
        let stays = array.context != context;
        pieces.extend(array.piece.filter(|_| !stays));
        stays
    });
    driver.arrays.mipmapped.retain(|_, array| {
        let stays = array.context != context;
        pieces.extend(array.piece.filter(|_| !stays));
        stays
    });
    for piece in pieces {
        driver.heap.give_back(driver.node, piece);
    }
}

impl Arrays {
    fn enter(&mut self, array: Array) -> usize {
        let number = new_handle();
        self.arrays.insert(number, array);
        number
    }
}
