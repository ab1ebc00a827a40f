//! A node's GPUs and MIG instances, as plain values.

use crate::memory::Memory;
use crate::setting::Setting;

/// The node as NVML shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// The driver's version.
    pub driver: Option<String>,
    /// The GPUs by their device's number. Those whose number could not be read come last.
    pub gpus: Vec<Gpu>,
}

/// One GPU. What could not be asked is missing, and `error` says why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// N of `/dev/nvidiaN`, which Slurm's index follows.
    pub minor: Option<u32>,
    /// `GPU-` and so on.
    pub uuid: Option<String>,
    /// Such as `NVIDIA L40S`.
    pub name: Option<String>,
    /// Its memory; also that of a divided GPU, which no job can have as a whole.
    pub memory: Option<Memory>,
    /// Its state of MIG; `None` if it has no MIG.
    pub mig: Option<Mig>,
    /// Its MIG instances, by NVML's index.
    pub instances: Vec<Instance>,
    /// The devices of it that a job can have.
    pub standing: MigState,
    /// What keeps jobs from sharing it, now or later.
    pub settings: Vec<Setting>,
    /// The first thing that failed.
    pub error: Option<String>,
}

/// Whether MIG is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mig {
    /// Whether it is on now.
    pub current: bool,
    /// Whether it is on after the next reset.
    pub pending: bool,
}

impl Mig {
    /// Whether the next reset changes that.
    pub fn is_switched(self) -> bool {
        self.current != self.pending
    }
}

/// A MIG instance that CUDA can have: a compute instance in a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// NVML's index in its GPU.
    pub index: u32,
    /// `MIG-` and so on.
    pub uuid: String,
    /// As nvidia-smi names it, such as `1g.10gb`.
    pub profile: String,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Whether that is also the memory of other compute instances in the same GPU instance (`1c.3g.20gb`).
    pub shares_memory: bool,
}

/// The devices of a GPU that a job can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigState {
    /// The GPU.
    Whole,
    /// Its MIG instances, and not the GPU.
    Divided,
    /// Nothing: MIG is on and has no instances.
    Empty,
    /// It is not known.
    #[default]
    Unreadable,
}

impl MigState {
    /// By what NVML said of MIG, and the number of instances that it showed.
    pub(crate) fn from_mode(mig: Option<Mig>, instances: usize) -> Self {
        match (mig.is_some_and(|mig| mig.current), instances) {
            (false, _) => Self::Whole,
            (true, 0) => Self::Empty,
            (true, _) => Self::Divided,
        }
    }
}

impl Devices {
    /// How many MIG instances there are.
    pub fn instances(&self) -> usize {
        self.gpus.iter().map(|gpu| gpu.instances.len()).sum()
    }

    /// How many devices a job can have: whole GPUs and MIG instances.
    pub fn usable(&self) -> usize {
        self.gpus.iter().map(Gpu::usable).sum()
    }

    /// Whether everything could be asked.
    pub fn is_complete(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.error.is_none())
    }
}

impl Gpu {
    /// How many devices a job can have of it.
    pub fn usable(&self) -> usize {
        match self.standing {
            MigState::Whole => 1,
            MigState::Divided => self.instances.len(),
            MigState::Empty | MigState::Unreadable => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Option<Mig> = Some(Mig {
        current: true,
        pending: true,
    });

    fn gpu(mig: Option<Mig>, instances: u32) -> Gpu {
        let instance = |index| Instance {
            index,
            uuid: format!("MIG-{index}"),
            profile: "1g.5gb".into(),
            memory: None,
            shares_memory: false,
        };
        let instances: Vec<_> = (0..instances).map(instance).collect();
        Gpu {
            mig,
            standing: MigState::from_mode(mig, instances.len()),
            instances,
            ..Gpu::default()
        }
    }

    fn counts(gpus: Vec<Gpu>) -> (usize, usize, usize) {
        let devices = Devices { driver: None, gpus };
        (devices.gpus.len(), devices.instances(), devices.usable())
    }

    #[test]
    fn mig_without_instances_is_nothing_that_a_job_can_have() {
        let empty = || gpu(ON, 0);
        assert_eq!(
            counts(vec![gpu(None, 0), empty(), empty(), empty()]),
            (4, 0, 1)
        );
    }

    #[test]
    fn of_a_divided_gpu_only_the_instances_can_be_had() {
        let four = || gpu(ON, 4);
        assert_eq!(
            counts(vec![gpu(None, 0), four(), four(), four()]),
            (4, 12, 13)
        );
    }

    #[test]
    fn mig_that_is_to_come_changes_nothing_now() {
        let mig = Some(Mig {
            current: false,
            pending: true,
        });
        assert_eq!(counts(vec![gpu(mig, 0)]), (1, 0, 1));
    }

    #[test]
    fn a_gpu_of_which_nothing_is_known_is_not_counted_as_usable() {
        assert_eq!(counts(vec![Gpu::default()]), (1, 0, 0));
    }
}
