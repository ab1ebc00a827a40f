//! The cost of telling the usage, without NVML's own time and without measuring, which `enforce::cost_tests` has.

use super::{Keeper, Shared};
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, Owner};
use crate::measure::Sight;
use crate::measure::reading::{Gpu, Kind, Reading, User};
use crate::measure::report_rows::rows;
use rustix::time::{ClockId, clock_gettime};
use softmig_node::node::Node;
use std::collections::BTreeMap;
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

/// `cargo test --release -p softmig-monitor --lib -- --ignored --nocapture telling_costs` prints it.
#[test]
#[ignore = "a measurement, which says nothing on a busy machine"]
fn telling_costs() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
    for job in 1..=JOBS {
        std::fs::create_dir_all(node.run.join(format!("jobs/{job}"))).unwrap();
        let text = format!(
            "CUDA_DEVICE_MEMORY_LIMIT=5000M\nCUDA_DEVICE_SM_LIMIT=12.5\nSOFTMIG_JOB={job}\nSOFTMIG_UID=2001\n\
             SOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/8\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS={}\n",
            uuid(job % GPUS)
        );
        std::fs::write(node.run.join(format!("{job}.conf")), text).unwrap();
        let ledger = vec![0; softmig_region::size(1)];
        std::fs::write(node.run.join(format!("jobs/{job}/ledger")), ledger).unwrap();
    }
    let job_of = |pid: u32| 1 + pid % JOBS;
    let owner = |pid: u32| Owner::Process {
        uid: 2001,
        name: "python3".into(),
        place: Membership::Job(job_of(pid)),
        began: 1,
    };
    let owners: BTreeMap<u32, Owner> = (0..PROCESSES).map(|pid| (pid, owner(pid))).collect();
    let user = |pid| User {
        pid,
        kinds: vec![Kind::Compute],
        memory: Some(500 << 20),
        instance: None,
    };
    let gpu = |index| Gpu {
        index,
        uuid: Some(uuid(index)),
        users: Some(
            (0..PROCESSES)
                .filter(|&pid| job_of(pid) % GPUS == index)
                .map(user)
                .collect(),
        ),
        ..Gpu::default()
    };
    let reading = Reading {
        driver: None,
        gpus: (0..GPUS).map(gpu).collect(),
    };
    let confs = Confs::read(&node).unwrap();
    let sight = Sight {
        report: rows(&reading, &owners, &confs),
        owners,
        confs,
        ..Sight::default()
    };
    let (mut keeper, shared) = (Keeper::new(node), Shared::default());
    let begin = used();
    for look in 0..LOOKS {
        // As often as every five seconds.
        if look % 5 == 0 {
            keeper.written = None;
        }
        keeper.note(&sight, None, Vec::new(), None, &shared);
    }
    let each = (used() - begin) / LOOKS;
    let told = shared.told();
    assert_eq!(told.jobs.len(), JOBS as usize);
    let part = each.as_secs_f64() * 100.0;
    println!(
        "to tell {GPUS} GPUs, {JOBS} jobs, {PROCESSES} processes and to write them every 5 s: {each:?}, {part:.2} % of a core each second"
    );
    let begin = used();
    let length = serde_json::to_vec(&told).unwrap().len();
    println!("an answer of {length} bytes: {:?}", used() - begin);
}
