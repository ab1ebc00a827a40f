//! A job's use of its GPUs, by a summary in its AdminComment, or by Slurm's own figures of its steps.

use softmig_policy::node::limits::TypeName;
use softmig_usage::js1::{Js1, OfSlice};
use softmig_usage::summary::Summary;
use softmig_usage::{self as usage, JobGpu, Slice};

/// The use by a job, as far as the accounting has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// The most memory on one GPU.
    pub(crate) peak_bytes: Option<u64>,
    /// The memory of that GPU, or of the slice.
    pub(crate) total_bytes: Option<u64>,
    /// How much of the time the busiest of them was used, in percent.
    pub(crate) utilization: Option<f64>,
    /// Whether a summary says so, with the mean utilization. Slurm has the highest measured one.
    pub(crate) by_summary: bool,
    /// More about a slice.
    pub(crate) slice: Option<Box<OfSlice>>,
}

impl Used {
    /// The use of a slice; `None` where no summary tells of one.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let of = self.slice.as_deref()?;
        Summary::from_job(&usage::Job {
            slice: Some(Slice {
                r#type: of.r#type.clone(),
                shards: of.shards,
                shards_per_gpu: of.shards_per_gpu,
                memory_bytes: self.total_bytes.unwrap_or(0),
                ..Slice::default()
            }),
            gpus: vec![JobGpu {
                memory_peak_bytes: self.peak_bytes,
                known_seconds: of.known_seconds,
                charged_seconds: of.charged_seconds,
                waited_seconds: of.waited_seconds,
                refused: of.refused,
                recovered: of.recovered,
                ..JobGpu::default()
            }],
            ..usage::Job::default()
        })
    }
}

/// The fullest and the busiest GPU of a summary.
pub(super) fn of_js1(js1: &Js1) -> Used {
    let mut used = Used::default();
    for node in js1.nodes.values() {
        for (gpu, total) in &node.gpu_total_memory {
            let of = node.gpu_used_memory.get(gpu);
            let bytes = |number: &serde_json::Number| number.as_f64().map(|bytes| bytes as u64);
            if let (Some(total), Some(peak)) = (bytes(total), of.and_then(bytes)) {
                used.by_summary = true;
                used.total_bytes = used.total_bytes.max(Some(total));
                used.peak_bytes = used.peak_bytes.max(Some(peak));
            }
        }
        let each = node.gpu_utilization.values().filter_map(|of| of.as_f64());
        used.utilization = each.chain(used.utilization).reduce(f64::max);
        // A comment may hold anything.
        let slice = node.softmig.as_ref();
        if let Some(slice) = slice.filter(|slice| TypeName::new(&slice.r#type).is_ok()) {
            match &mut used.slice {
                Some(all) => all.add(slice),
                None => used.slice = Some(Box::new(slice.clone())),
            }
        }
    }
    used.by_summary |= used.utilization.is_some();
    used
}

/// The use by the steps of a job.
#[derive(Default)]
pub(super) struct Steps(Vec<Step>);

struct Step {
    start: i64,
    end: i64,
    memory: Option<f64>,
    utilization: Option<f64>,
}

impl Steps {
    /// One more step, from its start to its end, and its lists of figures: its tasks' highest, and the sum of its tasks.
    pub(super) fn add(&mut self, start: i64, end: i64, lists: [&str; 2]) {
        let most = |name: &str| {
            let each = lists.iter().filter_map(|list| measured(list, name));
            each.reduce(f64::max)
        };
        let (memory, utilization) = (most("gres/gpumem="), most("gres/gpuutil="));
        if memory.is_some() || utilization.is_some() {
            self.0.push(Step {
                start,
                end: end.max(start + 1),
                memory,
                utilization,
            });
        }
    }

    /// Steps that ran at once count together.
    pub(super) fn used(&self) -> Used {
        let most = |part: fn(&Step) -> Option<f64>| {
            let at = |moment: i64| {
                let run = self
                    .0
                    .iter()
                    .filter(|step| step.start <= moment && moment < step.end);
                run.filter_map(part).reduce(|one, other| one + other)
            };
            // A job may have a hundred thousand steps, one after the other.
            match self.0.len() {
                ..=MOST_STEPS => {
                    let each = self.0.iter().filter_map(|step| at(step.start));
                    each.reduce(f64::max)
                }
                _ => None,
            }
        };
        Used {
            peak_bytes: most(|step| step.memory).map(|bytes| bytes as u64),
            utilization: most(|step| step.utilization).map(|percent| percent.min(100.0)),
            ..Used::default()
        }
    }
}

/// Of a job with more steps it is not told what ran at once.
const MOST_STEPS: usize = 2000;

/// `gres/gpumem=8100M` in such a list: with Slurm's suffixes, and with decimals.
fn measured(list: &str, name: &str) -> Option<f64> {
    let text = list.split(',').find_map(|item| item.strip_prefix(name))?;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}
