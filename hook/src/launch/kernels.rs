//! Launches of kernels. A launch may take GPU memory for stacks, and it takes the job's GPU time.

use core::ffi::{CStr, c_int, c_uint};

use softmig_driver_sys::cuda::{
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream,
};

use crate::driver::args::{In, Out};
use crate::driver::stream::{DEFAULT, Stream};
use crate::memory::stacks;
use crate::pacing::{self, UNKNOWN_NS, Work};

/// Launches a kernel whose stacks fit, when the job may have the GPU.
#[inline]
pub(crate) fn launch(
    function: CUfunction,
    grid: Grid,
    stream: Stream,
    name: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if !stacks::fit(function, stream.handle, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pacing::paced(stream, || grid.work(function), call)
}

/// The same where a grid and a stream are described. `stream` makes a stream of its handle.
#[inline]
pub(crate) fn launch_ex(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    stream: impl FnOnce(CUstream) -> Stream,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let (grid, handle) = Grid::described(config);
    launch(function, grid, stream(handle), c"cuLaunchKernelEx", call)
}

/// Launches kernels on several GPUs at once.
pub(crate) fn launch_together(
    list: Out<CUDA_LAUNCH_PARAMS>,
    count: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let count = count as usize;
    let part = |at: usize| (at < count).then(|| list.input().at(at))?;
    for params in (0..count).map_while(part) {
        let name = c"cuLaunchCooperativeKernelMultiDevice";
        if !stacks::fit(params.function, params.hStream, name) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    let work = |at| {
        let params = part(at)?;
        let grid = Grid::new(params.gridDimX, params.gridDimY, params.gridDimZ);
        Some((Stream::plain(params.hStream), grid.work(params.function)))
    };
    pacing::paced_together(&work, call)
}

/// The grid of a launch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Grid {
    blocks: u64,
    /// It may begin before what was launched before it has ended.
    is_chained: bool,
}

impl Grid {
    /// A grid of this number of blocks in each direction.
    #[inline]
    pub(crate) fn new(x: c_uint, y: c_uint, z: c_uint) -> Self {
        Self {
            blocks: u64::from(x).wrapping_mul(y.into()).wrapping_mul(z.into()),
            is_chained: false,
        }
    }

    /// A grid in two dimensions.
    #[inline]
    pub(crate) fn flat(width: c_int, height: c_int) -> Self {
        Self::new(width.cast_unsigned(), height.cast_unsigned(), 1)
    }

    /// The grid and the stream of a launch that is described.
    #[inline]
    fn described(config: In<CUlaunchConfig>) -> (Self, CUstream) {
        let Some(launch) = config.get() else {
            return (Self::default(), DEFAULT);
        };
        let mut grid = Self::new(launch.gridDimX, launch.gridDimY, launch.gridDimZ);
        let attributes = config.behind(|launch| launch.attrs.cast_const());
        for attribute in (0..launch.numAttrs as usize).map_while(|at| attributes.at(at)) {
            grid.is_chained |=
                attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        }
        (grid, launch.hStream)
    }

    /// The work of a kernel with this grid.
    #[inline]
    fn work(self, function: CUfunction) -> Work {
        Work {
            what: function as u64,
            size: self.blocks,
            is_chained: self.is_chained,
            guess: UNKNOWN_NS,
        }
    }
}
