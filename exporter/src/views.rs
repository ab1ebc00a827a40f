//! The figures of slices under the names that other exporters have, so that what reads those shows slices too.
//!
//! The names and labels are the others'; the values are the slice's, not the whole card's (docs/usage.md).

mod ceems;

use crate::cli::View;
use crate::window::Window;
use softmig_usage::metrics::Page;
use softmig_usage::{GpuUsage, Job, JobGpu, Node, Slice};

/// A job's slice on one GPU, and what the job used of the GPU's time, in percent of its share.
type Of<'a> = (&'a Job, &'a Slice, &'a JobGpu, f64);

/// A figure of it; `None` where it is not known.
type Figure = fn(Of<'_>) -> Option<f64>;

/// The help texts and values of a slice as a card: all of its memory, the used part, its utilization, and whose it is.
const FIGURES: [(&str, Figure); 5] = [
    ("Memory of the job's slice", |(_, slice, ..)| {
        Some(slice.memory_bytes as f64)
    }),
    ("Memory that the job's processes have", |(_, _, gpu, _)| {
        gpu.memory_bytes.map(|bytes| bytes as f64)
    }),
    (
        "Percent of its share of the GPU's time that the job was charged since the last scrape",
        |(.., percent)| Some(percent),
    ),
    ("The job's number", |(job, ..)| Some(f64::from(job.job))),
    ("The job's user", |(job, ..)| Some(f64::from(job.uid))),
];

/// Their names in the exporter that jobstats reads.
const JOBSTATS: [&str; 5] = [
    "nvidia_gpu_memory_total_bytes",
    "nvidia_gpu_memory_used_bytes",
    "nvidia_gpu_duty_cycle",
    "nvidia_gpu_jobId",
    "nvidia_gpu_jobUid",
];

/// The names of the first of them in slurm-job-exporter.
const SLURM_JOB: [&str; 3] = [
    "slurm_job_memory_total_gpu",
    "slurm_job_memory_usage_gpu",
    "slurm_job_utilization_gpu",
];

impl View {
    /// Adds its metrics.
    pub fn add(self, page: &mut Page, now: &Node, window: &Window) {
        let names: &[&'static str] = match self {
            Self::Jobstats => &JOBSTATS,
            Self::SlurmJobExporter => &SLURM_JOB,
            Self::Ceems => return ceems::add(page, now, window),
        };
        for (name, (help, value)) in names.iter().zip(FIGURES) {
            let family = page.gauge(name, help);
            for (job, slice, gpu) in now.slices() {
                let percent = window.used(now, job, gpu).percent_of(slice.share());
                if let Some(value) = value((job, slice, gpu, percent)) {
                    let labels = self.labels(now, job, gpu);
                    let labels: Vec<_> = labels.iter().map(|(key, of)| (*key, &**of)).collect();
                    family.add(&labels, value);
                }
            }
        }
    }

    /// The labels of a slice.
    fn labels(self, node: &Node, job: &Job, gpu: &JobGpu) -> Vec<(&'static str, String)> {
        let is_it = |card: &&GpuUsage| card.uuid == gpu.uuid;
        let card = node.gpus.iter().find(is_it);
        let name = card.and_then(|card| card.name.clone()).unwrap_or_default();
        let index = gpu.index_label();
        if self == Self::SlurmJobExporter {
            return vec![
                ("user", job.user_name()),
                ("account", job.account.clone().unwrap_or_default()),
                ("slurmjobid", job.job.to_string()),
                ("gpu", index),
                ("gpu_type", name),
            ];
        }
        vec![
            ("ordinal", index.clone()),
            ("minor_number", index),
            ("uuid", gpu.uuid.clone()),
            ("name", name),
            ("GPU_I_ID", String::new()),
            ("jobid", job.job.to_string()),
            ("userid", job.uid.to_string()),
        ]
    }
}
