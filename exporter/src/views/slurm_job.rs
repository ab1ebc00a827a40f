//! `slurm_job_*_gpu`: slurm-job-exporter.

use super::card::{HELP, figures, index_and_name};
use crate::window::Window;
use softmig_usage::Node;
use softmig_usage::metrics::Page;

const METRICS: [(&str, &str); 3] = [
    ("slurm_job_memory_total_gpu", HELP[0]),
    ("slurm_job_memory_usage_gpu", HELP[1]),
    ("slurm_job_utilization_gpu", HELP[2]),
];

pub(super) fn add(page: &mut Page, now: &Node, window: &Window) {
    for (at, (name, help)) in METRICS.into_iter().enumerate() {
        let family = page.gauge(name, help);
        for (job, slice, gpu) in now.slices() {
            let values = figures(now, window, (job, slice, gpu));
            let Some(value) = values[at] else { continue };
            let (index, name) = index_and_name(now, gpu);
            let (id, user) = (job.job.to_string(), job.user_name());
            let labels = [
                ("user", user.as_str()),
                ("account", job.account.as_deref().unwrap_or_default()),
                ("slurmjobid", &id),
                ("gpu", &index),
                ("gpu_type", name),
            ];
            family.add(&labels, value);
        }
    }
}
