//! What programs call in the place of NVML's functions.

use core::ffi::{c_uint, c_ulonglong};

use super::table::export;
use crate::driver::nvml::{NVML, nvml_functions};
use crate::driver::table::{Family, c_name};

/// What answers a call: the driver's own function, or the one that is named here.
mod handlers {
    pub(super) use crate::driver::nvml::real::*;

    pub(super) use crate::views::accounting::{
        pids as nvmlDeviceGetAccountingPids, stats as nvmlDeviceGetAccountingStats,
    };
    pub(super) use crate::views::memory::{
        nvml_info as nvmlDeviceGetMemoryInfo, nvml_info_v2 as nvmlDeviceGetMemoryInfo_v2,
    };
    pub(super) use crate::views::processes::{
        compute as nvmlDeviceGetComputeRunningProcesses,
        compute_v2 as nvmlDeviceGetComputeRunningProcesses_v2,
        compute_v3 as nvmlDeviceGetComputeRunningProcesses_v3,
        details as nvmlDeviceGetRunningProcessDetailList,
        graphics as nvmlDeviceGetGraphicsRunningProcesses,
        graphics_v2 as nvmlDeviceGetGraphicsRunningProcesses_v2,
        graphics_v3 as nvmlDeviceGetGraphicsRunningProcesses_v3,
        mps as nvmlDeviceGetMPSComputeRunningProcesses,
        mps_v2 as nvmlDeviceGetMPSComputeRunningProcesses_v2,
        mps_v3 as nvmlDeviceGetMPSComputeRunningProcesses_v3,
    };
    pub(super) use crate::views::utilization::{
        information as nvmlDeviceGetProcessesUtilizationInfo,
        rates as nvmlDeviceGetUtilizationRates, samples as nvmlDeviceGetProcessUtilization,
    };
}

nvml_functions!(export);
