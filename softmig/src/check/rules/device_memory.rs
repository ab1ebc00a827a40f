//! What others hold jobs to of GPU memory, against their slices: the smaller limit counts.

use crate::check::facts::{Cluster, DeviceMemory};
use crate::check::finding::{Code, Finding};

const MIB: u64 = 1 << 20;

/// What slurmd is told to do.
pub(crate) fn of_slurm(cluster: &Cluster) -> Option<Finding> {
    let cgroup = cluster.cgroup.as_ref().ok()?;
    cgroup.is_yes("ConstrainDeviceMemory").then(|| {
        Finding::new(
            Code::ConstrainDeviceMemory,
            "cgroup.conf",
            "ConstrainDeviceMemory=yes (Slurm 26.11): where the driver takes part, the kernel also holds jobs with shards, \
             to their part of all of a GPU's memory; a slice is smaller by its part of reserved_mib, and the smaller one \
             counts",
            "",
        )
    })
}

/// What the kernel does on this node.
pub(crate) fn of_node(memory: &DeviceMemory) -> Vec<Finding> {
    const PLACE: &str = "dmem controller";
    if memory.regions.is_empty() {
        return Vec::new();
    }
    let regions = memory.regions.iter();
    let regions: Vec<String> = regions
        .map(|(region, bytes)| format!("{region} of {} MiB", bytes / MIB))
        .collect();
    let mut found = vec![Finding::new(
        Code::DeviceMemoryKernel,
        PLACE,
        format!(
            "the kernel can hold jobs' memory of {}; {} of the slices here have a limit there",
            regions.join(", "),
            memory.limits.len()
        ),
        "",
    )];
    for limit in &memory.limits {
        if limit.bytes < u64::from(limit.slice_mib) * MIB {
            found.push(Finding::new(
                Code::DeviceMemorySmaller,
                PLACE,
                format!(
                    "job {}: dmem.max holds it to {} MiB of {}, its slice has {} MiB, and the smaller one counts",
                    limit.job,
                    limit.bytes / MIB,
                    limit.region,
                    limit.slice_mib
                ),
                "see who sets it: ConstrainDeviceMemory in cgroup.conf, or nvidia-smi memory-limits",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::facts::KernelLimit;
    use crate::check::rules::example::{cluster, codes};

    #[test]
    fn a_slurm_that_limits_memory_is_told_of() {
        let mut cluster = cluster();
        assert!(of_slurm(&cluster).is_none());
        let pairs = [
            ("ConstrainDevices", "yes"),
            ("ConstrainDeviceMemory", "yes"),
        ];
        cluster.cgroup = Ok(pairs.into_iter().collect());
        let found = of_slurm(&cluster).unwrap();
        assert_eq!(found.code, Code::ConstrainDeviceMemory);
    }

    #[test]
    fn the_smaller_limit_is_told_of() {
        assert!(of_node(&DeviceMemory::default()).is_empty());
        let limited = |bytes| DeviceMemory {
            regions: vec![("nvidia/0000:01:00/vidmem".into(), 46068 * MIB)],
            limits: vec![KernelLimit {
                job: 12,
                slice_mib: 11366,
                region: "nvidia/0000:01:00/vidmem".into(),
                bytes,
            }],
        };
        // A fourth of all, as Slurm has it; the slice itself; a byte less.
        for bytes in [11517 * MIB, 11366 * MIB] {
            assert_eq!(codes(&of_node(&limited(bytes))), ["DEVICE_MEMORY_KERNEL"]);
        }
        let found = of_node(&limited(11366 * MIB - 1));
        assert_eq!(
            codes(&found),
            ["DEVICE_MEMORY_KERNEL", "DEVICE_MEMORY_SMALLER"]
        );
        assert!(
            found[0]
                .what
                .ends_with("1 of the slices here have a limit there"),
            "{}",
            found[0]
        );
        assert!(
            found[1].what.contains("to 11365 MiB of nvidia/"),
            "{}",
            found[1]
        );
    }
}
