//! What softmig relies on of NVML and of a GPU's scheduler, checked against the fake driver and against a real one.
//!
//! `cargo test -p softmig-fake-nvml` asks the fake one. `DRIVER=real` has the built program ask the machine's own, as
//! `tests/fake-driver/cuda/tests/conformance/main.rs` says. NVML knows processes by the pids of the machine: in a
//! container with pids of its own the tests of processes fail.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod devices;
#[path = "../../../cuda/tests/conformance/harness.rs"]
mod harness;
mod memory;
mod mps;
mod scheduler;
mod utilization;

/// Initializes NVML, and returns the handle of the first GPU.
fn first_device() -> usize {
    harness::ok!(nvmlInit_v2());
    device(0)
}

fn device(index: u32) -> usize {
    let mut device = 0usize;
    harness::ok!(nvmlDeviceGetHandleByIndex_v2(index, &raw mut device));
    device
}

fn count() -> u32 {
    harness::new!(nvmlDeviceGetCount_v2())
}

/// A text that a function leaves.
fn text(fill: impl FnOnce(*mut u8) -> u32) -> String {
    let mut bytes = [0u8; 96];
    assert_eq!(fill(bytes.as_mut_ptr()), 0);
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
}
