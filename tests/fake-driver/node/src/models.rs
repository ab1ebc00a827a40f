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
            answers: Answers::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_h200_is_the_measured_one() {
        let gpu = Gpu::h200(0);
        assert_eq!(gpu.memory, 143_771 * MIB);
        assert_eq!(gpu.reserved.div_ceil(MIB), 616);
        assert_eq!(gpu.usable(), 150_109_880_320);
        assert_eq!(gpu.usable() / MIB, 143_155);
        assert_eq!(gpu.context, 518 * MIB);
    }

    #[test]
    fn gpus_of_one_node_differ() {
        let gpus = Gpu::several(4, Gpu::l40s);
        assert_eq!(gpus.len(), 4);
        assert_ne!(gpus[0].uuid, gpus[1].uuid);
        assert_ne!(gpus[0].bus, gpus[1].bus);
    }

    #[test]
    fn the_parts_of_a_divided_a100_fit_into_it() {
        let gpu = Gpu::a100_divided(0, &["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]);
        let parts: u64 = gpu.instances().iter().map(|part| part.memory).sum();
        assert!(parts <= gpu.memory);
        assert_eq!(gpu.instances().len(), 4);
        assert_ne!(gpu.instances()[2].uuid, gpu.instances()[3].uuid);
        assert_eq!(Gpu::a100_divided(0, &["9g.90gb"]).instances().len(), 0);
    }
}
