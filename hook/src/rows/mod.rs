//! The table, one file a library: add a function by adding its line.

pub(crate) mod cuda;
pub(crate) mod nvml;
