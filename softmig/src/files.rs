//! softmig's own files: the policy, those that it writes for Slurm, and its folder in /etc.

pub(crate) mod config_lock;
pub(crate) mod policy_file;
pub(crate) mod stamp;
