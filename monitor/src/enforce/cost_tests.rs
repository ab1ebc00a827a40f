//! The cost of an observation, without NVML's own time.

use crate::arbiter::Seats;
use crate::enforce::observation::Claim;
use crate::enforce::rules::Evaluator;
use crate::enforce::snapshot::{Evidence, Snapshot};
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, Owner};
use crate::jobs::owners::Owners;
use crate::measure::Sample;
use crate::measure::reading::{GpuReading, Kind, Reading, User};
use crate::measure::report_rows::rows;
use rustix::time::{ClockId, clock_gettime};
use softmig_gate::Library;
use softmig_node::node::Node;
use softmig_policy::config::monitor::Monitor;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const GPUS: u32 = 8;
const JOBS: u32 = 64;
const PROCESSES: u32 = 256;
const OBSERVATIONS: u32 = 200;

fn uuid(gpu: u32) -> String {
    format!("GPU-50f7316a-0000-4000-8000-{gpu:012x}")
}

/// The processor time of this thread.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture looks_cost` prints it.
#[test]
#[ignore = "a measurement, which says nothing on a busy machine"]
fn looks_cost() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
    std::fs::create_dir(&node.run).unwrap();
    for job in 1..=JOBS {
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=5000M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB={job}\nSOFTMIG_UID=2001\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={}\n",
            uuid(job % GPUS)
        );
        std::fs::write(node.run.join(format!("{job}.conf")), text).unwrap();
    }
    let start = |_| Command::new("sleep").arg("1000").spawn().unwrap();
    let crowd = Crowd((0..PROCESSES).map(start).collect());
    let pids: Vec<u32> = crowd.0.iter().map(Child::id).collect();
    let job_of = |at: u32| 1 + at % JOBS;
    let gpu = |index: u32| GpuReading {
        index,
        uuid: Some(uuid(index)),
        users: Some(
            (0..PROCESSES)
                .filter(|&at| job_of(at) % GPUS == index)
                .map(|at| User {
                    pid: pids[at as usize],
                    kinds: vec![Kind::Compute],
                    memory: Some(500 << 20),
                    instance: None,
                })
                .collect(),
        ),
        ..GpuReading::default()
    };
    let mut owners = Owners::new(Path::new("/proc"));
    let mut evaluator = Evaluator::default();
    let evidence = Evidence {
        enforced_since: Some(0),
        arbiter_since: 0,
        arbiter_answers: true,
    };
    let mut slices = 0;
    let begin = used();
    for second in 0..OBSERVATIONS {
        let reading = Reading {
            driver: None,
            gpus: (0..GPUS).map(gpu).collect(),
        };
        let mut whose = owners.resolve(pids.iter().copied());
        // They are no job's here.
        for (at, pid) in pids.iter().enumerate() {
            if let Some(Owner::Process { place, .. }) = whose.get_mut(pid) {
                *place = Membership::Job(job_of(at as u32));
            }
        }
        let confs = Confs::read(&node).unwrap();
        let sample = Sample {
            report: rows(&reading, &whose, &confs),
            owners: whose,
            confs,
            ..Sample::default()
        };
        let snapshot = Snapshot {
            sample: &sample,
            seats: &Seats::default(),
            evidence: &evidence,
            proc: Path::new("/proc"),
            library: &Library::default(),
            until: Instant::now() + Duration::from_secs(60),
        };
        let observation = snapshot.observe(Duration::from_secs(second.into()), Vec::new());
        let is_slice = |claim| matches!(claim, Claim::Slice { .. });
        slices = observation
            .tenants
            .iter()
            .filter(|it| is_slice(it.claim))
            .count();
        let evaluation = evaluator.evaluate(&observation, &Monitor::default(), &BTreeSet::new());
        assert_eq!(evaluation.violations, []);
    }
    let each = (used() - begin) / OBSERVATIONS;
    assert_eq!(slices, JOBS as usize);
    let part = each.as_secs_f64() * 100.0;
    println!(
        "a look at {GPUS} GPUs, {JOBS} jobs, {PROCESSES} processes: {each:?}, {part:.2} % of a core each second"
    );
}
