//! A measurement as others see it: the JSON of `softmig-monitor --once --json`, which docs/formats.md documents.
//!
//! Amounts of memory are bytes. A `null` says that something is not known, or does not apply.

use crate::measure::reading::Kind;
use serde::Serialize;
use softmig_usage::{self as usage, Slice};

/// The number of this form. A newer one can have more fields; if one goes or changes its meaning, the number changes.
pub const VERSION: u32 = 2;

/// All of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// When: RFC 3339, in UTC.
    pub time: String,
    /// The NVIDIA driver's version.
    pub driver: Option<String>,
    /// Why the node could not be measured.
    pub error: Option<String>,
    /// The GPUs, by NVML's index.
    pub gpus: Vec<GpuReport>,
    /// Every job that has a conf here, and every one that has a process on a GPU.
    pub jobs: Vec<Job>,
    /// The use of GPUs outside every job, by user.
    pub users: Vec<User>,
    /// The daemon's figures; `None` if it was not asked or does not say them.
    pub usage: Option<usage::Node>,
    /// Why it does not say them.
    pub usage_error: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuReport {
    /// NVML's index.
    pub index: u32,
    /// `GPU-` and so on.
    pub uuid: Option<String>,
    /// Such as `NVIDIA L40S`.
    pub name: Option<String>,
    /// Whether it is divided by MIG. Then softmig has no limits on it.
    pub mig: bool,
    /// What keeps jobs from sharing it now, such as its compute mode.
    pub setting: Option<String>,
    /// All of its memory.
    pub total_bytes: Option<u64>,
    /// The part that the driver keeps for itself.
    pub reserved_bytes: Option<u64>,
    /// The part of it that processes have.
    pub used_bytes: Option<u64>,
    /// The rest.
    pub free_bytes: Option<u64>,
    /// Used, but by none of the processes below: managed memory, memory without a context.
    pub unlisted_bytes: Option<u64>,
    /// Why it could not be measured, or not all of it.
    pub error: Option<String>,
    /// The processes on it; of a MIG GPU, once for each of its parts.
    pub processes: Vec<Process>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its use of the GPU.
    pub kinds: Vec<Kind>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// The part of a MIG GPU.
    pub gpu_instance: Option<u32>,
    /// Its identity, as far as it is known.
    pub state: State,
    /// Its real user.
    pub uid: Option<u32>,
    /// Its own name for itself.
    pub name: Option<String>,
    /// Its job.
    pub job: Option<u32>,
    /// Its job's SLUID, where its number is not known.
    pub sluid: Option<String>,
}

/// The identity of a process, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its owner is known.
    Known,
    /// It ended while it was looked at, or its number is another container's.
    Gone,
    /// `/proc` did not say.
    Unknown,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// Its number.
    pub job: Option<u32>,
    /// Its SLUID, where its number is not known.
    pub sluid: Option<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// The contents of its conf.
    pub conf: Conf,
    /// Why its conf is unreadable.
    pub conf_error: Option<String>,
    /// Its slice, where it has one.
    pub slice: Option<Slice>,
    /// Its GPUs, and others that its processes are on.
    pub gpus: Vec<JobGpu>,
}

/// The state of a job's conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Conf {
    /// It has limits.
    Slice,
    /// It has no limits: the job has whole GPUs.
    Whole,
    /// The conf does not exist.
    Missing,
    /// It cannot be read as a conf.
    Unreadable,
}

/// A job on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobGpu {
    /// The GPU.
    #[serde(flatten)]
    pub holding: Holding,
    /// Whether it is one of those that the job was given; `null` where its conf does not name them.
    pub assigned: Option<bool>,
    /// The job's limit; `null` without one, or if it is not known.
    pub limit_bytes: Option<u64>,
    /// Its memory beyond that.
    pub excess_bytes: Option<u64>,
    /// The finding.
    pub finding: Option<Finding>,
}

/// The memory of a job or a user on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Holding {
    /// NVML's index; `null` for a GPU that NVML does not show.
    pub index: Option<u32>,
    /// The GPU.
    pub uuid: Option<String>,
    /// The memory of its processes together; `null` where that was not measured.
    pub memory_bytes: Option<u64>,
    /// How many of them the driver has no figure for: what they have is missing in the sum.
    pub unmeasured: usize,
    /// The processes.
    pub pids: Vec<u32>,
}

/// A finding about a job on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It has more than its slice.
    OverLimit,
    /// It was given other GPUs.
    NotItsGpu,
    /// It has no conf, or one that cannot be read.
    NoConf,
}

/// A user outside every job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct User {
    /// The user; `null` for processes of which that is not known.
    pub uid: Option<u32>,
    /// The memory of their processes on each GPU.
    pub gpus: Vec<Holding>,
}

impl Report {
    /// Whether something could not be measured.
    pub fn is_incomplete(&self) -> bool {
        self.error.is_some() || self.gpus.iter().any(|gpu| gpu.error.is_some())
    }

    /// The findings, each with its job.
    pub fn findings(&self) -> impl Iterator<Item = (&Job, &JobGpu, Finding)> {
        self.jobs.iter().flat_map(|job| {
            let gpus = job.gpus.iter();
            gpus.filter_map(move |gpu| Some((job, gpu, gpu.finding?)))
        })
    }
}
