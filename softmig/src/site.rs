//! What a site types: the configuration of Slurm for a policy, and whether all parts agree with it.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod probe;
