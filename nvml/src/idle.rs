//! Finds out whether anything runs on a GPU.

use crate::library::open;
use nvml_wrapper::error::NvmlError;

/// Whether no process is on the GPU of this UUID.
///
/// # Errors
/// NVML's: then it is not known.
pub fn is_idle(uuid: &str) -> Result<bool, NvmlError> {
    let nvml = open()?;
    let device = nvml.device_by_uuid(uuid)?;
    let graphics = match device.running_graphics_processes() {
        Err(NvmlError::NotSupported) => Vec::new(),
        answer => answer?,
    };
    let compute = device.running_compute_processes()?;
    Ok(compute.is_empty() && graphics.is_empty())
}
