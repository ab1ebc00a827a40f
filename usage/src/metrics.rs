//! The usage of a node's GPUs in Prometheus' text format: for node_exporter's textfile and for `softmig-exporter`
//! (docs/usage.md).

mod gpu;
mod page;
mod slice;

pub use page::{Family, Page};

use crate::Node;

/// All of softmig's own metrics of a node.
pub fn page(node: &Node) -> Page {
    let mut page = Page::default();
    page.gauge(
        "softmig_build_info",
        "Always 1; the labels say which softmig wrote this",
    )
    .add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.gauge(
        "softmig_measured_timestamp_seconds",
        "When the monitor last measured, in seconds since 1970",
    )
    .add(&[], node.time);
    gpu::add(&mut page, node);
    slice::add(&mut page, node);
    let findings = page.counter(
        "softmig_findings_total",
        "Findings of the monitor since it started, by the rule's name",
    );
    for found in &node.findings {
        findings.add(&[("kind", &found.kind)], found.count as f64);
    }
    page
}
