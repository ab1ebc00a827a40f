//! What users type: which GPUs are free, how their jobs are and were, and what a request gets.

pub(crate) mod advise;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod free;
pub(crate) mod job;
pub(crate) mod report;
pub(crate) mod smi;
pub(crate) mod status;
mod whose;
