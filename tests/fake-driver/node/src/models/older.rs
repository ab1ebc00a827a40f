//! Pascal, Volta and Turing: cards that cannot be divided, and course nodes still have.

use super::Model;
use crate::gpu::{Gpu, Mig};

impl Gpu {
    /// A GeForce GTX 1080 Ti: 11 GB, GP102.
    #[must_use]
    pub fn gtx1080ti(minor: u32) -> Gpu {
        Model {
            name: "NVIDIA GeForce GTX 1080 Ti",
            pci: 0x1b06_10de,
            capability: (6, 1),
            multiprocessors: 28,
            threads_per_multiprocessor: 2048,
            memory: 11_264,
            reserved: 86,
            context: 143,
            clock: 1_582_000,
            mig: Mig::Incapable,
        }
        .gpu(minor)
    }

    /// A Tesla V100-SXM2 of 32 GB, GV100.
    #[must_use]
    pub fn v100(minor: u32) -> Gpu {
        Model {
            name: "Tesla V100-SXM2-32GB",
            pci: 0x1db5_10de,
            capability: (7, 0),
            multiprocessors: 80,
            threads_per_multiprocessor: 2048,
            memory: 32_768,
            reserved: 258,
            context: 306,
            clock: 1_530_000,
            mig: Mig::Incapable,
        }
        .gpu(minor)
    }

    /// A TITAN RTX of 24 GB, TU102.
    #[must_use]
    pub fn titanrtx(minor: u32) -> Gpu {
        Model {
            name: "NVIDIA TITAN RTX",
            pci: 0x1e02_10de,
            capability: (7, 5),
            multiprocessors: 72,
            threads_per_multiprocessor: 1024,
            memory: 24_576,
            reserved: 356,
            context: 163,
            clock: 1_770_000,
            mig: Mig::Incapable,
        }
        .gpu(minor)
    }
}
