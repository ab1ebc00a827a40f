//! A node's GPUs as NVML describes them, in plain values, for all parts that ask: `softmig probe` and `softmig check`,
//! and the monitor.
//!
//! [`Devices`] has the GPUs, their memory and their MIG instances; what runs on them is the monitor's to ask. [`types`]
//! suggests how Slurm and the policy may call them.

#![deny(unsafe_code)]

pub mod devices;
mod idle;
mod library;
mod memory;
#[expect(
    unsafe_code,
    reason = "a function of NVML that nvml-wrapper does not know"
)]
mod memory_limit;
pub mod profile;
mod reading;
mod setting;
pub mod types;

pub use devices::{Devices, Gpu, Instance, Mig, MigState};
pub use idle::is_idle;
pub use library::{explained, open, remedy};
pub use memory::{Memory, memory};
pub use memory_limit::memory_limit;
pub use setting::Setting;
