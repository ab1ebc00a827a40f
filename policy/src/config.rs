//! policy.toml: its tables and keys, and the rules for their values.

pub mod choices;
pub(crate) mod class_checks;
pub mod classes;
pub mod clock;
pub(crate) mod error;
pub(crate) mod file;
pub mod gates;
pub mod gpu_types;
pub mod inventory;
pub mod legacy_mps;
pub(crate) mod limit;
pub(crate) mod messages;
pub mod metrics;
pub mod monitor;
pub(crate) mod name_check;
pub(crate) mod node_line;
pub mod node_policy;
pub(crate) mod partitions;
pub mod policy;
pub mod quota;
pub(crate) mod refusal_code;
pub mod report;
pub mod reservable;
pub mod routes;
pub mod slurm_words;
pub(crate) mod suggest;
