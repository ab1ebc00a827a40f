//! What NVML keeps of processes, on nodes where it does. Of those that are no more nobody can tell whose they were, so
//! a job is shown its living ones.

use core::ffi::c_uint;
use core::mem::MaybeUninit;

use softmig_driver_sys::nvml::{
    NVML_ERROR_NOT_FOUND, NVML_SUCCESS, nvmlAccountingStats_t, nvmlDevice_t, nvmlReturn_t,
};

use super::own_processes::Own;
use super::processes::listed;
use crate::driver::nvml::real;
use crate::os::Errno;

pub(crate) unsafe fn pids(
    device: nvmlDevice_t,
    count: *mut c_uint,
    pids: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    unsafe { listed(real::nvmlDeviceGetAccountingPids, device, count, pids) }
}

/// A stranger is a process of which nothing is kept.
pub(crate) unsafe fn stats(
    device: nvmlDevice_t,
    pid: c_uint,
    stats: *mut nvmlAccountingStats_t,
) -> nvmlReturn_t {
    let is_own = || {
        let _errno = Errno::save();
        Own::of_this_process().has(pid)
    };
    if !super::are_limited() || stats.is_null() || is_own() {
        // SAFETY: as above.
        return unsafe { real::nvmlDeviceGetAccountingStats(device, pid, stats) };
    }
    let mut hidden = MaybeUninit::<nvmlAccountingStats_t>::zeroed();
    // SAFETY: there is room for the answer.
    let result = unsafe { real::nvmlDeviceGetAccountingStats(device, pid, hidden.as_mut_ptr()) };
    if result == NVML_SUCCESS {
        NVML_ERROR_NOT_FOUND
    } else {
        result
    }
}
