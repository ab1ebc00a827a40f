//! Launches of kernels: what each may still take of the GPU's memory are its stacks, and of its time what the job may have.

use core::ffi::{CStr, c_int, c_uint, c_void};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream,
};

use crate::compute::{self, Stream, Work};
use crate::memory::{arguments, stacks};
use crate::rows::cuda::real;

/// Launches a kernel whose stacks fit, when the job may have the GPU.
#[inline]
fn launched(
    function: CUfunction,
    blocks: u64,
    stream: Stream,
    name: &CStr,
    launch: impl FnOnce() -> CUresult,
) -> CUresult {
    if !stacks::fit(function, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let work = || Work {
        what: function as u64,
        size: blocks,
    };
    compute::paced(stream, work, launch)
}

/// The default stream of old functions.
const LEGACY: CUstream = core::ptr::null_mut();

/// The blocks and the stream of a launch that is described.
#[inline]
fn of_config(config: *const CUlaunchConfig) -> (u64, CUstream) {
    // SAFETY: the program's argument, which the driver reads too.
    match unsafe { arguments::read(config) } {
        Some(config) => {
            let blocks = blocks(config.gridDimX, config.gridDimY, config.gridDimZ);
            (blocks, config.hStream)
        }
        None => (0, LEGACY),
    }
}

/// How many blocks a grid has.
#[inline]
fn blocks(x: c_uint, y: c_uint, z: c_uint) -> u64 {
    u64::from(x).wrapping_mul(y.into()).wrapping_mul(z.into())
}

#[inline]
pub(crate) unsafe fn launch(function: CUfunction) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    launched(function, 0, Stream::plain(LEGACY), c"cuLaunch", || unsafe {
        real::cuLaunch(function)
    })
}

#[inline]
pub(crate) unsafe fn launch_grid(
    function: CUfunction,
    grid_width: c_int,
    grid_height: c_int,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_width.cast_unsigned(), grid_height.cast_unsigned(), 1);
    launched(
        function,
        blocks,
        Stream::plain(LEGACY),
        c"cuLaunchGrid",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_width.cast_unsigned(), grid_height.cast_unsigned(), 1);
    launched(
        function,
        blocks,
        Stream::plain(stream),
        c"cuLaunchGridAsync",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        blocks,
        Stream::plain(stream),
        c"cuLaunchKernel",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        blocks,
        Stream::per_thread(stream),
        c"cuLaunchKernel",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let (blocks, stream) = of_config(config);
    launched(
        function,
        blocks,
        Stream::plain(stream),
        c"cuLaunchKernelEx",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let (blocks, stream) = of_config(config);
    launched(
        function,
        blocks,
        Stream::per_thread(stream),
        c"cuLaunchKernelEx",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        blocks,
        Stream::plain(stream),
        c"cuLaunchCooperativeKernel",
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
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let blocks = blocks(grid_dim_x, grid_dim_y, grid_dim_z);
    launched(
        function,
        blocks,
        Stream::per_thread(stream),
        c"cuLaunchCooperativeKernel",
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
    let all = if launch_params_list.is_null() {
        0
    } else {
        num_devices as usize
    };
    for at in 0..all {
        let params = launch_params_list.wrapping_add(at);
        // SAFETY: the program's list.
        let Some(params) = (unsafe { arguments::read(params) }) else {
            continue;
        };
        if !stacks::fit(params.function, c"cuLaunchCooperativeKernelMultiDevice") {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    // SAFETY: as above.
    unsafe { real::cuLaunchCooperativeKernelMultiDevice(launch_params_list, num_devices, flags) }
}
