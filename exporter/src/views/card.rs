//! The figures of a card in the names of other exporters.

use crate::window::Window;
use softmig_usage::{GpuUsage, Job, JobGpu, Node, Slice};

/// The help texts of [`figures`].
pub(super) const HELP: [&str; 3] = [
    "Memory of the job's slice",
    "Memory that the job's processes have",
    "Percent of its share of the GPU's time that the job was charged since the last scrape",
];

/// A slice as a card: all of its memory, the used part, and its utilization.
pub(super) fn figures(
    now: &Node,
    window: &Window,
    (job, slice, gpu): (&Job, &Slice, &JobGpu),
) -> [Option<f64>; 3] {
    [
        Some(slice.memory_bytes as f64),
        gpu.memory_bytes.map(|bytes| bytes as f64),
        Some(window.used(now, job, gpu).percent_of(slice.share())),
    ]
}

/// NVML's index of a job's GPU, as text, and the GPU's name.
pub(super) fn index_and_name<'a>(node: &'a Node, of: &JobGpu) -> (String, &'a str) {
    let is_it = |gpu: &&GpuUsage| gpu.uuid == of.uuid;
    let name = node
        .gpus
        .iter()
        .find(is_it)
        .and_then(|gpu| gpu.name.as_deref());
    let index = of.index.map(|index| index.to_string());
    (index.unwrap_or_default(), name.unwrap_or_default())
}
