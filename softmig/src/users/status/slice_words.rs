//! A job's GPUs, as users type them, and their memory and time by the policy.

use crate::ask::squeue::Job;
use softmig_policy::Policy;
use softmig_policy::node::limits::Percent;

/// A job's part of each of its GPUs.
pub(crate) struct Holding {
    /// `l40s.4`, `gpu:l40s:1`.
    pub(crate) what: String,
    /// The memory of a slice.
    pub(crate) memory_mib: Option<u32>,
    /// The share of its time.
    pub(crate) percent: Option<Percent>,
}

/// By the job's own record and the policy, where there is one.
pub(crate) fn holding(policy: Option<&Policy>, job: &Job) -> Holding {
    let whole = || Holding {
        what: job.gpus(),
        memory_mib: None,
        percent: None,
    };
    let Some((Some(kind), shards)) = job.slice() else {
        return whole();
    };
    let Some(gpu) = policy.and_then(|policy| policy.gpu(kind)) else {
        return whole();
    };
    let limits = u32::try_from(shards)
        .ok()
        .and_then(|shards| gpu.limits(shards).ok());
    Holding {
        what: match gpu.slice_of_shards(shards) {
            Some(size) => format!("{kind}.{size}"),
            None => job.gpus(),
        },
        memory_mib: limits.map(|limits| limits.memory_mib()),
        percent: limits.map(|limits| limits.percent()),
    }
}
