//! A node with four slices of a GPU, at any moment of six minutes. Their rates never change, so that every figure can
//! be said beforehand.

use softmig_usage::{Findings, GpuUsage, Job, JobGpu, Node, Seat, Slice, VERSION};

/// Seconds between two scrapes.
pub const STEP: f64 = 15.0;
/// How many there are.
pub const SCRAPES: u32 = 24;
/// For how long all has been so before the first one.
const BEFORE: f64 = 600.0;
/// For how long at the last one.
pub const KNOWN: f64 = BEFORE + STEP * (SCRAPES - 1) as f64;
const MIB: u64 = 1 << 20;

/// A job with a quarter of the GPU. Times and counts are per second; counts are whole numbers in each step.
pub struct Quarter {
    pub job: u32,
    pub user: &'static str,
    pub account: &'static str,
    pub mode: &'static str,
    pub charged: f64,
    pub waited: f64,
    pub refused: f64,
    pub unsteered: u32,
    pub used_mib: u64,
    pub peak_mib: u64,
    pub idle: f64,
    pub debt: f64,
}

pub const LIMIT_MIB: u64 = 11_366;
pub const SHARE: f64 = 0.25;
pub const UUIDS: [&str; 2] = [
    "GPU-50f7316a-0000-4000-8000-000000000000",
    "GPU-50f7316a-0000-4000-8000-000000000001",
];
/// The first GPU's time in changes, and of processes without a slice; per second.
pub const CHANGE: f64 = 0.03;
pub const UNCLAIMED: f64 = 0.02;
/// Findings per second.
pub const FOUND: f64 = 0.6;

const SILENT: Quarter = Quarter {
    job: 0,
    user: "",
    account: "teaching",
    mode: "hard",
    charged: 0.0,
    waited: 0.0,
    refused: 0.0,
    unsteered: 0,
    used_mib: 0,
    peak_mib: 0,
    idle: 0.0,
    debt: 0.0,
};

pub const QUARTERS: [Quarter; 4] = [
    Quarter {
        job: 101,
        user: "alice",
        charged: 0.24,
        waited: 0.5,
        used_mib: 7900,
        peak_mib: 8100,
        debt: 0.6,
        ..SILENT
    },
    Quarter {
        job: 102,
        user: "alice",
        charged: 0.125,
        refused: 0.2,
        used_mib: 11_366,
        peak_mib: 11_366,
        ..SILENT
    },
    Quarter {
        job: 103,
        user: "bob",
        idle: 900.0,
        used_mib: 412,
        peak_mib: 5000,
        ..SILENT
    },
    Quarter {
        job: 104,
        user: "bob",
        account: "research \"a\\b\"",
        mode: "soft",
        charged: 0.4,
        unsteered: 2,
        used_mib: 3000,
        peak_mib: 3000,
        ..SILENT
    },
];

/// The node at a scrape; the last one is at `end`.
pub fn node(end: f64, scrape: u32) -> Node {
    let time = end - STEP * f64::from(SCRAPES - 1 - scrape);
    let known = BEFORE + STEP * f64::from(scrape);
    let charged: f64 = QUARTERS.iter().map(|quarter| quarter.charged).sum();
    let gpu = |index: u32, part: f64| GpuUsage {
        index,
        uuid: UUIDS[index as usize].into(),
        name: Some("NVIDIA L40S".into()),
        known_seconds: known,
        charged_seconds: part * charged * known,
        change_seconds: part * CHANGE * known,
        unclaimed_seconds: part * UNCLAIMED * known,
        ..GpuUsage::default()
    };
    Node {
        schema_version: VERSION,
        time,
        node: "n1".into(),
        gpus: vec![gpu(0, 1.0), gpu(1, 0.0)],
        jobs: QUARTERS
            .iter()
            .map(|quarter| job(quarter, time - known, known))
            .collect(),
        findings: vec![Findings {
            kind: "memory".into(),
            count: (FOUND * known).round() as u64,
        }],
        ..Node::default()
    }
}

fn unsteered(pid: u32) -> Seat {
    Seat {
        pid,
        not_steered: Some("it has told of no channels".into()),
    }
}

fn job(quarter: &Quarter, since: f64, known: f64) -> Job {
    let count = |rate: f64| (rate * known).round() as u64;
    let slice = Slice {
        r#type: "l40s".into(),
        shards: 1,
        shards_per_gpu: 4,
        mode: quarter.mode.into(),
        memory_bytes: LIMIT_MIB * MIB,
    };
    let gpu = JobGpu {
        index: Some(0),
        uuid: UUIDS[0].into(),
        memory_bytes: Some(quarter.used_mib * MIB),
        memory_peak_bytes: Some(quarter.peak_mib * MIB),
        refused: count(quarter.refused),
        refused_largest_bytes: 0,
        known_seconds: known,
        charged_seconds: quarter.charged * known,
        waited_seconds: quarter.waited * known,
        idle_seconds: quarter.idle,
        credit_seconds: -quarter.debt,
        processes: 1,
        seats: (0..quarter.unsteered).map(unsteered).collect(),
        ..JobGpu::default()
    };
    Job {
        job: quarter.job,
        uid: 2000 + quarter.job,
        user: Some(quarter.user.into()),
        account: Some(quarter.account.into()),
        since,
        slice: Some(slice),
        idle_after_seconds: Some(1800.0),
        pack: None,
        gpus: vec![gpu],
    }
}
