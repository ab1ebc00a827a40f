//! `ceems_compute_unit_gpu_index_flag`: the part of a GPU's figures that CEEMS counts for a job.

use crate::window::Window;
use softmig_usage::metrics::Page;
use softmig_usage::{JobGpu, Node};

pub(super) fn add(page: &mut Page, now: &Node, window: &Window) {
    let family = page.gauge(
        "ceems_compute_unit_gpu_index_flag",
        "The job's part of the time that all slices of the GPU were charged since the last scrape",
    );
    for (job, slice, gpu) in now.slices() {
        let charged = window.used(now, job, gpu).charged;
        let (all, shards) = sums(now, window, gpu);
        let part = if all > 0.0 {
            charged / all
        } else {
            // As CEEMS does it: by what Slurm gave.
            f64::from(slice.shards) / f64::from(shards.max(1))
        };
        let index = gpu.index_label();
        let id = job.job.to_string();
        let host_index = format!("{}-gpu-{index}", now.node);
        let labels = [
            ("manager", "slurm"),
            ("hostname", &now.node),
            ("cgrouphostname", ""),
            ("uuid", &id),
            ("index", &index),
            ("hindex", &host_index),
            ("gpuuuid", &gpu.uuid),
            ("gpuiid", ""),
        ];
        family.add(&labels, part);
    }
}

/// The charged time and the shards of all slices of a GPU.
fn sums(now: &Node, window: &Window, of: &JobGpu) -> (f64, u32) {
    now.slices().filter(|(_, _, gpu)| gpu.uuid == of.uuid).fold(
        (0.0, 0),
        |(charged, shards), (job, slice, gpu)| {
            let used = window.used(now, job, gpu);
            (charged + used.charged, shards + slice.shards)
        },
    )
}
