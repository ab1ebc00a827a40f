//! How large an array is.

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::formats::element;

/// The widest one-dimensional array of the devices here.
const WIDEST: usize = 131_072;

/// An array's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Width, height and depth; 0 for a dimension that it has not.
    pub(crate) size: [usize; 3],
    pub(crate) format: CUarray_format,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

impl Shape {
    pub(crate) fn of(asked: &CUDA_ARRAY3D_DESCRIPTOR) -> Shape {
        Shape {
            size: [asked.Width, asked.Height, asked.Depth],
            format: asked.Format,
            channels: asked.NumChannels,
            flags: asked.Flags,
        }
    }

    /// The same as the program would write it.
    pub(crate) fn descriptor(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        let [width, height, depth] = self.size;
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: self.format,
            NumChannels: self.channels,
            Flags: self.flags,
        }
    }

    /// A smaller one: all dimensions but the layers are halved with each level.
    pub(crate) fn level(&self, level: u32) -> Shape {
        let layers = self.has_layers();
        let mut smaller = *self;
        for (dimension, size) in smaller.size.iter_mut().enumerate() {
            if *size > 0 && !(layers && dimension == 2) {
                *size = (*size >> level).max(1);
            }
        }
        smaller
    }

    /// Its bytes, as on an H200: rows of whole blocks, and of a volume whole blocks of planes, too.
    pub(crate) fn bytes(&self) -> Outcome<u64> {
        let [width, height, depth] = self.size.map(|size| size.max(1));
        let volume = self.size[2] > 0 && !self.has_layers();
        let (most_rows, most_planes) = if volume { (16, 8) } else { (128, 1) };
        let rows = height.next_power_of_two().clamp(8, most_rows);
        let planes = depth.next_power_of_two().min(most_planes);
        let bytes = width
            .checked_mul(element(self.format, self.channels)?)
            .and_then(|row| row.checked_next_multiple_of(64))
            .and_then(|row| row.checked_mul(height.checked_next_multiple_of(rows)?))
            .and_then(|plane| plane.checked_mul(depth.checked_next_multiple_of(planes)?));
        Ok(bytes.ok_or(CUDA_ERROR_INVALID_VALUE)? as u64)
    }

    /// Whether its depth is a number of layers.
    fn has_layers(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
    }

    /// The bytes of the first `levels` levels together.
    pub(crate) fn bytes_of_levels(&self, levels: u32) -> Outcome<u64> {
        (0..levels).try_fold(0u64, |bytes, level| {
            bytes
                .checked_add(self.level(level).bytes()?)
                .ok_or(CUDA_ERROR_INVALID_VALUE)
        })
    }

    pub(crate) fn check(&self) -> Outcome {
        element(self.format, self.channels)?;
        let [width, height, depth] = self.size;
        let layered = self.flags & CUDA_ARRAY3D_LAYERED != 0;
        if width == 0 || width > WIDEST || height == 0 && depth != 0 && !layered {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// How many sizes there can be, down to one element.
    pub(crate) fn most_levels(&self) -> u32 {
        let largest = self.size.into_iter().max().unwrap_or(1).max(1);
        largest.ilog2() + 1
    }

    /// Whether its memory is mapped to it later.
    pub(crate) fn is_sparse(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0
    }
}
