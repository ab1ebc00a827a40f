//! The models of GPU that tests know, one file for each generation of them.
//!
//! Total memory, multiprocessors, compute capability and PCI device are published (NVIDIA's data sheets, the MIG user
//! guide, and the output of `nvidia-smi` and `deviceQuery` that users post). Of the H200 everything was measured with
//! driver 580.159; what a context takes and the driver keeps on the others is plausible, and no more than that.

mod ampere;
mod hopper;
mod older;

use crate::MIB;
use crate::gpu::{Answers, Gpu, Mig};

/// The figures that all GPUs of a model have in common. Sizes are MiB.
struct Model {
    name: &'static str,
    pci: u32,
    capability: (u32, u32),
    multiprocessors: u32,
    threads_per_multiprocessor: u32,
    memory: u64,
    reserved: u64,
    context: u64,
    clock: u32,
    mig: Mig,
}

impl Model {
    /// The one behind `/dev/nvidia<minor>`, with a UUID and a place on the bus that are the same in every run.
    fn gpu(self, minor: u32) -> Gpu {
        Gpu {
            name: self.name.into(),
            uuid: format!("GPU-{:08x}-0000-4000-8000-{minor:012x}", self.pci),
            minor,
            bus: format!("0000:{:02x}:00.0", 0x21 + minor),
            pci: self.pci,
            capability: self.capability,
            multiprocessors: self.multiprocessors,
            threads_per_multiprocessor: self.threads_per_multiprocessor,
            memory: self.memory * MIB,
            reserved: self.reserved * MIB,
            context: self.context * MIB,
            clock: self.clock,
            mig: self.mig,
            mig_pending: None,
            compute_mode: 0,
            answers: Answers::All,
        }
    }
}
