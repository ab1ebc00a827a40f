//! One GPU, as data.

use serde::{Deserialize, Serialize};

/// A GPU as NVML and CUDA describe it. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's name for the model.
    pub name: String,
    /// `GPU-...`.
    pub uuid: String,
    /// N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Where it sits on the PCI bus, as in `0000:21:00.0`.
    pub bus: String,
    /// PCI device and vendor.
    pub pci: u32,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads that one of them holds at most.
    pub threads_per_multiprocessor: u32,
    /// All of its memory, as NVML reports it.
    pub memory: u64,
    /// The bytes of it that the driver keeps: NVML's `reserved`. CUDA's total is the rest.
    pub reserved: u64,
    /// The bytes that one context takes.
    pub context: u64,
    /// SM clock in kHz.
    pub clock: u32,
    /// Whether it can be divided, and into what it is.
    pub mig: Mig,
    /// Whether MIG will be on after the next reset, where that differs from now.
    pub mig_pending: Option<bool>,
    /// `NVML_COMPUTEMODE_*`: what NVML says of it. CUDA does not depend on this.
    pub compute_mode: u32,
    /// The answers that NVML has about it. CUDA does not depend on this.
    pub answers: Answers,
}

/// The answers that NVML has about a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answers {
    /// Everything.
    All,
    /// No memory info v2, and so not what the driver keeps.
    NoMemoryV2,
    /// Nothing: it fell off the bus, but still counts.
    Nothing,
}

/// Whether a GPU can be divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mig {
    /// It cannot.
    Incapable,
    /// It could be.
    Disabled,
    /// It is.
    Enabled(Vec<Instance>),
}

/// A part of a GPU that the hardware fences off: one GPU instance with one compute instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// As in `1g.5gb`, or `1c.3g.20gb` for one slice of three.
    pub profile: String,
    /// `MIG-...`.
    pub uuid: String,
    /// NVML's number of the GPU instance.
    pub id: u32,
    /// Its memory, all of which CUDA can hand out.
    pub memory: u64,
    /// Its streaming multiprocessors.
    pub multiprocessors: u32,
    /// Its slices, of seven.
    pub slices: u32,
}

impl Gpu {
    /// `count` GPUs of a model, with minors from 0.
    pub fn several(count: u32, model: impl Fn(u32) -> Gpu) -> Vec<Gpu> {
        (0..count).map(model).collect()
    }

    /// The same GPU with another UUID.
    #[must_use]
    pub fn with_uuid(mut self, uuid: &str) -> Gpu {
        self.uuid = uuid.into();
        self
    }

    /// The same GPU elsewhere on the PCI bus.
    #[must_use]
    pub fn with_bus(mut self, bus: &str) -> Gpu {
        self.bus = bus.into();
        self
    }

    /// The same GPU with less to say to NVML.
    #[must_use]
    pub fn answering(mut self, answers: Answers) -> Gpu {
        self.answers = answers;
        self
    }

    /// The bytes that CUDA can hand out.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.memory.saturating_sub(self.reserved)
    }

    /// Its parts, where it is divided.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        match &self.mig {
            Mig::Enabled(instances) => instances,
            Mig::Incapable | Mig::Disabled => &[],
        }
    }

    /// Whether it is one device. A GPU in MIG mode is not, even without parts.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !matches!(self.mig, Mig::Enabled(_))
    }
}

impl Instance {
    /// Its compute slices, which are all of its slices unless its profile says otherwise.
    #[must_use]
    pub fn compute_slices(&self) -> u32 {
        let first = self.profile.split('.').next();
        let compute = first.and_then(|first| first.strip_suffix('c')?.parse().ok());
        compute.unwrap_or(self.slices)
    }
}
