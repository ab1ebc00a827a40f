//! A node with many jobs, for measurements of what the monitor costs. NVML's own time is not in them.

use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, Owner};
use crate::measure::Sample;
use crate::measure::reading::{GpuReading, Kind, Reading, User};
use crate::measure::report_rows::rows;
use rustix::time::{ClockId, clock_gettime};
use softmig_node::node::Node;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

pub(crate) const GPUS: u32 = 8;
pub(crate) const JOBS: u32 = 64;
pub(crate) const PROCESSES: u32 = 256;
pub(crate) const LOOKS: u32 = 200;

/// The processor time of this thread.
pub(crate) fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// The time of each of [`LOOKS`], and its part of a core where there is one a second.
pub(crate) fn each(begin: Duration) -> String {
    let each = (used() - begin) / LOOKS;
    let part = each.as_secs_f64() * 100.0;
    format!(
        "{GPUS} GPUs, {JOBS} jobs, {PROCESSES} processes: {each:?}, {part:.2} % of a core each second"
    )
}

fn uuid(gpu: u32) -> String {
    format!("GPU-50f7316a-0000-4000-8000-{gpu:012x}")
}

/// A node with jobs, each with processes on one of its GPUs.
pub(crate) struct Crowd {
    _folder: tempfile::TempDir,
    pub(crate) node: Node,
    /// The oldest job's number.
    pub(crate) first: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let crowd = Self {
            _folder: folder,
            node,
            first: 1,
        };
        (1..=JOBS).for_each(|job| crowd.begin(job));
        crowd
    }

    fn begin(&self, job: u32) {
        let run = &self.node.run;
        fs::create_dir_all(run.join(format!("jobs/{job}"))).unwrap();
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=5000M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB={job}\nSOFTMIG_UID=2001\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={}\n",
            uuid(job % GPUS)
        );
        fs::write(run.join(format!("{job}.conf")), text).unwrap();
        let ledger = vec![0; softmig_region::size(1)];
        fs::write(run.join(format!("jobs/{job}/ledger")), ledger).unwrap();
    }

    /// The oldest job ends, and another begins.
    pub(crate) fn turn_over(&mut self) {
        let run = &self.node.run;
        fs::remove_file(run.join(format!("{}.conf", self.first))).unwrap();
        fs::remove_dir_all(run.join(format!("jobs/{}", self.first))).unwrap();
        self.begin(self.first + JOBS);
        self.first += 1;
    }

    /// The numbers of all processes.
    pub(crate) fn pids(&self) -> std::ops::Range<u32> {
        let all = PROCESSES / JOBS;
        self.first * all..(self.first + JOBS) * all
    }

    /// The job of a process.
    pub(crate) fn job(pid: u32) -> u32 {
        pid / (PROCESSES / JOBS)
    }

    /// What NVML would say, with these numbers for the processes.
    pub(crate) fn reading(&self, real: impl Fn(u32) -> u32) -> Reading {
        let user = |pid| User {
            pid: real(pid),
            kinds: vec![Kind::Compute],
            memory: Some(500 << 20),
            instance: None,
        };
        let on = |index| {
            self.pids()
                .filter(move |&pid| Self::job(pid) % GPUS == index)
        };
        let gpu = |index| GpuReading {
            index,
            uuid: Some(uuid(index)),
            users: Some(on(index).map(user).collect()),
            ..GpuReading::default()
        };
        Reading {
            driver: None,
            gpus: (0..GPUS).map(gpu).collect(),
        }
    }

    /// The measurement of a moment.
    pub(crate) fn sample(&self) -> Sample {
        let owner = |pid: u32| Owner::Process {
            uid: 2001,
            name: "python3".into(),
            place: Membership::Job(Self::job(pid)),
            began: 1,
        };
        let owners = self.pids().map(|pid| (pid, owner(pid))).collect();
        self.sample_of(&self.reading(|pid| pid), owners)
    }

    /// The measurement with these owners of processes.
    pub(crate) fn sample_of(&self, reading: &Reading, owners: BTreeMap<u32, Owner>) -> Sample {
        let confs = Confs::read(&self.node).unwrap();
        Sample {
            report: rows(reading, &owners, &confs),
            owners,
            confs,
            ..Sample::default()
        }
    }
}
