//! Loads NVML, and says what its errors mean for a node.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;

/// The name that a node without development files has.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

/// Loads NVML and starts it.
///
/// # Errors
/// NVML's; [`explained`] says what it means for the node.
pub fn open() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(OsStr::new(LIBRARY)).init()
}

/// Says what an error of NVML as a whole means for this node.
pub fn explained(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => {
            "NVML is not installed here (libnvidia-ml.so.1 of the NVIDIA driver)".into()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".into(),
        NvmlError::LibRmVersionMismatch => {
            "NVML and the loaded driver are of different versions: the driver was replaced, and not loaded yet".into()
        }
        error => format!("NVML does not answer: {error}"),
    }
}

/// The advice to an administrator about such an error.
pub fn remedy(error: &NvmlError) -> &'static str {
    match error {
        NvmlError::LibloadingError(_) => {
            "install the NVIDIA driver, with its libnvidia-ml.so.1 where the loader finds it, or run this on a GPU node"
        }
        NvmlError::DriverNotLoaded => {
            "load it with 'modprobe nvidia'; 'dmesg | grep -i nvrm' says why it does not load"
        }
        NvmlError::LibRmVersionMismatch => {
            "reboot, or unload the driver and load the new one: 'modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia; \
             modprobe nvidia'"
        }
        NvmlError::NoPermission => "try it with sudo",
        _ => "see what nvidia-smi says, and 'dmesg | grep -i nvrm'",
    }
}
