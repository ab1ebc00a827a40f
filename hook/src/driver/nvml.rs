//! The functions of NVML that the hook exports, by family.

use core::ffi::{c_uint, c_ulonglong};

use super::library::{Library, State};
use super::table::{c_name, declare};

/// Gives the list to a macro: [`declare`] makes the driver's own functions of it, and [`crate::exports`] the functions
/// that programs call. Only the exports read the code between braces, which answers in the driver's place.
macro_rules! nvml_functions {
    ($then:path) => { $then! { NVML, nvml;
    Entry {
        fn nvmlInit() -> nvmlReturn_t { init::init_nvml() }
        fn nvmlInit_v2() -> nvmlReturn_t { init::init_nvml() }
        fn nvmlInitWithFlags(flags: c_uint) -> nvmlReturn_t { init::init_nvml() }
    }
    View {
        fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t
            { memory::nvml_info[memory](device) }
        fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t
            { memory::nvml_info_v2[memory](device) }
        fn nvmlDeviceGetComputeRunningProcesses(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetComputeRunningProcesses_v2(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetComputeRunningProcesses_v3(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetGraphicsRunningProcesses(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetGraphicsRunningProcesses_v2(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetGraphicsRunningProcesses_v3(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetMPSComputeRunningProcesses(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
            device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) -> nvmlReturn_t
            { processes::list() with [info_count, infos] }
        fn nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_t) -> nvmlReturn_t
            { processes::details() with [plist] }
        fn nvmlDeviceGetProcessUtilization(
            device: nvmlDevice_t, utilization: *mut nvmlProcessUtilizationSample_t, process_samples_count: *mut c_uint,
            last_seen_time_stamp: c_ulonglong) -> nvmlReturn_t
            { utilization::samples() with [process_samples_count, utilization] }
        fn nvmlDeviceGetProcessesUtilizationInfo(
            device: nvmlDevice_t, proceses_util_info: *mut nvmlProcessesUtilizationInfo_t) -> nvmlReturn_t
            { utilization::information() with [proceses_util_info] }
        fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) -> nvmlReturn_t
            { utilization::rates[utilization](device) }
        fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint) -> nvmlReturn_t
            { processes::list() with [count, pids] }
        fn nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t) -> nvmlReturn_t
            { accounting::stats(pid) with [stats] }
    }
} };
}
pub(crate) use nvml_functions;

nvml_functions!(declare);

/// NVML.
pub(crate) static NVML: Library = Library {
    soname: c"libnvidia-ml.so.1",
    rows: ROWS,
    no_library: NVML_ERROR_LIBRARY_NOT_FOUND,
    no_function: NVML_ERROR_FUNCTION_NOT_FOUND,
    denied: NVML_ERROR_DRIVER_NOT_LOADED,
    state: State::new(),
};
