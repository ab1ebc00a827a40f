//! From a request and a policy to a verdict.

pub(crate) mod access;
pub(crate) mod alternatives;
pub(crate) mod attainable;
pub(crate) mod decide;
pub(crate) mod gate_check;
pub(crate) mod gpu_demand;
pub(crate) mod gpu_request;
pub(crate) mod host_resources;
pub(crate) mod quota_check;
pub(crate) mod reason;
pub(crate) mod refusal;
pub(crate) mod reserved_check;
pub(crate) mod rewrite;
pub(crate) mod step;
pub(crate) mod submitter;
pub(crate) mod typed;
pub(crate) mod verdict;
pub(crate) mod wording;
#[cfg(test)]
mod wording_tests;
