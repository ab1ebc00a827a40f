//! Divided GPUs.

use softmig_driver_sys::nvml::*;

use crate::Out;
use crate::attributes::divided;
use crate::exports::exports;
use crate::unit::{Unit, unit};

/// The most parts that a GPU can be divided into.
const MOST_PARTS: u32 = 7;

exports! {
    /// Whether a GPU is divided, now and after a reset.
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) => unit(device, |_, unit| {
        let mode = divided(&unit.gpu.mig).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
        current.set(u32::from(mode))?;
        pending.set(u32::from(unit.gpu.mig_pending.unwrap_or(mode)))
    });

    /// Divides a GPU. These stay as they were described.
    fn nvmlDeviceSetMigMode(device: nvmlDevice_t, _mode: u32, _status: Out<nvmlReturn_t>) => unit(device, |_, unit| {
        match divided(&unit.gpu.mig) {
            None => Err(NVML_ERROR_NOT_SUPPORTED),
            Some(_) => Err(NVML_ERROR_NO_PERMISSION),
        }
    });

    /// How many parts there can be.
    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, out: Out<u32>) => unit(device, |_, unit| {
        out.set(if divided(&unit.gpu.mig) == Some(true) { MOST_PARTS } else { 0 })
    });

    /// A part by its index.
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: u32, out: Out<nvmlDevice_t>) =>
        unit(device, |_, unit| {
            if unit.part.is_some() {
                return Err(NVML_ERROR_INVALID_ARGUMENT);
            }
            out.set(unit.part(index as usize)?.handle())
        });

    /// Whether a handle is a part's.
    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, out: Out<u32>) =>
        unit(device, |_, unit| out.set(u32::from(unit.part.is_some())));

    /// The GPU of a part.
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: nvmlDevice_t, out: Out<nvmlDevice_t>) =>
        unit(device, |session, unit| {
            if unit.part.is_none() {
                return Err(NVML_ERROR_INVALID_ARGUMENT);
            }
            out.set(Unit::of_gpu(session, unit.number)?.handle())
        });
}
