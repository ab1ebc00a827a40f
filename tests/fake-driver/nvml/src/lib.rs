//! `libnvidia-ml.so.1` for machines without a GPU.
//!
//! The library tells what a node's accounts say (see `softmig-fake-node`): memory and processes as the fake CUDA driver
//! keeps them, and constants for what nothing depends on. How it answers was compared with driver 580.159 on an H200:
//! counts that are only asked for, versions of structs, wrong handles and indices, what is not supported.
//!
//! src/exports.rs counts a call and takes its arguments over. src/session.rs knows whether NVML is initialized and
//! which GPUs the process has. src/unit.rs finds the device of a handle. The other files each have one topic.

mod accounting;
mod attributes;
mod exports;
mod identity;
mod memory;
mod memory_limits;
mod mig;
mod processes;
mod session;
mod system;
mod unit;
mod utilization;

/// A call's result: an error is NVML's code.
pub(crate) type Outcome<T = ()> = Result<T, softmig_driver_sys::nvml::nvmlReturn_t>;

/// Where a function leaves a value; null is "invalid argument", as in the real NVML.
pub(crate) type Out<T> =
    softmig_fake_node::edge::Out<T, { softmig_driver_sys::nvml::NVML_ERROR_INVALID_ARGUMENT }>;

/// A function's input; null is "invalid argument", as in the real NVML.
pub(crate) type In<T> =
    softmig_fake_node::edge::In<T, { softmig_driver_sys::nvml::NVML_ERROR_INVALID_ARGUMENT }>;
