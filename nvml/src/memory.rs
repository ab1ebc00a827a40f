//! A GPU's memory, as NVML's memory info v2 reports it.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

pub(crate) const MIB: u64 = 1 << 20;

/// The memory of a GPU or of a MIG instance, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// The part that the driver keeps for itself.
    pub reserved: u64,
    /// The part in use.
    pub used: u64,
    /// The part that is free.
    pub free: u64,
}

impl Memory {
    /// All of it: the policy's `memory_mib`.
    pub fn total_mib(&self) -> u64 {
        self.total / MIB
    }

    /// The driver's part, rounded up: the policy's `reserved_mib`.
    pub fn reserved_mib(&self) -> u64 {
        self.reserved.div_ceil(MIB)
    }

    /// The memory that slices divide.
    pub fn usable_mib(&self) -> u64 {
        self.total_mib().saturating_sub(self.reserved_mib())
    }
}

/// Asks for it. The older memory info is not used instead: it does not tell what the driver keeps, so slices of its total
/// would promise memory that jobs cannot have.
///
/// # Errors
/// Returns the error of NVML.
pub fn memory(device: &Device<'_>) -> Result<Memory, NvmlError> {
    device.memory_info().map(|info| Memory {
        total: info.total,
        reserved: info.reserved,
        used: info.used,
        free: info.free,
    })
}

/// NVML's code for a struct of a version that it does not know, for which the wrapper has no name.
const ARGUMENT_VERSION_MISMATCH: u32 = 25;

/// Says why there are no figures, and what to do about it.
pub(crate) fn unknown(error: &NvmlError) -> String {
    match error {
        NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::NotSupported
        | NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH) => format!(
            "memory: no memory info v2 from this card and driver ({error}); drivers from 510 on give it, so try a newer one"
        ),
        error => format!("memory: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_keeps_is_rounded_up_and_never_promised() {
        // Measured on an H200 with driver 580.159: CUDA's own total is 143155 MiB.
        let total = 143_771 * MIB;
        let memory = Memory {
            total,
            reserved: total - 150_109_880_320,
            used: 0,
            free: 0,
        };
        assert_eq!(memory.total_mib(), 143_771);
        assert_eq!(memory.reserved_mib(), 616);
        assert_eq!(memory.usable_mib(), 143_155);
    }

    #[test]
    fn an_old_driver_is_told_from_a_lost_gpu() {
        for old in [
            NvmlError::FailedToLoadSymbol(String::new()),
            NvmlError::FunctionNotFound,
            NvmlError::UnexpectedVariant(25),
        ] {
            assert!(unknown(&old).contains("510"), "{old:?}");
        }
        assert!(unknown(&NvmlError::GpuLost).contains("fell off the bus"));
    }
}
