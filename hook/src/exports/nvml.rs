//! The functions that programs call in the place of NVML's.

use core::ffi::{c_uint, c_ulonglong};

use super::init;
use super::table::export;
use crate::driver::nvml::{NVML, nvml_functions, real};
use crate::driver::table::{Family, c_name};
use crate::views::{accounting, memory, processes, utilization};

nvml_functions!(export);
