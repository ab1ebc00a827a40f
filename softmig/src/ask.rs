//! What Slurm and the monitor say, as plain values.

pub(crate) mod cluster;
pub(crate) mod conf;
pub(crate) mod here;
pub(crate) mod monitor;
pub(crate) mod node;
pub(crate) mod sacct;
pub(crate) mod sacctmgr;
pub(crate) mod scontrol;
pub(crate) mod slurmd;
pub(crate) mod squeue;
