//! The processes that may keep memory that is in no process's figure: processes of jobs with slices that have the
//! driver's devices open, and no context. The memory can be another process's, which passed its descriptor on and
//! ended.
//!
//! Only the names of open files are read. To ask a file itself could take as long as a user's own file system likes.

use crate::enforce::observation::{Holder, Unattributed};
use crate::jobs::owner::{Membership, user_and_place};
use crate::jobs::patience::within_a_moment;
use crate::measure::Sample;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The memory that the driver and managed memory within slices may have in no process's figure, in bytes.
pub const KEPT: u64 = 256 << 20;

/// No more files of a process are looked at.
const MOST_FILES: usize = 65_536;

/// No more files are looked at in one scan, of all processes together: a user can open very many, and measuring waits meanwhile.
/// They take some 10 ms.
pub const MOST_OF_A_SCAN: usize = 5_000;

/// The files of `/proc` that it takes to tell whose a process is, with its folder.
const FILES_OF_AN_OWNER: usize = 3;

/// A scan of all processes, which goes on where the one before it ended.
#[derive(Debug, Default)]
pub struct Scan {
    /// The process it begins with, and how many of its files were looked at.
    next: (u32, usize),
    /// Processes of jobs with slices that have the driver's devices open, and their jobs.
    found: BTreeMap<u32, u32>,
}

/// The memory that a measurement leaves unexplained, and the jobs that may keep it. At most `most` files are looked at.
pub fn unattributed(
    proc: &Path,
    sample: &Sample,
    scan: &mut Scan,
    most: usize,
) -> Vec<Unattributed> {
    let unexplained =
        |gpu: &&crate::measure::report::GpuReport| !gpu.mig && gpu.unlisted_bytes > Some(KEPT);
    let gpus: Vec<_> = sample.report.gpus.iter().filter(unexplained).collect();
    if gpus.is_empty() {
        return Vec::new();
    }
    scan.go_on(proc, sample, most);
    let unattributed = gpus.into_iter().filter_map(|gpu| {
        let uuid = gpu.uuid.clone()?;
        let listed: BTreeSet<u32> = gpu.processes.iter().map(|process| process.pid).collect();
        let holders = scan.found.iter().filter(|(pid, job)| {
            let conf = sample
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
        let holders: Vec<_> = holders
            .map(|(&pid, &job)| (Holder::Job(job), pid))
            .collect();
        (!holders.is_empty()).then(|| Unattributed {
            gpu: uuid,
            bytes: gpu.unlisted_bytes.unwrap_or(0),
            holders,
        })
    });
    unattributed.collect()
}

impl Scan {
    fn go_on(&mut self, proc: &Path, sample: &Sample, mut left: usize) {
        let entries = fs::read_dir(proc).into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut pids: Vec<u32> = pids.collect();
        pids.sort_unstable();
        self.found.retain(|pid, _| pids.binary_search(pid).is_ok());
        let (first, seen) = std::mem::take(&mut self.next);
        let begin = pids.partition_point(|&pid| pid < first);
        pids.rotate_left(begin);
        for pid in pids {
            let seen = if pid == first { seen } else { 0 };
            if left < FILES_OF_AN_OWNER {
                self.next = (pid, seen);
                return;
            }
            left -= FILES_OF_AN_OWNER;
            let Some((uid, job)) = job_with_slice(proc, pid, sample) else {
                self.found.remove(&pid);
                continue;
            };
            let process = proc.join(pid.to_string());
            let looked = within_a_moment(uid, pid, move || {
                let mut fewer = left;
                (has_driver_open(&process, seen, &mut fewer), fewer)
            });
            // What cannot be looked at is as it was.
            let Some((is_open, fewer)) = looked else {
                continue;
            };
            left = fewer;
            match is_open {
                Ok(true) => drop(self.found.insert(pid, job)),
                Ok(false) => drop(self.found.remove(&pid)),
                Err(seen) => {
                    self.next = (pid, seen);
                    return;
                }
            }
        }
    }
}

/// The user and the job of a process that is a user's in a job with a slice.
fn job_with_slice(proc: &Path, pid: u32, sample: &Sample) -> Option<(u32, u32)> {
    let (uid, place) = user_and_place(proc, pid).ok()?;
    if uid == 0 {
        return None;
    }
    let job = match place {
        Membership::Job(job) => job,
        Membership::Sluid(sluid) => *sample.confs.sluids.get(&sluid)?,
        Membership::Outside => return None,
    };
    let conf = sample.confs.jobs.get(&job)?.as_ref().ok()?;
    conf.limits.map(|_| (uid, job))
}

/// Whether one of the process's files after the first `seen` is a device of the driver. Returns as an error how many files
/// were looked at when none was `left` to look at.
fn has_driver_open(process: &Path, seen: usize, left: &mut usize) -> Result<bool, usize> {
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    for (number, file) in files.take(MOST_FILES).enumerate().skip(seen) {
        let Some(fewer) = left.checked_sub(1) else {
            return Err(number);
        };
        *left = fewer;
        let name = fs::read_link(file.path()).unwrap_or_default();
        if (name.to_str()).is_some_and(|name| name.starts_with("/dev/nvidia")) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::confs::Confs;
    use crate::measure::report::{GpuReport, Report};
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

    /// A node with job 12, which has a slice, and with `unlisted` bytes that are in the figure of no process.
    fn sample(unlisted: u64) -> Sample {
        Sample {
            report: Report {
                gpus: vec![GpuReport {
                    uuid: Some(GPU.into()),
                    unlisted_bytes: Some(unlisted),
                    ..GpuReport::default()
                }],
                ..Report::default()
            },
            confs: Confs {
                jobs: [conf(12, 2001)].into(),
                ..Confs::default()
            },
            ..Sample::default()
        }
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
        let unattributed =
            |sample: &Sample| unattributed(proc, sample, &mut Scan::default(), MOST_OF_A_SCAN);
        assert_eq!(unattributed(&sample(KEPT)), []);
        let found = Unattributed {
            gpu: GPU.into(),
            bytes: 10 << 30,
            holders: vec![(Holder::Job(12), 101)],
        };
        assert_eq!(unattributed(&sample(10 << 30)), [found]);
    }

    #[test]
    fn a_scan_looks_at_so_many_files_and_the_next_one_goes_on_there() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 101, 2001, 12, "/home/alice/data");
        for number in 4..104 {
            let file = proc.join(format!("101/fd/{number}"));
            symlink("/home/alice/data", file).unwrap();
        }
        process(proc, 102, 2001, 12, "/dev/nvidiactl");
        let mut scan = Scan::default();
        let mut scans = 0;
        while unattributed(proc, &sample(10 << 30), &mut scan, 20).is_empty() {
            scans += 1;
            assert!(scans < 20, "{scan:?}");
        }
        // 17 of the 101 files of the first in each scan; the sixth one has too few left for the second.
        assert_eq!(scans, 6);
        fs::remove_dir_all(proc.join("102")).unwrap();
        assert_eq!(unattributed(proc, &sample(10 << 30), &mut scan, 20), []);
    }
}
