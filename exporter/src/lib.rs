//! softmig-exporter: serves the usage of a node's GPUs to Prometheus (docs/usage.md). It runs as a user without
//! rights, and learns all from softmig-monitor's socket.

#![forbid(unsafe_code)]

pub mod cli;
pub mod mapping;
pub mod monitor;
pub mod server;
pub mod source;
pub mod tls;
pub mod views;
pub mod window;
