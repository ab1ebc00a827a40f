//! The limits of the kernel or the driver on the GPU memory of jobs' control groups, of version 2.
//!
//! The kernel has the dmem controller from Linux 6.14 on. A driver that takes part registers a region for each GPU, such
//! as `nvidia/0000:01:00/vidmem`. `dmem.capacity` of the root has their sizes and `dmem.max` of each group its limits, in
//! bytes. Slurm 26.11 sets these by `ConstrainDeviceMemory=yes`, and NVML by `nvmlDeviceSetMemoryLimits_v1` from driver
//! 615 on. With older kernels the driver keeps NVML's limits itself.

use crate::site::check::facts::{DeviceMemory, MemoryLimit};
use softmig_node::job::JobId;
use softmig_node::node::{Node, conf_name};
use softmig_policy::node::job_conf::JobConf;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows control groups of version 2.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";

/// Asks the driver for the limit of a group on a GPU.
pub(crate) type Ask<'a> = &'a dyn Fn(&str, &Path) -> Option<u64>;

/// Looks at the control groups of the jobs that these processes belong to.
pub(crate) fn look(
    cgroups: &Path,
    node: &Node,
    processes: &[(JobId, Vec<u8>)],
    ask: Ask<'_>,
) -> DeviceMemory {
    let regions = sizes(&cgroups.join("dmem.capacity"));
    let groups: BTreeMap<u32, PathBuf> = processes
        .iter()
        .filter_map(|(job, text)| Some((job.get(), cgroups.join(group(*job, text)?))))
        .collect();
    let limits = groups
        .iter()
        .flat_map(|(job, group)| of_job(*job, group, node, ask))
        .collect();
    DeviceMemory { regions, limits }
}

/// The job's own group, relative, from a list of a process's groups.
fn group(job: JobId, text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let name = format!("job_{}", job.get());
    let folders: Vec<&str> = path.split('/').collect();
    let depth = folders.iter().position(|folder| *folder == name)?;
    Some(folders.get(..=depth)?.join("/"))
}

/// The limits of a slice job on its own GPUs.
fn of_job(job: u32, group: &Path, node: &Node, ask: Ask<'_>) -> Vec<MemoryLimit> {
    let id = JobId::parse(&job.to_string());
    let text = id.and_then(|id| fs::read(node.run.join(conf_name(id))).ok());
    let conf = text.and_then(|text| JobConf::parse(&text).ok());
    let Some((conf, limits)) = conf.and_then(|conf| Some((conf, conf.limits?))) else {
        return Vec::new();
    };
    let addresses = addresses(&node.gpus);
    let by_kernel = sizes(&group.join("dmem.max"));
    let of_gpu = |uuid: &str| {
        let address = addresses.get(uuid)?;
        let own = by_kernel.iter().find(|(region, _)| is_at(region, address));
        own.map(|(region, bytes)| (format!("dmem.max of {region}"), *bytes))
    };
    let gpus = conf.gpus.iter().filter_map(|gpu| {
        let uuid = gpu.as_str();
        of_gpu(uuid).or_else(|| Some((format!("the driver's limit on {uuid}"), ask(uuid, group)?)))
    });
    gpus.map(|(by, bytes)| MemoryLimit {
        job,
        slice_mib: limits.memory_mib(),
        by,
        bytes,
    })
    .collect()
}

/// Lines of a region and a number of bytes; those with `max` are left out.
fn sizes(path: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .filter_map(|(region, bytes)| Some((region.into(), bytes.parse().ok()?)))
        .collect()
}

/// The PCI address of each GPU by its UUID, such as `0000:01:00.0`: the driver's folders are named so.
fn addresses(gpus: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(gpus).into_iter().flatten().flatten();
    let address = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("information")).ok()?;
        let uuid = text
            .lines()
            .find_map(|line| line.strip_prefix("GPU UUID:"))?;
        Some((uuid.trim().into(), entry.file_name().into_string().ok()?))
    };
    entries.filter_map(address).collect()
}

/// Whether a region is of the GPU at this address. NVIDIA's regions leave the function out.
fn is_at(region: &str, address: &str) -> bool {
    let short = address.split('.').next().unwrap_or_default();
    region
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(address) || part.eq_ignore_ascii_case(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-11111111-2222-3333-4444-555555555555";
    const OTHER: &str = "GPU-99999999-2222-3333-4444-555555555555";

    /// A node with two GPUs and job 12, a quarter of the first.
    fn node(folder: &Path) -> Node {
        let node = Node::in_folder(folder, 0);
        for (address, uuid) in [("0000:01:00.0", UUID), ("0000:02:00.0", OTHER)] {
            let folder = node.gpus.join(address);
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Model: \t NVIDIA L40S\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n");
            fs::write(folder.join("information"), text).unwrap();
        }
        fs::create_dir_all(&node.run).unwrap();
        let conf = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB=12\nSOFTMIG_UID=2001\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={UUID}\n"
        );
        fs::write(node.run.join("12.conf"), conf).unwrap();
        node
    }

    fn seen(capacity: &str, max: &str, by_driver: Option<u64>) -> DeviceMemory {
        let folder = tempfile::tempdir().unwrap();
        let cgroups = folder.path().join("cgroup");
        let job = "system.slice/slurmstepd.scope/job_12";
        fs::create_dir_all(cgroups.join(job)).unwrap();
        fs::write(cgroups.join("dmem.capacity"), capacity).unwrap();
        fs::write(cgroups.join(job).join("dmem.max"), max).unwrap();
        let place = format!("0::/{job}/step_0/user/task_0\n").into_bytes();
        let processes = [
            (JobId::parse("12").unwrap(), place.clone()),
            (JobId::parse("12").unwrap(), place),
            // This job has no conf.
            (JobId::parse("13").unwrap(), b"0::/else/job_13\n".to_vec()),
        ];
        // The driver knows a limit only for the group of this name.
        let ask = |uuid: &str, group: &Path| {
            let own = uuid == UUID && group == cgroups.join(job);
            own.then_some(by_driver).flatten()
        };
        look(&cgroups, &node(folder.path()), &processes, &ask)
    }

    #[test]
    fn the_limits_of_a_job_are_those_of_its_own_gpu() {
        const REGION: &str = "nvidia/0000:01:00/vidmem";
        const CAPACITY: &str =
            "nvidia/0000:01:00/vidmem 48305799168\nnvidia/0000:02:00/vidmem 48305799168\n";
        let limit = |by: &str, bytes| MemoryLimit {
            job: 12,
            slice_mib: 11366,
            by: by.into(),
            bytes,
        };
        let by_driver = limit(&format!("the driver's limit on {UUID}"), 9 << 30);
        assert_eq!(seen("", "", None), DeviceMemory::default());
        assert_eq!(seen("", "", Some(9 << 30)).limits, [by_driver]);
        assert!(seen(CAPACITY, "", None).limits.is_empty());
        let max = format!("{REGION} max\nnvidia/0000:02:00/vidmem 0\n");
        assert!(seen(CAPACITY, &max, None).limits.is_empty());
        let found = seen(CAPACITY, &max.replace("max", "12076449792"), Some(9 << 30));
        assert_eq!(found.regions.len(), 2);
        let by_kernel = limit(&format!("dmem.max of {REGION}"), 12_076_449_792);
        assert_eq!(found.limits, [by_kernel]);
    }

    #[test]
    fn a_region_names_its_gpu_with_or_without_the_function() {
        for region in ["nvidia/0000:0A:00/vidmem", "drm/0000:0a:00.0/vram"] {
            assert!(is_at(region, "0000:0a:00.0"), "{region}");
            assert!(!is_at(region, "0000:0b:00.0"), "{region}");
        }
    }
}
