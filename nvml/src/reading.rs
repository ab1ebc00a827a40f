//! Asks NVML for what [`Devices`] has.

use crate::devices::{Devices, Gpu, Instance, Mig, MigState};
use crate::library::open;
use crate::memory::{self, memory};
use crate::profile::{self, Sizes};
use crate::setting::Setting;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

impl Devices {
    /// Those of this node, as they are now.
    ///
    /// # Errors
    /// NVML's as a whole; that of one GPU is in its place.
    pub fn of_this_node() -> Result<Self, NvmlError> {
        Self::read(&open()?)
    }

    /// Those that NVML shows.
    ///
    /// # Errors
    /// As [`Devices::of_this_node`].
    pub fn read(nvml: &Nvml) -> Result<Self, NvmlError> {
        let count = nvml.device_count()?;
        let mut gpus: Vec<_> = (0..count).map(|index| gpu(nvml, index)).collect();
        gpus.sort_by_key(|gpu| (gpu.minor.unwrap_or(u32::MAX), gpu.index));
        Ok(Self {
            driver: nvml.sys_driver_version().ok(),
            gpus,
        })
    }
}

fn gpu(nvml: &Nvml, index: u32) -> Gpu {
    let mut gpu = Gpu {
        index,
        ..Gpu::default()
    };
    // Each question by itself: a card that has no answer to one may have them to the others.
    let asked = nvml.device_by_index(index).map(|device| {
        let mut first = First::default();
        gpu.minor = first.or_say("minor number", device.minor_number());
        gpu.uuid = first.or_say("UUID", device.uuid());
        gpu.name = first.or_say("name", device.name());
        match mig(&device) {
            Err(error) => first.say(format!("MIG: {error}")),
            Ok(mig) => {
                let divided = mig.is_some_and(|mig| mig.current);
                let all = if divided {
                    instances(&device, &mut gpu.instances)
                } else {
                    Ok(())
                };
                gpu.mig = mig;
                gpu.standing = MigState::from_mode(mig, gpu.instances.len());
                if let Err(error) = all {
                    first.say(format!("MIG instances: {error}"));
                    // NVML failed, so the GPU may have instances.
                    if gpu.standing == MigState::Empty {
                        gpu.standing = MigState::Unreadable;
                    }
                }
            }
        }
        gpu.settings = Setting::all(&device, gpu.mig.is_some_and(Mig::is_switched));
        match memory(&device) {
            Ok(memory) => gpu.memory = Some(memory),
            Err(error) => first.say(memory::unknown(&error)),
        }
        first.0
    });
    gpu.error = asked.unwrap_or_else(|error| Some(error.to_string()));
    gpu
}

/// The first thing that went wrong.
#[derive(Default)]
struct First(Option<String>);

impl First {
    fn say(&mut self, what: String) {
        self.0.get_or_insert(what);
    }

    fn or_say<T>(&mut self, what: &str, answer: Result<T, NvmlError>) -> Option<T> {
        answer
            .map_err(|error| self.say(format!("{what}: {error}")))
            .ok()
    }
}

/// Most GPUs cannot be divided, and old drivers do not know the word.
fn mig(device: &Device<'_>) -> Result<Option<Mig>, NvmlError> {
    match device.mig_mode() {
        Ok(mode) => Ok(Some(Mig {
            current: mode.current == 1,
            pending: mode.pending == 1,
        })),
        Err(
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds the MIG instances of a GPU. Between two of them there may be numbers without one.
fn instances(device: &Device<'_>, found: &mut Vec<Instance>) -> Result<(), NvmlError> {
    let total = memory(device).ok().map(|memory| memory.total);
    for index in 0..device.mig_device_count()? {
        let part = match device.mig_device_by_index(index) {
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            part => part?,
        };
        let name = part.name().ok();
        let profile = match name.as_deref().and_then(profile::in_name) {
            Some(profile) => profile.to_owned(),
            None => sizes(&part)?.profile(total),
        };
        found.push(Instance {
            index,
            uuid: part.uuid()?,
            shares_memory: profile::shares_memory(&profile),
            profile,
            memory: memory(&part).ok(),
        });
    }
    Ok(())
}

fn sizes(part: &Device<'_>) -> Result<Sizes, NvmlError> {
    let attributes = part.attributes()?;
    Ok(Sizes {
        slices: attributes.gpu_instance_slice_count,
        compute_slices: attributes.compute_instance_slice_count,
        memory_mib: attributes.memory_size_mb,
    })
}
