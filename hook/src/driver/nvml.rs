//! The functions of NVML that the hook exports.

use core::ffi::{c_uint, c_ulonglong};

use super::table::{c_name, interpose};

interpose! { NVML, nvml;
    Entry {
        fn nvmlInit() -> nvmlReturn_t;
        fn nvmlInit_v2() -> nvmlReturn_t;
        fn nvmlInitWithFlags(flags: c_uint) -> nvmlReturn_t;
    }
    View {
        fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t => crate::views::memory::nvml_info;
        fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t => crate::views::memory::nvml_info_v2;
        fn nvmlDeviceGetComputeRunningProcesses(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v1_t,
        ) -> nvmlReturn_t => crate::views::processes::compute;
        fn nvmlDeviceGetComputeRunningProcesses_v2(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v2_t,
        ) -> nvmlReturn_t => crate::views::processes::compute_v2;
        fn nvmlDeviceGetComputeRunningProcesses_v3(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t => crate::views::processes::compute_v3;
        fn nvmlDeviceGetGraphicsRunningProcesses(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v1_t,
        ) -> nvmlReturn_t => crate::views::processes::graphics;
        fn nvmlDeviceGetGraphicsRunningProcesses_v2(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v2_t,
        ) -> nvmlReturn_t => crate::views::processes::graphics_v2;
        fn nvmlDeviceGetGraphicsRunningProcesses_v3(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t => crate::views::processes::graphics_v3;
        fn nvmlDeviceGetMPSComputeRunningProcesses(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v1_t,
        ) -> nvmlReturn_t => crate::views::processes::mps;
        fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_v2_t,
        ) -> nvmlReturn_t => crate::views::processes::mps_v2;
        fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
            device: nvmlDevice_t,
            info_count: *mut c_uint,
            infos: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t => crate::views::processes::mps_v3;
        fn nvmlDeviceGetRunningProcessDetailList(
            device: nvmlDevice_t,
            plist: *mut nvmlProcessDetailList_t,
        ) -> nvmlReturn_t => crate::views::processes::details;
        fn nvmlDeviceGetProcessUtilization(
            device: nvmlDevice_t,
            utilization: *mut nvmlProcessUtilizationSample_t,
            process_samples_count: *mut c_uint,
            last_seen_time_stamp: c_ulonglong,
        ) -> nvmlReturn_t => crate::views::utilization::samples;
        fn nvmlDeviceGetProcessesUtilizationInfo(
            device: nvmlDevice_t,
            proceses_util_info: *mut nvmlProcessesUtilizationInfo_t,
        ) -> nvmlReturn_t => crate::views::utilization::information;
        fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) -> nvmlReturn_t => crate::views::utilization::rates;
        fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint) -> nvmlReturn_t => crate::views::accounting::pids;
        fn nvmlDeviceGetAccountingStats(
            device: nvmlDevice_t,
            pid: c_uint,
            stats: *mut nvmlAccountingStats_t,
        ) -> nvmlReturn_t => crate::views::accounting::stats;
    }
}
