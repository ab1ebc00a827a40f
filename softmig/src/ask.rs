//! What Slurm and the monitor say: the only part of the command that asks them.

pub(crate) mod cluster;
pub(crate) mod conf;
pub(crate) mod here;
pub(crate) mod monitor;
pub(crate) mod sacct;
pub(crate) mod sacctmgr;
pub(crate) mod scontrol;
pub(crate) mod slurmd;
pub(crate) mod squeue;
