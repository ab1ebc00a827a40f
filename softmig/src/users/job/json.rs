//! The JSON object of `--json`. A newer release may have more fields; `schema_version` changes when one goes or changes its
//! meaning.

use serde::Serialize;
use softmig_policy::config::gpu_types::GpuType;
use softmig_usage as usage;
use softmig_usage::summary::{Smaller, Summary};

/// The form of the object.
const VERSION: u32 = 1;

/// A job that runs here, or one that has ended.
#[derive(Default, Serialize)]
pub(super) struct Json<'a> {
    pub(super) schema_version: u32,
    /// `null` for a job that had several.
    pub(super) node: Option<&'a str>,
    /// The monitor's figures of a job that runs.
    pub(super) job: Option<&'a usage::Job>,
    /// A job that has ended, by the accounting.
    pub(super) ended: Option<JsonEnded<'a>>,
    /// The time that its share allowed while its time was counted.
    pub(super) allowed_seconds: Option<f64>,
    pub(super) smaller: Option<JsonSmaller>,
    pub(super) sentence: Option<String>,
}

impl Json<'_> {
    /// The figures that a summary gives. `gpu` is the slice's type in the policy.
    pub(super) fn new(summary: Option<&Summary>, gpu: Option<&GpuType>) -> Self {
        let smaller = summary.and_then(|it| it.smaller(gpu?));
        Self {
            schema_version: VERSION,
            allowed_seconds: summary.map(Summary::allowed_seconds),
            smaller: smaller.map(|smaller| JsonSmaller::new(&smaller)),
            sentence: summary.map(|it| it.sentence(gpu)),
            ..Self::default()
        }
    }
}

#[derive(Serialize)]
pub(super) struct JsonEnded<'a> {
    pub(super) job: u32,
    pub(super) user: &'a str,
    /// Slurm's own word.
    pub(super) state: &'a str,
    /// Slurm's list of its nodes.
    pub(super) nodes: &'a str,
    /// The local time of Slurm's commands.
    pub(super) start: &'a str,
    pub(super) end: &'a str,
    pub(super) r#type: Option<&'a str>,
    /// On all of its nodes.
    pub(super) shards: Option<u32>,
    pub(super) shards_per_gpu: Option<u32>,
    pub(super) whole_gpus: Option<u32>,
    /// The limit of a slice, or the memory of a whole GPU.
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_peak_bytes: Option<u64>,
    pub(super) known_seconds: Option<f64>,
    pub(super) charged_seconds: Option<f64>,
    pub(super) waited_seconds: Option<f64>,
    pub(super) refused: Option<u64>,
    pub(super) recovered: Option<u64>,
    /// Of whole GPUs: for how much of the time the busiest was used.
    pub(super) utilization_percent: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct JsonSmaller {
    gres: String,
    memory_mib: u32,
    holds_memory: bool,
    holds_time: bool,
}

impl JsonSmaller {
    fn new(smaller: &Smaller) -> Self {
        Self {
            gres: smaller.limits.slice_request().to_string(),
            memory_mib: smaller.limits.memory_mib(),
            holds_memory: smaller.holds_memory,
            holds_time: smaller.holds_time,
        }
    }
}
