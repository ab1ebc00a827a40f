//! Slurm's own language: requests, options, lists and what its commands print. It knows no policy.

pub mod allocation;
pub mod configured;
pub mod gres;
pub mod hostlist;
pub mod options;
pub(crate) mod request;
pub mod slurm_conf;
pub(crate) mod wall_time;
