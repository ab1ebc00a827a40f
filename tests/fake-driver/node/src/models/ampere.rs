//! Ampere: the A100, whole or divided.

use super::Model;
use crate::MIB;
use crate::gpu::{Gpu, Instance, Mig};

/// The profiles of an A100 of 40 GB, from the MIG user guide: name, MiB, multiprocessors, slices of seven.
const PROFILES: [(&str, u64, u32, u32); 5] = [
    ("1g.5gb", 4_864, 14, 1),
    ("2g.10gb", 9_984, 28, 2),
    ("3g.20gb", 20_096, 42, 3),
    ("4g.20gb", 20_096, 56, 4),
    ("7g.40gb", 40_448, 98, 7),
];

impl Gpu {
    /// An A100-SXM4 of 40 GB, GA100, that is not divided.
    #[must_use]
    pub fn a100(minor: u32) -> Gpu {
        Model {
            name: "NVIDIA A100-SXM4-40GB",
            pci: 0x20b0_10de,
            capability: (8, 0),
            multiprocessors: 108,
            threads_per_multiprocessor: 2048,
            memory: 40_960,
            reserved: 424,
            context: 424,
            clock: 1_410_000,
            mig: Mig::Disabled,
        }
        .gpu(minor)
    }

    /// The same, divided into instances of these profiles (`1g.5gb`, `2g.10gb`, ...). Unknown names make none.
    #[must_use]
    pub fn a100_divided(minor: u32, profiles: &[&str]) -> Gpu {
        let mut gpu = Gpu::a100(minor);
        let known = profiles
            .iter()
            .filter_map(|name| PROFILES.iter().find(|profile| profile.0 == *name));
        // Only that the numbers differ matters; a real driver gives them out by placement.
        let instances = known.zip(1u32..).map(
            |(&(profile, memory, multiprocessors, slices), id)| Instance {
                profile: profile.into(),
                uuid: format!("MIG-{:08x}-{id:04x}-5000-8000-{minor:012x}", gpu.pci),
                id,
                memory: memory * MIB,
                multiprocessors,
                slices,
            },
        );
        gpu.mig = Mig::Enabled(instances.collect());
        gpu
    }
}
