//! `cuInit` and its counterparts in NVML: the moment from which on a process opens GPUs, and they are known.

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult};
use softmig_driver_sys::nvml::{NVML_SUCCESS, nvmlReturn_t};

use crate::driver::cuda::CUDA;
use crate::driver::nvml::NVML;
use crate::identity::{admission, neighbour_search, pack};

/// Asks to be admitted to the GPUs where that is needed, and to be in the pack of a job that is in one. Calls the driver's, then
/// looks who else is on this process's GPUs, if its limits depend on that.
pub(super) fn init(call: impl Fn() -> CUresult) -> CUresult {
    admission::ask_once();
    let pack = pack::enter();
    let result = CUDA.initialize(CUDA_SUCCESS, || pack.initialize(&call));
    let result = pack.keep(result);
    drop(pack);
    if result == CUDA_SUCCESS {
        neighbour_search::look_once();
    }
    result
}

/// The same of NVML, whose views need no search.
pub(super) fn init_nvml(call: impl FnOnce() -> nvmlReturn_t) -> nvmlReturn_t {
    admission::ask_once();
    NVML.initialize(NVML_SUCCESS, call)
}
