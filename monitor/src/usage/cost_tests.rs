//! The cost of telling the usage, without NVML's own time and without measuring, which `enforce::cost_tests` has.

use super::{Keeper, Shared};
use crate::enforce::tally::Tally;
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

const GPUS: u32 = 8;
const JOBS: u32 = 64;
const PROCESSES: u32 = 256;
const LOOKS: u32 = 200;

fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn uuid(gpu: u32) -> String {
    format!("GPU-50f7316a-0000-4000-8000-{gpu:012x}")
}

/// A node with jobs, each with processes on one of its GPUs.
pub(super) struct Crowd {
    _folder: tempfile::TempDir,
    pub(super) node: Node,
    /// The oldest job's number.
    first: u32,
}

impl Crowd {
    pub(super) fn new() -> Self {
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
    fn turn_over(&mut self) {
        let run = &self.node.run;
        fs::remove_file(run.join(format!("{}.conf", self.first))).unwrap();
        fs::remove_dir_all(run.join(format!("jobs/{}", self.first))).unwrap();
        self.begin(self.first + JOBS);
        self.first += 1;
    }

    /// The measurement of a moment.
    pub(super) fn sample(&self) -> Sample {
        let (first, all) = (self.first, PROCESSES / JOBS);
        let pids = |job: u32| job * all..(job + 1) * all;
        let owner = |pid: u32| Owner::Process {
            uid: 2001,
            name: "python3".into(),
            place: Membership::Job(pid / all),
            began: 1,
        };
        let jobs = first..first + JOBS;
        let owners: BTreeMap<u32, Owner> = (jobs.clone().flat_map(pids))
            .map(|pid| (pid, owner(pid)))
            .collect();
        let user = |pid| User {
            pid,
            kinds: vec![Kind::Compute],
            memory: Some(500 << 20),
            instance: None,
        };
        let gpu = |index| GpuReading {
            index,
            uuid: Some(uuid(index)),
            users: Some(
                (jobs.clone().filter(|job| job % GPUS == index))
                    .flat_map(pids)
                    .map(user)
                    .collect(),
            ),
            ..GpuReading::default()
        };
        let reading = Reading {
            driver: None,
            gpus: (0..GPUS).map(gpu).collect(),
        };
        let confs = Confs::read(&self.node).unwrap();
        Sample {
            report: rows(&reading, &owners, &confs),
            owners,
            confs,
            ..Sample::default()
        }
    }
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture telling_costs` prints it.
#[test]
#[ignore = "a measurement, which says nothing on a busy machine"]
fn telling_costs() {
    let crowd = Crowd::new();
    let sample = crowd.sample();
    let (mut keeper, shared) = (Keeper::new(crowd.node.clone()), Shared::default());
    let begin = used();
    for look in 0..LOOKS {
        // Users' files, as often as every five seconds.
        if look % 5 == 0 {
            keeper.written = None;
        }
        keeper.note(&sample, None, &Tally::default(), None, &shared);
    }
    let each = (used() - begin) / LOOKS;
    let told = shared.told();
    assert_eq!(told.jobs.len(), JOBS as usize);
    let part = each.as_secs_f64() * 100.0;
    println!(
        "to tell {GPUS} GPUs, {JOBS} jobs, {PROCESSES} processes, and users' files every 5 s: {each:?}, {part:.2} % of a core each second"
    );
    let begin = used();
    let length = serde_json::to_vec(&told).unwrap().len();
    println!("an answer of {length} bytes: {:?}", used() - begin);
}

/// The memory of this process that is in RAM, in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|it| it.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture a_week` prints it, in some minutes.
#[test]
#[ignore = "a measurement of the whole process, in which no other test may run"]
fn a_week_of_jobs_needs_no_more_memory_than_its_first_day() {
    /// A sample each ten seconds of the week, and a new job each five minutes.
    const LOOKS_A_DAY: u32 = 24 * 360;
    const LOOKS_A_JOB: u32 = 30;
    let mut crowd = Crowd::new();
    let (mut keeper, shared) = (Keeper::new(crowd.node.clone()), Shared::default());
    let mut days = Vec::new();
    for look in 1..=7 * LOOKS_A_DAY {
        if look % LOOKS_A_JOB == 0 {
            crowd.turn_over();
        }
        keeper.note(&crowd.sample(), None, &Tally::default(), None, &shared);
        if look % LOOKS_A_DAY == 0 {
            days.push(resident_kib());
        }
    }
    println!(
        "{GPUS} GPUs, {JOBS} jobs at a time and {} in all, {PROCESSES} processes: {days:?} KiB at the end of each day",
        crowd.first - 1 + JOBS
    );
    assert!(days[6] <= days[0] * 21 / 20, "{days:?}");
}
