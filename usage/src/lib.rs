//! The usage of a node's GPUs, as plain values.
//!
//! The monitor fills them in (softmig-monitor) and tells them as JSON: on its socket, and in files. The epilog, the `softmig`
//! command and the exporter read that, and `metrics` makes Prometheus' text of it. This crate reads and writes no file.
//!
//! Memory is in bytes, time in seconds. Counters begin with the job and only grow. `None` says that a value is not known.

#![forbid(unsafe_code)]

pub mod ending;
pub mod js1;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod summary;

use ending::Ending;
use serde::{Deserialize, Serialize};
use softmig_policy::node::limits::Limits;
use softmig_policy::node::size::MIB;

/// The number of this form. A newer one can have more fields. If a field goes or changes its meaning, the number changes.
pub const VERSION: u32 = 2;

/// A job that holds more of its memory on a GPU is about to be refused more.
const NEARLY_FULL: f64 = 0.9;

/// All of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// [`VERSION`].
    pub schema_version: u32,
    /// When: seconds since 1970.
    pub time: f64,
    /// The node's name, as the kernel says it.
    pub node: String,
    /// Why the GPUs could not be measured.
    pub error: Option<String>,
    /// The GPUs, by NVML's index.
    pub gpus: Vec<GpuUsage>,
    /// Every job that has a conf here, by its number.
    pub jobs: Vec<Job>,
    /// How many findings the monitor had since it started, by the rule's name.
    pub findings: Vec<Findings>,
    /// The processes that it ended, or would have ended.
    pub ending: Option<Ending>,
}

/// Why an answer or a file of the monitor's cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It has no figures.
    #[error("is not what the monitor writes: {0}")]
    Garbled(#[from] serde_json::Error),
    /// It has not measured yet.
    #[error("has no figures yet; 'journalctl -t softmig-monitor' may say why")]
    Empty,
    /// Another release wrote it.
    #[error(
        "has form {0}, and this softmig reads form {VERSION}: one of the two programs is older"
    )]
    OtherForm(u32),
}

impl Node {
    /// Reads what the monitor wrote.
    pub fn read(text: &[u8]) -> Result<Self, ReadError> {
        let node: Self = serde_json::from_slice(text)?;
        match node.schema_version {
            // 1 has more, about turns.
            1 | VERSION => Ok(node),
            0 => Err(ReadError::Empty),
            form => Err(ReadError::OtherForm(form)),
        }
    }

    /// Each slice on each of its GPUs.
    pub fn slices(&self) -> impl Iterator<Item = (&Job, &Slice, &JobGpu)> {
        self.jobs.iter().flat_map(|job| {
            let slice = job.slice.iter();
            slice.flat_map(move |slice| job.gpus.iter().map(move |gpu| (job, slice, gpu)))
        })
    }
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUsage {
    /// NVML's index.
    pub index: u32,
    /// `GPU-` and so on.
    pub uuid: String,
    /// Such as `NVIDIA L40S`.
    pub name: Option<String>,
    /// Whether MIG divides it.
    pub mig: bool,
    /// All of its memory that CUDA can hand out: the total without the driver's own part.
    pub memory_bytes: Option<u64>,
    /// The part of it that is used.
    pub memory_used_bytes: Option<u64>,
    /// Memory that its jobs may still have by their slices and that others hold; 0 where there is none or that is not known.
    pub missing_bytes: u64,
    /// What keeps jobs from sharing it now, such as its compute mode.
    pub setting: Option<String>,
    /// How jobs share it just now: `scheduler`, or `caps` that they keep themselves.
    pub shared_by: Option<String>,
    /// The reason for caps; `None` without one.
    pub why: Option<String>,
    /// For how long the monitor has counted the following times.
    pub known_seconds: f64,
    /// The time that jobs were charged.
    pub charged_seconds: f64,
    /// The time that changes between jobs took, which no job is charged.
    pub change_seconds: f64,
    /// The GPU time of processes that belong to no job with a slice.
    pub unclaimed_seconds: f64,
    /// How often a fault of the GPU ended all programs of a pack here, since the node started; `None` where there never was a pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_faults: Option<u64>,
}

/// The pack that a job is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pack {
    /// As the folders of its servers are named, such as `uid-2001`.
    pub name: String,
    /// The other jobs in it that have a GPU together with this one.
    pub jobs: Vec<u32>,
}

/// A job on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Its number.
    pub job: u32,
    /// Its user.
    pub uid: u32,
    /// The user's name, as Slurm said it.
    pub user: Option<String>,
    /// Its account, as Slurm said it.
    pub account: Option<String>,
    /// When its conf was written: seconds since 1970.
    pub since: f64,
    /// Its slice; `None` for a job with whole GPUs.
    pub slice: Option<Slice>,
    /// A GPU that the job has not used for this time is idle; `None` where the policy calls none idle, and for whole
    /// GPUs.
    pub idle_after_seconds: Option<f64>,
    /// The pack that it is in; `None` where it has its GPU by itself in its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<Pack>,
    /// Its GPUs on this node.
    pub gpus: Vec<JobGpu>,
}

impl Job {
    /// The user's name, or the number where Slurm did not say the name.
    pub fn user_name(&self) -> String {
        self.user.clone().unwrap_or_else(|| self.uid.to_string())
    }

    /// A count on all of its GPUs.
    pub(crate) fn sum(&self, count: impl Fn(&JobGpu) -> u64) -> u64 {
        self.gpus.iter().map(count).fold(0, u64::saturating_add)
    }

    /// Whether the policy calls the job idle on this GPU of its.
    pub fn is_idle(&self, gpu: &JobGpu) -> bool {
        let is_over = |limit| gpu.idle_seconds >= limit;
        self.idle_after_seconds.is_some_and(is_over)
    }

    /// The part of its memory on this GPU that it holds; `None` for whole GPUs, and where it is not known.
    pub fn memory_part(&self, gpu: &JobGpu) -> Option<f64> {
        let limit = self.slice.as_ref()?.memory_bytes;
        let held = gpu.memory_bytes.filter(|_| limit > 0)?;
        Some(held as f64 / limit as f64)
    }

    /// Whether its memory on this GPU is almost full.
    pub fn is_nearly_full(&self, gpu: &JobGpu) -> bool {
        self.memory_part(gpu).is_some_and(|part| part > NEARLY_FULL)
    }

    /// Of its memory: "almost full"; "almost full on 1 of its 2 GPUs". `None` if there is room on all of them.
    pub fn full_words(&self) -> Option<String> {
        let full = self.gpus.iter().filter(|gpu| self.is_nearly_full(gpu));
        match (full.count(), self.gpus.len()) {
            (0, _) => None,
            (some, all) if some < all => Some(format!("almost full on {some} of its {all} GPUs")),
            _ => Some("almost full".to_string()),
        }
    }

    /// "idle for 45 min"; "1 of its 2 GPUs idle for 45 min". `None` if it uses all of its GPUs.
    pub fn idle_words(&self) -> Option<String> {
        let idle = || self.gpus.iter().filter(|gpu| self.is_idle(gpu));
        let least = idle().map(|gpu| gpu.idle_seconds).reduce(f64::min)?;
        let minutes = (least / 60.0).floor();
        Some(match (idle().count(), self.gpus.len()) {
            (some, all) if some < all => format!("{some} of its {all} GPUs idle for {minutes} min"),
            _ => format!("idle for {minutes} min"),
        })
    }
}

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slice {
    /// The type of the GPU, as in policy.toml.
    pub r#type: String,
    /// The job's shards of each GPU.
    pub shards: u32,
    /// The shards that make a GPU.
    pub shards_per_gpu: u32,
    /// That of the tag, such as `hard` or `soft`.
    pub mode: String,
    /// The limit on each GPU.
    pub memory_bytes: u64,
}

impl From<&Limits> for Slice {
    fn from(limits: &Limits) -> Self {
        Self {
            r#type: limits.gpu_type().as_str().to_owned(),
            shards: limits.share().shards(),
            shards_per_gpu: limits.share().per_gpu(),
            mode: limits.mode().to_string(),
            memory_bytes: u64::from(limits.memory_mib()) * MIB,
        }
    }
}

impl Slice {
    /// The part of each GPU's time that the job may have: 0.25 for a quarter.
    pub fn share(&self) -> f64 {
        f64::from(self.shards) / f64::from(self.shards_per_gpu.max(1))
    }
}

/// A job on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobGpu {
    /// NVML's index; `None` for a GPU that NVML does not show.
    pub index: Option<u32>,
    /// `GPU-` and so on.
    pub uuid: String,
    /// The memory of its processes, by NVML.
    pub memory_bytes: Option<u64>,
    /// The most that they held: of the monitor's measurements, and by the library's own count, which the job's user can change and
    /// which counts to the limit at most.
    pub memory_peak_bytes: Option<u64>,
    /// How many allocations the library refused; by its own count, which the job's user can change.
    pub refused: u64,
    /// After how many of them their process went on and was given memory: it did without what it was refused.
    pub recovered: u64,
    /// The largest of them.
    pub refused_largest_bytes: u64,
    /// For how long the monitor has counted the following.
    pub known_seconds: f64,
    /// The GPU time that it was charged.
    pub charged_seconds: f64,
    /// The time in which it wanted the GPU and did not have it: others had it, or its own cap held it.
    pub waited_seconds: f64,
    /// Times that something else kept its work off the GPU, and the monitor let it run again.
    pub interruptions: u64,
    /// The time since it last used the GPU or wanted it: since its conf was written if it never did. The time in which no
    /// monitor ran does not count.
    pub idle_seconds: f64,
    /// The GPU time that it may take yet; below zero: that it owes. 0 where only its own cap holds.
    pub credit_seconds: f64,
    /// Its processes on the GPU, by NVML.
    pub processes: u32,
    /// Whether one of its processes wants the GPU.
    pub wants_gpu: bool,
    /// Whether it is held on the GPU.
    pub is_held: bool,
    /// The processes that the monitor shares the GPU among.
    pub seats: Vec<Seat>,
}

impl JobGpu {
    /// How many of its processes cannot be held.
    pub fn not_steered(&self) -> usize {
        let seats = self.seats.iter();
        seats.filter(|seat| seat.not_steered.is_some()).count()
    }

    /// NVML's index as a label; empty for a GPU that NVML does not show.
    pub fn index_label(&self) -> String {
        self.index
            .map(|index| index.to_string())
            .unwrap_or_default()
    }
}

/// A process that shares a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seat {
    /// Its number.
    pub pid: u32,
    /// Why it cannot be held, on a GPU that is shared by its own scheduler.
    pub not_steered: Option<String>,
}

/// How often a rule found something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    /// The rule's name, such as `memory` or `seat` (docs/monitor.md).
    pub kind: String,
    /// The number of findings.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_an_older_monitor_did_not_write_is_unknown() {
        let text = r#"{"schema_version":1,"node":"n1","jobs":[{"job":7,"gpus":[{"uuid":"GPU-1"}],"later":true}]}"#;
        let node: Node = serde_json::from_str(text).expect("a node");
        assert_eq!(node.jobs[0].job, 7);
        assert_eq!(node.jobs[0].gpus[0].memory_bytes, None);
        let again = serde_json::to_string(&node).expect("JSON");
        assert_eq!(serde_json::from_str::<Node>(&again).expect("a node"), node);
    }

    #[test]
    fn a_job_is_idle_on_gpus_unused_for_longer_than_the_policy_says() {
        let job = |idle: &[f64], after| Job {
            idle_after_seconds: after,
            gpus: (idle.iter())
                .map(|&idle_seconds| JobGpu {
                    idle_seconds,
                    ..JobGpu::default()
                })
                .collect(),
            ..Job::default()
        };
        let words = |idle: &[f64], after| job(idle, after).idle_words();
        assert_eq!(words(&[9e9], None), None);
        assert_eq!(words(&[599.0], Some(600.0)), None);
        assert_eq!(words(&[659.0], Some(600.0)).unwrap(), "idle for 10 min");
        let one = words(&[0.0, 600.0], Some(600.0));
        assert_eq!(one.unwrap(), "1 of its 2 GPUs idle for 10 min");
        let both = words(&[720.0, 600.0], Some(600.0));
        assert_eq!(both.unwrap(), "idle for 10 min");
    }

    #[test]
    fn a_slice_without_figures_has_no_share() {
        assert_eq!(Slice::default().share(), 0.0);
        let quarter = Slice {
            shards: 1,
            shards_per_gpu: 4,
            ..Slice::default()
        };
        assert_eq!(quarter.share(), 0.25);
    }

    #[test]
    fn memory_is_almost_full_above_nine_tenths_of_a_slices_limit() {
        let words = |held: &[Option<u64>], limit| {
            let gpu = |&memory_bytes: &Option<u64>| JobGpu {
                memory_bytes,
                ..JobGpu::default()
            };
            let job = Job {
                slice: Some(Slice {
                    memory_bytes: limit,
                    ..Slice::default()
                }),
                gpus: held.iter().map(gpu).collect(),
                ..Job::default()
            };
            job.full_words()
        };
        assert_eq!(words(&[Some(90)], 100), None);
        assert_eq!(words(&[Some(91)], 100).unwrap(), "almost full");
        let one = "almost full on 1 of its 2 GPUs";
        assert_eq!(words(&[Some(91), None], 100).unwrap(), one);
        assert_eq!(words(&[Some(91)], 0), None);
        assert_eq!(words(&[None], 100), None);
    }
}
