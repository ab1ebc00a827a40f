//! The driver: its two libraries, its functions, and what it says of contexts, streams and devices.
//!
//! - [`library`]: finds the driver's functions.
//! - [`table`]: what a row is, and the macros that make rows and functions of a list.
//! - [`cuda`], [`nvml`]: the lists of functions that the hook exports.
//! - [`cuda_queries`], [`nvml_queries`]: those that it only calls.
//! - [`context`], [`stream`], [`device`]: what the driver says of these.
//! - [`args`]: what a program gives the driver by address.

pub(crate) mod args;
pub(crate) mod context;
pub(crate) mod cuda;
pub(crate) mod cuda_queries;
pub(crate) mod device;
pub(crate) mod library;
pub(crate) mod nvml;
pub(crate) mod nvml_queries;
pub(crate) mod stream;
pub(crate) mod table;
