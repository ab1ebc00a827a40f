//! Launches of kernels. A launch may take GPU memory for stacks, and it takes the job's GPU time.

use core::ffi::{CStr, c_uint};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream,
};

use crate::driver::args::{In, Out};
use crate::driver::stream::{DEFAULT, Stream};
use crate::memory::stacks;
use crate::pacing;

/// Launches a kernel whose stacks fit, when the job may have the GPU.
#[inline]
pub(crate) fn launch(
    function: CUfunction,
    stream: Stream,
    name: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if !stacks::fit(function, stream.handle, name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pacing::paced(stream, call)
}

/// The same where a grid and a stream are described. `stream` makes a stream of its handle.
#[inline]
pub(crate) fn launch_ex(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    stream: impl FnOnce(CUstream) -> Stream,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let handle = config.get().map_or(DEFAULT, |launch| launch.hStream);
    launch(function, stream(handle), c"cuLaunchKernelEx", call)
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
    let stream = |at| Some(Stream::plain(part(at)?.hStream));
    pacing::paced_together(&stream, call)
}
