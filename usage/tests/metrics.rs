//! The metrics of a node.

#![cfg(feature = "metrics")]

use softmig_usage::{Findings, GpuUsage, Job, JobGpu, Node, Seat, Slice};

/// A quarter of GPU 0, and a GPU that a job has as a whole.
fn node() -> Node {
    let quarter = Job {
        job: 12,
        uid: 2001,
        user: Some("alice".into()),
        account: Some("teaching".into()),
        since: 1000.0,
        idle_after_seconds: Some(1800.0),
        slice: Some(Slice {
            r#type: "l40s".into(),
            shards: 1,
            shards_per_gpu: 4,
            mode: "hard".into(),
            memory_bytes: 11_918_114_816,
        }),
        gpus: vec![JobGpu {
            index: Some(0),
            uuid: "GPU-0".into(),
            memory_bytes: Some(1 << 30),
            memory_peak_bytes: Some(2 << 30),
            refused: 3,
            refused_largest_bytes: 1 << 34,
            known_seconds: 60.0,
            charged_seconds: 7.5,
            waited_seconds: 1.25,
            idle_seconds: 0.5,
            credit_seconds: -0.25,
            processes: 1,
            seats: vec![Seat {
                pid: 77,
                not_steered: Some("it has told of no channels".into()),
            }],
            ..JobGpu::default()
        }],
        pack: None,
    };
    let whole = Job {
        job: 13,
        uid: 2002,
        gpus: vec![JobGpu {
            index: Some(1),
            uuid: "GPU-1".into(),
            ..JobGpu::default()
        }],
        ..Job::default()
    };
    let gpu = |index: u32, charged_seconds| GpuUsage {
        index,
        uuid: format!("GPU-{index}"),
        name: Some("NVIDIA L40S".into()),
        charged_seconds,
        change_seconds: 0.5,
        unclaimed_seconds: 1.5,
        ..GpuUsage::default()
    };
    let with_faults = |gpu| GpuUsage {
        pack_faults: Some(2),
        ..gpu
    };
    Node {
        schema_version: softmig_usage::VERSION,
        time: 1060.0,
        node: "n1".into(),
        gpus: vec![with_faults(gpu(0, 7.5)), gpu(1, 0.0)],
        jobs: vec![quarter, whole],
        findings: vec![Findings {
            kind: "memory".into(),
            count: 4,
        }],
        ..Node::default()
    }
}

fn text(node: &Node) -> String {
    softmig_usage::metrics::page(node).text()
}

#[test]
fn each_metric_has_its_help_its_type_and_its_labels() {
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    insta::assert_snapshot!(text(&node()).replace(version, "version=\"VERSION\""));
}

#[test]
fn a_value_that_is_not_known_has_no_sample() {
    let mut node = node();
    node.jobs[0].gpus[0].memory_bytes = None;
    node.jobs[0].user = None;
    let text = text(&node);
    assert!(!text.contains("softmig_slice_memory_used_bytes"), "{text}");
    assert!(text.contains("softmig_slice_memory_peak_bytes{"), "{text}");
    assert!(text.contains("user=\"2001\""), "{text}");
}

#[test]
fn a_gpu_is_never_more_than_taken() {
    let mut node = node();
    node.jobs[0].slice.as_mut().unwrap().shards = 9;
    let text = text(&node);
    for (state, count) in [("allocated", 4), ("free", 0)] {
        let sample =
            format!("softmig_gpu_shards{{gpu=\"0\",UUID=\"GPU-0\",state=\"{state}\"}} {count}\n");
        assert!(text.contains(&sample), "{text}");
    }
}

/// The monitor makes a page at each look.
#[test]
#[ignore = "prints a figure; run it with --release"]
fn what_a_page_costs() {
    let mut node = node();
    let (gpu, job) = (node.gpus[0].clone(), node.jobs[0].clone());
    node.gpus = vec![gpu; 8];
    node.jobs = vec![job; 64];
    let began = std::time::Instant::now();
    let bytes: usize = (0..1000).map(|_| text(&node).len()).sum();
    let each = began.elapsed() / 1000;
    println!(
        "8 GPUs, 64 slices: {} KiB in {each:?}, {:.3} % of a core at one a second",
        bytes / 1000 / 1024,
        each.as_secs_f64() * 100.0
    );
}
