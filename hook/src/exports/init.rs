//! `cuInit`: the moment from which on a process's GPUs are known.

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult};

use crate::identity::neighbour_search;

/// Calls the driver's, then looks who else is on this process's GPUs, if its limits depend on that.
pub(super) fn init(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    if result == CUDA_SUCCESS {
        neighbour_search::look_once();
    }
    result
}
