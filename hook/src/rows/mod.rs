//! The table, one file a library: add a function by adding its line.

pub(crate) mod asked;
pub(crate) mod asked_nvml;
pub(crate) mod cuda;
pub(crate) mod nvml;
