//! `cuInit`: the moment from which on a process's GPUs are known.

use core::ffi::c_uint;

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult};

use crate::driver::cuda::real;
use crate::identity::neighbour_search;

/// Calls the driver's, then looks who else is on this process's GPUs, if its limits depend on that.
pub(super) unsafe fn init(flags: c_uint) -> CUresult {
    // SAFETY: the program's argument.
    let result = unsafe { real::cuInit(flags) };
    if result == CUDA_SUCCESS {
        neighbour_search::look_once();
    }
    result
}
