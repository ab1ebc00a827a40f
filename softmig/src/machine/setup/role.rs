//! The roles of a machine in the cluster.

use clap::ValueEnum;

/// The roles of a machine in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Role {
    /// It runs slurmctld
    Controller,
    /// Users submit from it, or its jobs call srun: login nodes, nodes without GPUs
    SubmitHost,
    /// It has GPUs
    GpuNode,
}

impl Role {
    /// As people type it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::SubmitHost => "submit-host",
            Self::GpuNode => "gpu-node",
        }
    }
}
