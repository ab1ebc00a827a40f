//! The metrics of a GPU.

use super::page::{Family, Page};
use crate::{GpuUsage, Node};

/// Adds one figure of each GPU that has it.
fn each(family: &mut Family, node: &Node, figure: impl Fn(&GpuUsage) -> Option<u64>) {
    for gpu in &node.gpus {
        let index = gpu.index.to_string();
        let labels = [("gpu", index.as_str()), ("UUID", &gpu.uuid)];
        if let Some(figure) = figure(gpu) {
            family.add(&labels, figure as f64);
        }
    }
}

/// Adds the metrics of all GPUs.
pub(crate) fn add(page: &mut Page, node: &Node) {
    let shards = page.gauge(
        "softmig_gpu_shards",
        "Shards of a GPU with slices that jobs have (allocated) and that no job has (free)",
    );
    for gpu in &node.gpus {
        let slices = || node.slices().filter(|(_, _, its)| its.uuid == gpu.uuid);
        let Some(all) = slices().map(|(_, slice, _)| slice.shards_per_gpu).max() else {
            continue;
        };
        let allocated = slices().map(|(_, slice, _)| slice.shards);
        let allocated = allocated.fold(0, u32::saturating_add).min(all);
        let index = gpu.index.to_string();
        for (state, count) in [("allocated", allocated), ("free", all - allocated)] {
            let labels = [
                ("gpu", index.as_str()),
                ("UUID", &gpu.uuid),
                ("state", state),
            ];
            shards.add(&labels, f64::from(count));
        }
    }
    let missing = page.gauge(
        "softmig_gpu_missing_memory_bytes",
        "Memory of a GPU that jobs may still have by their slices and that processes outside them hold",
    );
    each(missing, node, |gpu| Some(gpu.missing_bytes));
    let faults = page.counter(
        "softmig_gpu_pack_faults_total",
        "Faults of a GPU that ended all programs of a pack there since the node started; only where there was a pack",
    );
    each(faults, node, |gpu| gpu.pack_faults);
    let seconds = page.counter(
        "softmig_gpu_seconds_total",
        "GPU time that slices were charged (slices), that changes between jobs took (change), and that processes without a slice used (unclaimed)",
    );
    for gpu in &node.gpus {
        let index = gpu.index.to_string();
        for (who, time) in [
            ("slices", gpu.charged_seconds),
            ("change", gpu.change_seconds),
            ("unclaimed", gpu.unclaimed_seconds),
        ] {
            let labels = [("gpu", index.as_str()), ("UUID", &gpu.uuid), ("who", who)];
            seconds.add(&labels, time);
        }
    }
}
