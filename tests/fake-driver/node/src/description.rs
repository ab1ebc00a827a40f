//! The description of a node: written once by the test that makes it, read by every process that joins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, Instance};

/// A node, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The GPUs, in the order in which the driver counts them.
    pub gpus: Vec<Gpu>,
    /// Where the devices `nvidia0`, `nvidia1`, ... are: a process has the GPUs whose device it can open.
    pub devices: PathBuf,
    /// The CUDA version that the driver knows, as 13000 for 13.0.
    pub cuda: u32,
    /// The driver's own version.
    pub driver: String,
    /// Whether time passes by itself.
    pub clock: Clock,
    /// Whether NVML keeps accounts of processes (`nvidia-smi --accounting-mode`).
    pub accounting: bool,
    /// How long the memory of a process is still taken after its locks are free.
    pub lingering: Duration,
    /// Whether the GPUs have a scheduler of their own: time slices, and channels that can be held. Without it kernels run one
    /// after the other, over all processes.
    pub scheduler: bool,
    /// Whether the GPUs run firmware that holds channels (GSP). Without it the driver refuses that.
    pub firmware: bool,
    /// A function that takes 2 ms to begin and 2 ms to end: others call meanwhile.
    pub slow: Option<String>,
    /// Whether NVML leaves the process that asks out of its lists, as older drivers do in a PID namespace.
    pub unlisted: bool,
}

/// The time for which a call of [`Description::slow`] waits before it does anything, and again when it has done all.
pub(crate) const SLOWLY: Duration = Duration::from_millis(2);

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// As the machine's `CLOCK_MONOTONIC`.
    Real,
    /// By [`Node::advance`](crate::Node::advance) alone.
    Driven,
}

impl Description {
    /// A node with these GPUs, the measured driver, devices in `/dev` and a real clock.
    #[must_use]
    pub fn new(gpus: &[Gpu]) -> Description {
        Description {
            gpus: gpus.to_vec(),
            devices: "/dev".into(),
            cuda: 13_000,
            driver: "580.159.04".into(),
            clock: Clock::Real,
            accounting: false,
            lingering: Duration::ZERO,
            scheduler: false,
            firmware: true,
            slow: None,
            unlisted: false,
        }
    }

    /// The same with the devices elsewhere.
    #[must_use]
    pub fn devices(mut self, dir: impl AsRef<Path>) -> Description {
        self.devices = dir.as_ref().into();
        self
    }

    /// The same with a clock that only the test drives.
    #[must_use]
    pub fn driven(mut self) -> Description {
        self.clock = Clock::Driven;
        self
    }

    /// The same with a driver that knows another CUDA version.
    #[must_use]
    pub fn cuda(mut self, version: u32) -> Description {
        self.cuda = version;
        self
    }

    /// The same with NVML's accounts kept.
    #[must_use]
    pub fn accounting(mut self) -> Description {
        self.accounting = true;
        self
    }

    /// The same, but memory outlives its process by `time` on the node's clock, as it does on a real GPU.
    #[must_use]
    pub fn lingering(mut self, time: Duration) -> Description {
        self.lingering = time;
        self
    }

    /// The same with GPUs that have a scheduler of their own.
    #[must_use]
    pub fn scheduler(mut self) -> Description {
        self.scheduler = true;
        self
    }

    /// The same with GPUs whose channels cannot be held.
    #[must_use]
    pub fn without_firmware(mut self) -> Description {
        self.firmware = false;
        self
    }

    /// The same with an NVML that leaves the process that asks out of its lists.
    #[must_use]
    pub fn unlisted(mut self) -> Description {
        self.unlisted = true;
        self
    }

    /// The same with a driver of this version.
    #[must_use]
    pub fn driver(mut self, version: &str) -> Description {
        self.driver = version.into();
        self
    }

    /// Whether the driver's structures are those of before 535.
    #[must_use]
    pub fn is_old(&self) -> bool {
        let first = self.driver.split('.').next();
        first
            .and_then(|first| first.parse().ok())
            .is_some_and(|first: u32| first < 535)
    }

    /// The same with a function that is slow to begin and to end, by its name.
    #[must_use]
    pub fn slow(mut self, function: &str) -> Description {
        self.slow = Some(function.into());
        self
    }

    /// Everything that runs kernels and has memory of its own: GPUs that are whole, and the parts of those that are not.
    pub fn all_devices(&self) -> impl Iterator<Item = Device<'_>> {
        self.gpus.iter().flat_map(|gpu| {
            let whole = gpu.is_whole().then_some(None);
            let parts = gpu.instances().iter().map(Some);
            whole
                .into_iter()
                .chain(parts)
                .map(move |instance| Device { gpu, instance })
        })
    }

    /// The device with this number.
    #[must_use]
    pub fn device(&self, number: usize) -> Option<Device<'_>> {
        self.all_devices().nth(number)
    }
}

/// A GPU or a part of one, whatever CUDA can make a context on.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The part, where the GPU is divided.
    pub instance: Option<&'a Instance>,
}

impl<'a> Device<'a> {
    /// The UUID by which it is known everywhere.
    #[must_use]
    pub fn uuid(&self) -> &'a str {
        self.instance
            .map_or(&self.gpu.uuid, |instance| &instance.uuid)
    }

    /// CUDA's name for it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.instance {
            Some(instance) => format!("{} MIG {}", self.gpu.name, instance.profile),
            None => self.gpu.name.clone(),
        }
    }

    /// The bytes that CUDA can hand out.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.instance
            .map_or_else(|| self.gpu.usable(), |instance| instance.memory)
    }

    /// Its streaming multiprocessors.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.instance.map_or(self.gpu.multiprocessors, |instance| {
            instance.multiprocessors
        })
    }
}
