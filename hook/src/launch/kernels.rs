//! Launches of kernels: what each may still take of the GPU's memory are its stacks, and of its time what the job may have.

use core::ffi::{CStr, c_int, c_uint, c_void};

use softmig_driver_sys::cuda::{
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream,
};

use crate::driver::args;
use crate::driver::cuda::real;
use crate::driver::stream::{DEFAULT, Stream};
use crate::memory::stacks;
use crate::pacing::{self, UNKNOWN_TIME, Work};

/// Launches a kernel whose stacks fit, when the job may have the GPU.
#[inline]
fn launched(
    function: CUfunction,
    grid: Grid,
    stream: Stream,
    name: &CStr,
    launch: impl FnOnce() -> CUresult,
) -> CUresult {
    if !stacks::fit(function, stream.handle, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pacing::paced(stream, || grid.work(function), launch)
}

/// What is launched.
#[derive(Clone, Copy, Default)]
struct Grid {
    blocks: u64,
    /// It may begin before what was launched before it has ended.
    is_chained: bool,
}

impl Grid {
    /// What a kernel with this grid does.
    #[inline]
    fn work(self, function: CUfunction) -> Work {
        Work {
            what: function as u64,
            size: self.blocks,
            is_chained: self.is_chained,
            guess: UNKNOWN_TIME,
        }
    }
}

/// The grid and the stream of a launch that is described.
#[inline]
fn of_config(config: Option<&CUlaunchConfig>) -> (Grid, CUstream) {
    let Some(config) = config else {
        return (Grid::default(), DEFAULT);
    };
    let mut grid = grid(config.gridDimX, config.gridDimY, config.gridDimZ);
    let count = if config.attrs.is_null() {
        0
    } else {
        config.numAttrs as usize
    };
    for at in 0..count {
        // SAFETY: as above: there are so many.
        let attribute = unsafe { args::read(config.attrs.wrapping_add(at)) };
        grid.is_chained |= attribute.is_some_and(|attribute| {
            attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        });
    }
    (grid, config.hStream)
}

/// A grid of so many blocks.
#[inline]
fn grid(x: c_uint, y: c_uint, z: c_uint) -> Grid {
    Grid {
        blocks: u64::from(x).wrapping_mul(y.into()).wrapping_mul(z.into()),
        is_chained: false,
    }
}

#[inline]
pub(crate) unsafe fn launch(function: CUfunction) -> CUresult {
    launched(
        function,
        Grid::default(),
        Stream::plain(DEFAULT),
        c"cuLaunch",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuLaunch(function) },
    )
}

#[inline]
pub(crate) unsafe fn launch_grid(
    function: CUfunction,
    grid_width: c_int,
    grid_height: c_int,
) -> CUresult {
    let grid = grid(grid_width.cast_unsigned(), grid_height.cast_unsigned(), 1);
    launched(
        function,
        grid,
        Stream::plain(DEFAULT),
        c"cuLaunchGrid",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuLaunchGrid(function, grid_width, grid_height) },
    )
}

#[inline]
pub(crate) unsafe fn launch_grid_async(
    function: CUfunction,
    grid_width: c_int,
    grid_height: c_int,
    stream: CUstream,
) -> CUresult {
    let grid = grid(grid_width.cast_unsigned(), grid_height.cast_unsigned(), 1);
    launched(
        function,
        grid,
        Stream::plain(stream),
        c"cuLaunchGridAsync",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuLaunchGridAsync(function, grid_width, grid_height, stream) },
    )
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
#[inline]
pub(crate) unsafe fn launch_kernel(
    function: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    stream: CUstream,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let grid = grid(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        grid,
        Stream::plain(stream),
        c"cuLaunchKernel",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe {
            real::cuLaunchKernel(
                function,
                grid_dim_x,
                grid_dim_y,
                grid_dim_z,
                block_dim_x,
                block_dim_y,
                block_dim_z,
                shared_mem_bytes,
                stream,
                kernel_params,
                extra,
            )
        },
    )
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
#[inline]
pub(crate) unsafe fn launch_kernel_ptsz(
    function: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    stream: CUstream,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let grid = grid(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        grid,
        Stream::per_thread(stream),
        c"cuLaunchKernel",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe {
            real::cuLaunchKernel_ptsz(
                function,
                grid_dim_x,
                grid_dim_y,
                grid_dim_z,
                block_dim_x,
                block_dim_y,
                block_dim_z,
                shared_mem_bytes,
                stream,
                kernel_params,
                extra,
            )
        },
    )
}

#[inline]
pub(crate) unsafe fn launch_kernel_ex(
    config: *const CUlaunchConfig,
    function: CUfunction,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the program's argument, which the driver reads too. It gets this copy, which nobody changes meanwhile.
    let copy = unsafe { args::read(config) };
    let config = args::of(copy.as_ref(), config);
    let (grid, stream) = of_config(copy.as_ref());
    launched(
        function,
        grid,
        Stream::plain(stream),
        c"cuLaunchKernelEx",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuLaunchKernelEx(config, function, kernel_params, extra) },
    )
}

#[inline]
pub(crate) unsafe fn launch_kernel_ex_ptsz(
    config: *const CUlaunchConfig,
    function: CUfunction,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the program's argument, which the driver reads too. It gets this copy, which nobody changes meanwhile.
    let copy = unsafe { args::read(config) };
    let config = args::of(copy.as_ref(), config);
    let (grid, stream) = of_config(copy.as_ref());
    launched(
        function,
        grid,
        Stream::per_thread(stream),
        c"cuLaunchKernelEx",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe { real::cuLaunchKernelEx_ptsz(config, function, kernel_params, extra) },
    )
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
#[inline]
pub(crate) unsafe fn launch_cooperative_kernel(
    function: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    stream: CUstream,
    kernel_params: *mut *mut c_void,
) -> CUresult {
    let grid = grid(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        grid,
        Stream::plain(stream),
        c"cuLaunchCooperativeKernel",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe {
            real::cuLaunchCooperativeKernel(
                function,
                grid_dim_x,
                grid_dim_y,
                grid_dim_z,
                block_dim_x,
                block_dim_y,
                block_dim_z,
                shared_mem_bytes,
                stream,
                kernel_params,
            )
        },
    )
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
#[inline]
pub(crate) unsafe fn launch_cooperative_kernel_ptsz(
    function: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    stream: CUstream,
    kernel_params: *mut *mut c_void,
) -> CUresult {
    let grid = grid(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        grid,
        Stream::per_thread(stream),
        c"cuLaunchCooperativeKernel",
        // SAFETY: the program's arguments, for which it keeps the driver's contract.
        || unsafe {
            real::cuLaunchCooperativeKernel_ptsz(
                function,
                grid_dim_x,
                grid_dim_y,
                grid_dim_z,
                block_dim_x,
                block_dim_y,
                block_dim_z,
                shared_mem_bytes,
                stream,
                kernel_params,
            )
        },
    )
}

pub(crate) unsafe fn launch_cooperative_kernel_multi_device(
    launch_params_list: *mut CUDA_LAUNCH_PARAMS,
    num_devices: c_uint,
    flags: c_uint,
) -> CUresult {
    let part = |at: usize| {
        let is_there = at < num_devices as usize;
        // SAFETY: the program's list.
        is_there.then(|| unsafe { args::read(launch_params_list.wrapping_add(at)) })?
    };
    for params in (0..num_devices as usize).map_while(part) {
        let name = c"cuLaunchCooperativeKernelMultiDevice";
        if !stacks::fit(params.function, params.hStream, name) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    let work = |at| {
        let params = part(at)?;
        let grid = grid(params.gridDimX, params.gridDimY, params.gridDimZ);
        Some((Stream::plain(params.hStream), grid.work(params.function)))
    };
    pacing::paced_together(&work, || {
        // SAFETY: as above.
        unsafe {
            real::cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags)
        }
    })
}
