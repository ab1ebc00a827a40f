//! Which processes use a GPU. What each uses is as the driver says: it is true.

use core::ffi::c_uint;

use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDevice_t, nvmlProcessDetailList_t, nvmlProcessInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlReturn_t,
};
use softmig_driver_sys::struct_version;

use super::list::{Entry, List};
use super::own_processes::Own;
use crate::driver::nvml::real;
use crate::os::Errno;

/// Makes the handlers of functions that have the same arguments.
macro_rules! lists {
    ($( fn $name:ident(*mut $entry:ty) => $real:ident; )*) => { $(
        pub(crate) unsafe fn $name(
            device: nvmlDevice_t,
            count: *mut c_uint,
            infos: *mut $entry,
        ) -> nvmlReturn_t {
            // SAFETY: the program's arguments, for which it keeps the driver's contract.
            unsafe { listed(real::$real, device, count, infos) }
        }
    )* };
}

lists! {
    fn compute(*mut nvmlProcessInfo_v1_t) => nvmlDeviceGetComputeRunningProcesses;
    fn compute_v2(*mut nvmlProcessInfo_v2_t) => nvmlDeviceGetComputeRunningProcesses_v2;
    fn compute_v3(*mut nvmlProcessInfo_t) => nvmlDeviceGetComputeRunningProcesses_v3;
    fn graphics(*mut nvmlProcessInfo_v1_t) => nvmlDeviceGetGraphicsRunningProcesses;
    fn graphics_v2(*mut nvmlProcessInfo_v2_t) => nvmlDeviceGetGraphicsRunningProcesses_v2;
    fn graphics_v3(*mut nvmlProcessInfo_t) => nvmlDeviceGetGraphicsRunningProcesses_v3;
    fn mps(*mut nvmlProcessInfo_v1_t) => nvmlDeviceGetMPSComputeRunningProcesses;
    fn mps_v2(*mut nvmlProcessInfo_v2_t) => nvmlDeviceGetMPSComputeRunningProcesses_v2;
    fn mps_v3(*mut nvmlProcessInfo_t) => nvmlDeviceGetMPSComputeRunningProcesses_v3;
}

/// A function of NVML's that lists entries.
pub(super) type Lister<T> = unsafe fn(nvmlDevice_t, *mut c_uint, *mut T) -> nvmlReturn_t;

/// Answers with the job's own entries of a list.
///
/// # Safety
///
/// As the driver's function.
// Once for each kind of entry, not for each function.
#[inline(never)]
pub(super) unsafe fn listed<T: Entry>(
    real: Lister<T>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut T,
) -> nvmlReturn_t {
    // SAFETY: the program's arguments, for which it keeps the driver's contract, or our own.
    let call = |count, out| unsafe { real(device, count, out) };
    // SAFETY: as above.
    unsafe { answered(call, count, out) }
}

/// Answers with the job's own entries of the list that `call` gives.
///
/// # Safety
///
/// `count` is null or a number, of entries that there is room for at `out`.
unsafe fn answered<T: Entry>(
    call: impl Fn(*mut c_uint, *mut T) -> nvmlReturn_t,
    count: *mut c_uint,
    out: *mut T,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let place = unsafe { count.as_mut() };
    let Some(place) = place.filter(|_| super::are_limited()) else {
        return call(count, out);
    };
    let _errno = Errno::save();
    match List::ask(call) {
        // SAFETY: the caller's promise.
        Ok(list) => unsafe { list.own(&Own::of_this_process()).give(place, out) },
        Err(error) => error,
    }
}

pub(crate) unsafe fn details(
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_t,
) -> nvmlReturn_t {
    // SAFETY: the program's argument, for which it keeps the driver's contract.
    let asked = unsafe { list.as_mut() };
    let Some(asked) = asked.filter(|_| super::are_limited()) else {
        // SAFETY: as above.
        return unsafe { real::nvmlDeviceGetRunningProcessDetailList(device, list) };
    };
    // A later version's entries have other places.
    if asked.version != struct_version::<nvmlProcessDetailList_t>(1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    let mode = asked.mode;
    let call = |count: *mut c_uint, entries| {
        let mut ours = nvmlProcessDetailList_t {
            version: struct_version::<nvmlProcessDetailList_t>(1),
            mode,
            // SAFETY: a number of ours or of the program's.
            numProcArrayEntries: unsafe { count.read() },
            procArray: entries,
        };
        // SAFETY: with the room that it tells of.
        let result = unsafe { real::nvmlDeviceGetRunningProcessDetailList(device, &raw mut ours) };
        // SAFETY: as above.
        unsafe { count.write(ours.numProcArrayEntries) };
        result
    };
    // SAFETY: the program's own number and room.
    unsafe { answered(call, &raw mut asked.numProcArrayEntries, asked.procArray) }
}
