//! Who may keep memory that is in no process's figure: processes of jobs with slices that have the driver's devices open, and no
//! context. The memory can be another process's, which passed its descriptor on and ended.
//!
//! Only the names of open files are read. To ask a file itself could take as long as a user's own file system likes.

use crate::enforce::look::{Holder, Stray};
use crate::jobs::owner::{Owner, Place, owner};
use crate::measure::Sight;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// So much the driver and managed memory within slices may have that is in nobody's figure, in bytes.
pub const KEPT: u64 = 256 << 20;

/// No more files of a process are looked at.
const MOST_FILES: usize = 65_536;

/// What a measurement leaves unexplained, and who may keep it.
pub fn strays(proc: &Path, sight: &Sight) -> Vec<Stray> {
    let unexplained =
        |gpu: &&crate::measure::report::Gpu| !gpu.mig && gpu.unlisted_bytes > Some(KEPT);
    let gpus: Vec<_> = sight.report.gpus.iter().filter(unexplained).collect();
    if gpus.is_empty() {
        return Vec::new();
    }
    let candidates = candidates(proc, sight);
    let strays = gpus.into_iter().filter_map(|gpu| {
        let uuid = gpu.uuid.clone()?;
        let listed: BTreeSet<u32> = gpu.processes.iter().map(|process| process.pid).collect();
        let holders = candidates.iter().filter(|(job, pid)| {
            let conf = sight
                .confs
                .jobs
                .get(job)
                .and_then(|conf| conf.as_ref().ok());
            let mut gpus = conf
                .into_iter()
                .flat_map(|conf| conf.gpus.iter())
                .peekable();
            let may_be = gpus.peek().is_none() || gpus.any(|gpu| gpu.as_str() == uuid);
            may_be && !listed.contains(pid)
        });
        let holders: Vec<_> = holders.map(|&(job, pid)| (Holder::Job(job), pid)).collect();
        (!holders.is_empty()).then(|| Stray {
            gpu: uuid,
            bytes: gpu.unlisted_bytes.unwrap_or(0),
            holders,
        })
    });
    strays.collect()
}

/// Processes of jobs with slices that have the driver's devices open.
fn candidates(proc: &Path, sight: &Sight) -> Vec<(u32, u32)> {
    let has_slice = |job: &u32| {
        let conf = sight
            .confs
            .jobs
            .get(job)
            .and_then(|conf| conf.as_ref().ok());
        conf.is_some_and(|conf| conf.limits.is_some())
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let candidates = pids.filter_map(|pid| {
        let Owner::Process {
            place,
            is_root: false,
            ..
        } = owner(proc, pid)
        else {
            return None;
        };
        let job = match place {
            Place::Job(job) => Some(job),
            Place::Sluid(sluid) => sight.confs.sluids.get(&sluid).copied(),
            Place::Outside => None,
        };
        let job = job.filter(has_slice)?;
        has_driver_open(&proc.join(pid.to_string())).then_some((job, pid))
    });
    candidates.collect()
}

fn has_driver_open(process: &Path) -> bool {
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    let mut names = files
        .take(MOST_FILES)
        .filter_map(|file| fs::read_link(file.path()).ok());
    names.any(|name| {
        name.to_str()
            .is_some_and(|name| name.starts_with("/dev/nvidia"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::confs::Confs;
    use crate::measure::report::{Gpu, Report};
    use softmig_policy::node::job_conf::JobConf;
    use std::os::unix::fs::symlink;

    const GPU: &str = "GPU-50f7316a-0000-4000-8000-000000000000";

    /// A process of a job that has this file open.
    fn process(proc: &Path, pid: u32, uid: u32, job: u32, file: &str) {
        let process = proc.join(pid.to_string());
        fs::create_dir_all(process.join("fd")).unwrap();
        let status = format!("Name:\tx\nUid:\t{uid}\t{uid}\n");
        let stat = format!("{pid} (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n");
        let group = format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n");
        fs::write(process.join("status"), status).unwrap();
        fs::write(process.join("stat"), stat).unwrap();
        fs::write(process.join("cgroup"), group).unwrap();
        symlink(file, process.join("fd/3")).unwrap();
    }

    fn conf(job: u32, uid: u32) -> (u32, Result<JobConf, String>) {
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_JOB={job}\nSOFTMIG_UID={uid}\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={GPU}\n"
        );
        (job, Ok(JobConf::parse(text.as_bytes()).unwrap()))
    }

    #[test]
    fn an_exporter_that_ended_is_found_by_its_descriptor() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        // The exporter, 100, is no more; 101 keeps what it passed on.
        process(proc, 101, 2001, 12, "/dev/nvidiactl");
        process(proc, 102, 2001, 12, "/home/alice/nvidia");
        process(proc, 103, 0, 12, "/dev/nvidia0");
        // In a job without limits.
        process(proc, 104, 2002, 13, "/dev/nvidia0");
        let sight = |unlisted: u64| Sight {
            report: Report {
                gpus: vec![Gpu {
                    uuid: Some(GPU.into()),
                    unlisted_bytes: Some(unlisted),
                    ..Gpu::default()
                }],
                ..Report::default()
            },
            confs: Confs {
                jobs: [conf(12, 2001)].into(),
                ..Confs::default()
            },
            ..Sight::default()
        };
        assert_eq!(strays(proc, &sight(KEPT)), []);
        let found = Stray {
            gpu: GPU.into(),
            bytes: 10 << 30,
            holders: vec![(Holder::Job(12), 101)],
        };
        assert_eq!(strays(proc, &sight(10 << 30)), [found]);
    }
}
