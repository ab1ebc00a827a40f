//! A node's GPUs and the processes on them by NVML, as plain values.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;
use softmig_nvml::{Setting, memory};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

pub use softmig_nvml::Memory;

/// How often a list is asked for whose length changes at the same time.
const TRIES: usize = 4;

/// A node's GPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The driver's version.
    pub driver: Option<String>,
    /// The GPUs, by NVML's index.
    pub gpus: Vec<GpuReading>,
}

/// One GPU. A failed reading is `None`, and `error` says why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuReading {
    /// NVML's index.
    pub index: u32,
    /// `GPU-` and so on.
    pub uuid: Option<String>,
    /// Such as `NVIDIA L40S`.
    pub name: Option<String>,
    /// Divided by MIG.
    pub mig: bool,
    /// What keeps jobs from sharing it now.
    pub setting: Option<Setting>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// The processes that use it. `None` if that could not be asked.
    pub users: Option<Vec<User>>,
    /// The first thing that failed.
    pub error: Option<String>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number, as it is here.
    pub pid: u32,
    /// The purpose.
    pub kinds: Vec<Kind>,
    /// Its memory in bytes; `None` where the driver does not know.
    pub memory: Option<u64>,
    /// The part of a MIG GPU.
    pub instance: Option<u32>,
}

/// The purpose for which a process uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// CUDA, OpenCL.
    Compute,
    /// OpenGL, Vulkan.
    Graphics,
    /// CUDA through an MPS server.
    Mps,
}

/// Reads all GPUs. An error is NVML's as a whole; that of one GPU is in its place.
pub(crate) fn read(nvml: &Nvml) -> Result<Reading, NvmlError> {
    let count = nvml.device_count()?;
    Ok(Reading {
        driver: nvml.sys_driver_version().ok(),
        gpus: (0..count).map(|index| gpu(nvml, index)).collect(),
    })
}

fn gpu(nvml: &Nvml, index: u32) -> GpuReading {
    let mut gpu = GpuReading {
        index,
        ..GpuReading::default()
    };
    let device = match nvml.device_by_index(index) {
        Ok(device) => device,
        Err(error) => {
            gpu.error = Some(error.to_string());
            return gpu;
        }
    };
    let mut error = None;
    let mut failed = |what: &str, why: NvmlError| {
        error.get_or_insert_with(|| format!("{what}: {why}"));
    };
    gpu.uuid = device.uuid().map_err(|why| failed("UUID", why)).ok();
    gpu.name = device.name().map_err(|why| failed("name", why)).ok();
    // Most GPUs cannot be divided, and old drivers do not know the word.
    gpu.mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    gpu.setting = Setting::in_effect(&device);
    gpu.memory = memory(&device).map_err(|why| failed("memory", why)).ok();
    gpu.users = users(&device).map_err(|why| failed("processes", why)).ok();
    gpu.error = error;
    gpu
}

/// Every process on a GPU, once.
fn users(device: &Device<'_>) -> Result<Vec<User>, NvmlError> {
    let compute = asked(
        || device.running_compute_processes(),
        || device.running_compute_processes_v2(),
    )?;
    // Not every GPU and driver has these two; the first list is the one without which nothing can be said.
    let graphics = asked(
        || device.running_graphics_processes(),
        || device.running_graphics_processes_v2(),
    );
    let mps = asked(|| device.mps_running_compute_processes(), || Ok(Vec::new()));
    let mut users = Vec::new();
    add(&mut users, Kind::Compute, compute);
    add(&mut users, Kind::Graphics, known(graphics)?);
    add(&mut users, Kind::Mps, known(mps)?);
    Ok(users)
}

/// Asks in today's way or, where the driver is too old for that, in an earlier one, and again when the list grew between
/// the question for its length and the question for its entries.
fn asked<T>(
    now: impl Fn() -> Result<T, NvmlError>,
    earlier: impl Fn() -> Result<T, NvmlError>,
) -> Result<T, NvmlError> {
    let ask = || match now() {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => earlier(),
        answer => answer,
    };
    for _ in 1..TRIES {
        match ask() {
            Err(NvmlError::InsufficientSize(_)) => {}
            answer => return answer,
        }
    }
    ask()
}

/// A list that a GPU need not have.
fn known(list: Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match list {
        Err(
            NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound,
        ) => Ok(Vec::new()),
        list => list,
    }
}

/// Adds a list. A process that computes and draws is in two of them, each time with all that it has.
fn add(users: &mut Vec<User>, kind: Kind, list: Vec<ProcessInfo>) {
    for info in list {
        let memory = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let same = |user: &&mut User| user.pid == info.pid && user.instance == info.gpu_instance_id;
        match users.iter_mut().find(same) {
            Some(user) => {
                user.memory = user.memory.max(memory);
                if !user.kinds.contains(&kind) {
                    user.kinds.push(kind);
                }
            }
            None => users.push(User {
                pid: info.pid,
                kinds: vec![kind],
                memory,
                instance: info.gpu_instance_id,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn info(pid: u32, used_gpu_memory: UsedGpuMemory, instance: Option<u32>) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: instance,
            compute_instance_id: None,
        }
    }

    #[test]
    fn a_process_that_computes_and_draws_counts_once() {
        use UsedGpuMemory::{Unavailable, Used};
        let mut users = Vec::new();
        let compute = vec![info(1, Used(10), None), info(2, Unavailable, None)];
        add(&mut users, Kind::Compute, compute);
        let graphics = vec![info(1, Used(10), None), info(2, Used(5), None)];
        add(&mut users, Kind::Graphics, graphics);
        let both = vec![Kind::Compute, Kind::Graphics];
        let found: Vec<_> = users
            .iter()
            .map(|user| (user.pid, user.memory, user.kinds.clone()))
            .collect();
        assert_eq!(
            found,
            [(1, Some(10), both.clone()), (2, Some(5), both.clone())]
        );
    }

    #[test]
    fn a_process_in_two_parts_of_a_gpu_has_what_it_has_in_each() {
        let mut users = Vec::new();
        let parts = [Some(1), Some(2)].map(|part| info(1, UsedGpuMemory::Used(10), part));
        add(&mut users, Kind::Compute, parts.into());
        assert_eq!(users.len(), 2);
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again_but_not_for_ever() {
        let asks = Cell::new(0);
        let grows = |times: usize| {
            asks.set(0);
            asked(
                || {
                    asks.set(asks.get() + 1);
                    if asks.get() > times {
                        Ok(7)
                    } else {
                        Err(NvmlError::InsufficientSize(None))
                    }
                },
                || Ok(0),
            )
        };
        assert!(matches!(grows(0), Ok(7)));
        assert!(matches!(grows(TRIES - 1), Ok(7)));
        assert!(matches!(grows(100), Err(NvmlError::InsufficientSize(_))));
        assert_eq!(asks.get(), TRIES);
    }

    #[test]
    fn an_old_driver_is_asked_in_an_old_way() {
        let missing = || Err(NvmlError::FailedToLoadSymbol(String::new()));
        let one = || Ok(vec![info(3, UsedGpuMemory::Used(1), None)]);
        assert!(matches!(asked(missing, one), Ok(list) if list.len() == 1));
        assert!(asked(missing, missing).is_err());
        assert!(matches!(known(missing()), Ok(list) if list.is_empty()));
        assert!(known(Err(NvmlError::GpuLost)).is_err());
    }
}
