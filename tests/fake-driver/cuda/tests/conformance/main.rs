//! What softmig relies on of CUDA, checked against the fake driver and against a real one.
//!
//! `cargo test -p softmig-fake-cuda` asks the fake driver. `cargo test -p softmig-fake-cuda --no-run` prints the path of
//! a program that needs nothing else. On a machine with an idle GPU, `DRIVER=real PROGRAM` has it ask `libcuda.so.1`.
//! Tests that need GPUs which only the fake driver has say that they are left out.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod captures;
mod contexts;
mod devices;
mod graphs;
mod harness;
mod memory;
mod names;
mod pools;
mod processes;
mod sharing;
mod streams;
mod vmm;
