//! The nodes, GPUs and jobs of a cluster as Slurm shows them to this user: for `softmig status` and `softmig free`.
//!
//! Three questions to slurmctld are enough, however many nodes and jobs there are. What the user may not see (PrivateData) is
//! left out by Slurm; used shards are right all the same where nodes say them.

pub(crate) mod all;
pub(crate) mod ask;
pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod purpose;
pub(crate) mod reasons;
