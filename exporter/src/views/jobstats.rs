//! `nvidia_gpu_*`: the exporter whose metrics jobstats reads.

use super::card::{HELP, figures, index_and_name};
use crate::window::Window;
use softmig_usage::Node;
use softmig_usage::metrics::Page;

const METRICS: [(&str, &str); 5] = [
    ("nvidia_gpu_memory_total_bytes", HELP[0]),
    ("nvidia_gpu_memory_used_bytes", HELP[1]),
    ("nvidia_gpu_duty_cycle", HELP[2]),
    ("nvidia_gpu_jobId", "The job's number"),
    ("nvidia_gpu_jobUid", "The job's user"),
];

pub(super) fn add(page: &mut Page, now: &Node, window: &Window) {
    for (at, (name, help)) in METRICS.into_iter().enumerate() {
        let family = page.gauge(name, help);
        for (job, slice, gpu) in now.slices() {
            let [total, used, busy] = figures(now, window, (job, slice, gpu));
            let values = [
                total,
                used,
                busy,
                Some(f64::from(job.job)),
                Some(f64::from(job.uid)),
            ];
            let Some(value) = values[at] else { continue };
            let (index, name) = index_and_name(now, gpu);
            let (id, uid) = (job.job.to_string(), job.uid.to_string());
            let labels = [
                ("ordinal", index.as_str()),
                ("minor_number", &index),
                ("uuid", &gpu.uuid),
                ("name", name),
                ("GPU_I_ID", ""),
                ("jobid", &id),
                ("userid", &uid),
            ];
            family.add(&labels, value);
        }
    }
}
