//! The metrics of a job's slice of a GPU.

use super::page::Page;
use crate::{Job, JobGpu, Node, Slice};
use prometheus::proto::MetricType;

/// A job's slice on one GPU.
type Of<'a> = (&'a Job, &'a Slice, &'a JobGpu);

/// A metric with one value for each slice: its kind, name and help, and the value, `None` where it is not known.
type Metric = (
    MetricType,
    &'static str,
    &'static str,
    fn(Of<'_>) -> Option<f64>,
);

const METRICS: [Metric; 12] = [
    (
        MetricType::GAUGE,
        "softmig_slice_memory_limit_bytes",
        "Memory that the slice may have on the GPU",
        |(_, slice, _)| Some(slice.memory_bytes as f64),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_memory_used_bytes",
        "Memory that the job's processes have on the GPU, by NVML",
        |(_, _, gpu)| gpu.memory_bytes.map(|bytes| bytes as f64),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_memory_peak_bytes",
        "The most memory that the job had on the GPU",
        |(_, _, gpu)| gpu.memory_peak_bytes.map(|bytes| bytes as f64),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_share_ratio",
        "The part of the GPU's time that the slice may have",
        |(_, slice, _)| Some(slice.share()),
    ),
    (
        MetricType::COUNTER,
        "softmig_slice_gpu_seconds_total",
        "GPU time that the job was charged",
        |(_, _, gpu)| Some(gpu.charged_seconds),
    ),
    (
        MetricType::COUNTER,
        "softmig_slice_wait_seconds_total",
        "Time in which the job wanted the GPU and did not have it",
        |(_, _, gpu)| Some(gpu.waited_seconds),
    ),
    (
        MetricType::COUNTER,
        "softmig_slice_interruptions_total",
        "Times that something else kept the job's work off the GPU, and the monitor let it run again",
        |(_, _, gpu)| Some(gpu.interruptions as f64),
    ),
    (
        MetricType::COUNTER,
        "softmig_slice_refused_allocations_total",
        "Allocations beyond the slice that the library refused, by its own count",
        |(_, _, gpu)| Some(gpu.refused as f64),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_unsteered_processes",
        "Processes of the job that the monitor cannot hold on the GPU",
        |(_, _, gpu)| Some(gpu.not_steered() as f64),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_debt_seconds",
        "GPU time that the job owes and has to wait for",
        |(_, _, gpu)| Some((-gpu.credit_seconds).max(0.0)),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_idle_seconds",
        "Time since the job last used the GPU or wanted it",
        |(_, _, gpu)| Some(gpu.idle_seconds),
    ),
    (
        MetricType::GAUGE,
        "softmig_slice_idle_limit_seconds",
        "The time without use after which the policy calls the slice idle",
        |(job, _, _)| job.idle_after_seconds,
    ),
];

/// Adds the metrics of all slices.
pub(crate) fn add(page: &mut Page, node: &Node) {
    let info = page.gauge(
        "softmig_slice_info",
        "Always 1; the labels describe the slice",
    );
    for (job, slice, gpu) in node.slices() {
        let shards = [slice.shards, slice.shards_per_gpu].map(|count| count.to_string());
        let names = Names::new(job, gpu);
        let mut labels = names.labels().to_vec();
        labels.extend([
            ("type", slice.r#type.as_str()),
            ("shards", &shards[0]),
            ("shards_per_gpu", &shards[1]),
            ("mode", &slice.mode),
        ]);
        info.add(&labels, 1.0);
    }
    for (kind, name, help, value) in METRICS {
        let family = page.family(name, help, kind);
        for (job, slice, gpu) in node.slices() {
            if let Some(value) = value((job, slice, gpu)) {
                family.add(&Names::new(job, gpu).labels(), value);
            }
        }
    }
}

/// The labels that each metric of a slice has. `gpu` and `UUID` are as DCGM's.
struct Names<'a> {
    job: String,
    user: String,
    account: &'a str,
    gpu: String,
    uuid: &'a str,
}

impl<'a> Names<'a> {
    fn new(job: &'a Job, gpu: &'a JobGpu) -> Self {
        Self {
            job: job.job.to_string(),
            user: job.user_name(),
            account: job.account.as_deref().unwrap_or_default(),
            gpu: gpu.index_label(),
            uuid: &gpu.uuid,
        }
    }

    fn labels(&self) -> [(&str, &str); 5] {
        [
            ("gpu", &self.gpu),
            ("UUID", self.uuid),
            ("jobid", &self.job),
            ("user", &self.user),
            ("account", self.account),
        ]
    }
}
