//! The nodes, GPUs and jobs of a cluster as Slurm shows them to this user: for `softmig status` and `softmig free`.
//!
//! Three questions to slurmctld are enough, however many nodes and jobs there are. Slurm leaves out all that the user
//! may not see (PrivateData); used shards are right anyway where nodes say them.

pub(crate) mod all;
pub(crate) mod ask;
pub(crate) mod jobs;
pub(crate) mod purpose;
pub(crate) mod reasons;
