//! The functions of NVML that the hook itself calls.

use core::ffi::{c_char, c_uint, c_ulonglong};

use super::args::{Argument, Name, Out};
use super::nvml::NVML;
use super::table::{ask, ask_exported};

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
