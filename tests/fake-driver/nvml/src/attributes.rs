//! Figures that nothing here depends on, but that programs ask for.

use softmig_driver_sys::nvml::*;
use softmig_fake_node::Mig;

use crate::exports::exports;
use crate::unit::unit;
use crate::{Out, Outcome};

exports! {
    /// Whether the driver stays loaded without users.
    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, out: Out<nvmlEnableState_t>) =>
        whole(device, || out.set(NVML_FEATURE_ENABLED));

    /// Who may make contexts.
    fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, out: Out<nvmlComputeMode_t>) =>
        unit(device, |_, unit| out.set(unit.gpu.compute_mode));

    /// Degrees Celsius.
    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, out: Out<u32>) =>
        whole(device, || {
            if sensor != NVML_TEMPERATURE_GPU {
                return Err(NVML_ERROR_INVALID_ARGUMENT);
            }
            out.set(35)
        });

    /// Milliwatts.
    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, out: Out<u32>) => whole(device, || out.set(75_000));

    /// GPU memory that the host can map: 256 MiB, of which nothing is used.
    fn nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, out: Out<nvmlBAR1Memory_t>) =>
        // Total, free and used.
        whole(device, || out.cast::<[u64; 3]>().set([256 << 20, 256 << 20, 0]));

    /// Resources of a part of a divided GPU.
    fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, out: Out<nvmlDeviceAttributes_t>) => unit(device, |_, unit| {
        let (_, part) = unit.part.ok_or(NVML_ERROR_NOT_SUPPORTED)?;
        out.set(nvmlDeviceAttributes_t {
            multiprocessorCount: part.multiprocessors,
            sharedCopyEngineCount: part.slices,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: part.slices,
            computeInstanceSliceCount: part.compute_slices(),
            memorySizeMB: part.memory >> 20,
        })
    });
}

/// Answers for whole GPUs alone.
fn whole(device: nvmlDevice_t, answer: impl FnOnce() -> Outcome) -> Outcome {
    unit(device, |_, unit| match unit.part {
        Some(_) => Err(NVML_ERROR_NOT_SUPPORTED),
        None => answer(),
    })
}

/// Whether a GPU is divided; `None` where it cannot be.
pub(crate) fn divided(mig: &Mig) -> Option<bool> {
    match mig {
        Mig::Incapable => None,
        Mig::Disabled => Some(false),
        Mig::Enabled(_) => Some(true),
    }
}
