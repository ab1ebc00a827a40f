//! The functions of NVML that the hook itself calls.

use core::ffi::{c_char, c_uint, c_ulonglong};
use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::nvml::NVML_SUCCESS;

use super::args::{Argument, Name, Out};
use super::nvml::NVML;
use super::table::{ask, ask_exported};
use crate::os;

ask! { NVML, nvml;
    fn nvmlDeviceGetHandleByUUID(uuid: Name<'_>, device: &mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: &mut c_uint) -> nvmlReturn_t;
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: Out<'_, c_char>, length: c_uint) -> nvmlReturn_t;
}

ask_exported! { super::nvml::real;
    fn nvmlInit_v2() -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: &mut nvmlMemory_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        count: &mut c_uint,
        infos: Out<'_, nvmlProcessInfo_t>,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t,
        samples: Out<'_, nvmlProcessUtilizationSample_t>,
        count: Out<'_, c_uint>,
        after: c_ulonglong,
    ) -> nvmlReturn_t;
}

/// Whether NVML is in use.
static READY: AtomicBool = AtomicBool::new(false);

/// Begins to use NVML, once; it is never ended, since the program's own end must not end it for us.
pub(crate) fn is_ready() -> bool {
    if READY.load(Ordering::Relaxed) {
        return true;
    }
    // Loads the library if need be.
    let is_ready = NVML.initialize(NVML_SUCCESS, nvmlInit_v2) == NVML_SUCCESS;
    if is_ready {
        READY.store(true, Ordering::Relaxed);
    }
    is_ready
}

/// The same, where the program has ended NVML once too often.
pub(crate) fn start_again() -> bool {
    READY.store(false, Ordering::Relaxed);
    is_ready()
}

/// Whether NVML can be asked here, and lists the processes of the whole machine.
pub(crate) fn lists_all() -> bool {
    os::is_outermost(os::process_name()) && is_ready()
}
