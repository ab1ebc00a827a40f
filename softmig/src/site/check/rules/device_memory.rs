//! Limits on jobs' GPU memory besides softmig's, compared with their slices. The smaller limit counts.

use crate::site::check::facts::DeviceMemory;
use crate::site::check::finding::{Code, Finding};
use softmig_policy::node::size::MIB;

/// The kernel's and the driver's part on this node.
pub(crate) fn of_node(memory: &DeviceMemory) -> Vec<Finding> {
    const PLACE: &str = "control groups";
    if memory.regions.is_empty() && memory.limits.is_empty() {
        return Vec::new();
    }
    let regions: Vec<String> = memory
        .regions
        .iter()
        .map(|(region, bytes)| format!("{region} of {} MiB", bytes / MIB))
        .collect();
    let backend = match regions.as_slice() {
        [] => "the driver".into(),
        regions => format!("the kernel's dmem controller ({})", regions.join(", ")),
    };
    let count = memory.limits.len();
    let mut found = vec![Finding::new(
        Code::DeviceMemoryLimits,
        PLACE,
        format!(
            "{backend} can hold jobs to a limit of GPU memory too; {count} of the slices here have one"
        ),
        "",
    )];
    for limit in &memory.limits {
        if limit.bytes < u64::from(limit.slice_mib) * MIB {
            let (job, by, slice) = (limit.job, &limit.by, limit.slice_mib);
            let mib = limit.bytes / MIB;
            found.push(Finding::new(
                Code::DeviceMemorySmaller,
                PLACE,
                format!(
                    "job {job} has a slice of {slice} MiB, and {by} holds it to {mib} MiB: the smaller one counts"
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
    use crate::site::check::facts::MemoryLimit;
    use crate::site::check::rules::example::codes;

    /// Job 12 with a slice and another limit.
    fn limited(bytes: u64) -> DeviceMemory {
        DeviceMemory {
            regions: vec![("nvidia/0000:01:00/vidmem".into(), 46068 * MIB)],
            limits: vec![MemoryLimit {
                job: 12,
                slice_mib: 11366,
                by: "dmem.max of nvidia/0000:01:00/vidmem".into(),
                bytes,
            }],
        }
    }

    #[test]
    fn the_smaller_limit_is_told_of() {
        assert!(of_node(&DeviceMemory::default()).is_empty());
        // A fourth of all, as Slurm has it; the slice itself; a byte less.
        for bytes in [11517 * MIB, 11366 * MIB] {
            assert_eq!(codes(&of_node(&limited(bytes))), ["DEVICE_MEMORY_LIMITS"]);
        }
        let found = of_node(&limited(11366 * MIB - 1));
        assert_eq!(
            codes(&found),
            ["DEVICE_MEMORY_LIMITS", "DEVICE_MEMORY_SMALLER"]
        );
        let words = "vidmem holds it to 11365 MiB";
        assert!(found[1].what.contains(words), "{}", found[1]);
    }
}
