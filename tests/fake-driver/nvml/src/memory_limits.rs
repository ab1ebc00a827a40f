//! Limits of control groups, as drivers from 615 on have them: a test writes them into a file beside the node's.
//!
//! Each line is a GPU's UUID, the group's folder and the hard limit in bytes. The declarations are those of nvml.h 13.5;
//! hook/sys leaves them out.

use core::ffi::{CStr, c_char};

use softmig_driver_sys::nvml::*;
use softmig_fake_node::{Function, place};

use crate::exports::{code, count};
use crate::unit::unit;

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryLimits {
    group: *const c_char,
    soft: u64,
    hard: u64,
    used: u64,
}

/// The limit of a group on a GPU. Without a file this is a driver that has none.
///
/// # Safety
/// `limits` must be null, or point to a struct with the name of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryLimits_v1(
    device: nvmlDevice_t,
    limits: *mut MemoryLimits,
) -> nvmlReturn_t {
    static FUNCTION: Function = Function::new("nvmlDeviceGetMemoryLimits_v1");
    count(&FUNCTION);
    // SAFETY: the caller gives its own struct, or null.
    let Some(limits) = (unsafe { limits.as_mut() }) else {
        return NVML_ERROR_INVALID_ARGUMENT;
    };
    // SAFETY: the name ends with a zero byte.
    let group = unsafe { CStr::from_ptr(limits.group) };
    code(unit(device, |_, unit| {
        let text = std::fs::read_to_string(place().with_extension("limits"));
        let text = text.map_err(|_| NVML_ERROR_NOT_SUPPORTED)?;
        let wanted = [unit.uuid(), &group.to_string_lossy()];
        let hard = text.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            words
                .starts_with(&wanted)
                .then(|| words.get(2)?.parse().ok())?
        });
        (limits.soft, limits.used) = (0, 0);
        limits.hard = hard.unwrap_or(u64::MAX);
        Ok(())
    }))
}
