//! Slurm's settings for a policy, as plain figures: `softmig config` writes them down, `softmig check` compares them.

pub(crate) mod accounting;
pub(crate) mod gres;
pub(crate) mod partitions;
pub(crate) mod qos;
pub(crate) mod slurm_conf;
pub(crate) mod tres;
