//! Ada and Hopper: the cards of today's clusters.

use super::Model;
use crate::gpu::{Gpu, Mig};

impl Gpu {
    /// An L40S of 48 GB, AD102. CUDA hands out 45464 MiB of it, as in the example policy.
    #[must_use]
    pub fn l40s(minor: u32) -> Gpu {
        Model {
            name: "NVIDIA L40S",
            pci: 0x26b9_10de,
            capability: (8, 9),
            multiprocessors: 142,
            threads_per_multiprocessor: 1536,
            memory: 46_068,
            reserved: 604,
            context: 370,
            clock: 2_520_000,
            mig: Mig::Incapable,
        }
        .gpu(minor)
    }

    /// An H200 of 141 GB, GH100: measured with driver 580.159. It can be divided, but is not.
    #[must_use]
    pub fn h200(minor: u32) -> Gpu {
        let mut gpu = Model {
            name: "NVIDIA H200",
            pci: 0x2335_10de,
            capability: (9, 0),
            multiprocessors: 132,
            threads_per_multiprocessor: 2048,
            memory: 143_771,
            reserved: 616,
            context: 518,
            clock: 1_980_000,
            mig: Mig::Disabled,
        }
        .gpu(minor);
        // Not whole MiB: 615.0625, which rounds up to the 616 that the policy has.
        gpu.reserved = gpu.memory - 150_109_880_320;
        gpu
    }
}
