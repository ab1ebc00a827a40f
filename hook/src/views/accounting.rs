//! NVML's accounts of processes, on nodes where it keeps them. The job of a dead process is not known, so a job is
//! shown only its living processes.

use core::ffi::c_uint;

use softmig_driver_sys::nvml::{
    NVML_ERROR_NOT_FOUND, NVML_SUCCESS, nvmlAccountingStats_t, nvmlReturn_t,
};

use super::own_processes::OwnProcesses;
use crate::driver::args::{Out, zeroed};
use crate::os::Errno;

/// Of a process of another job, the answer is that nothing is kept of it.
pub(crate) fn stats(
    stats: Out<nvmlAccountingStats_t>,
    pid: c_uint,
    call: impl Fn(Out<nvmlAccountingStats_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let is_own = || {
        let _errno = Errno::save();
        OwnProcesses::of_this_process().has(pid)
    };
    if !super::are_limited() || stats.is_null() || is_own() {
        return call(stats);
    }
    match call(Out::to(&mut zeroed())) {
        NVML_SUCCESS => NVML_ERROR_NOT_FOUND,
        error => error,
    }
}
