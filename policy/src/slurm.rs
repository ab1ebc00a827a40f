//! Slurm's own language: requests, options, lists and what its commands print. It knows no policy.

pub mod allocation;
pub mod cli_options;
pub mod conf;
pub mod gpu_list;
pub mod gres;
pub mod gres_list;
pub mod hostlist;
pub(crate) mod job_request;
pub mod placed;
pub(crate) mod plain;
pub mod release;
pub(crate) mod time_limit;
