//! The GPUs that are cut into slices.

use crate::site::check::facts::Node;
use softmig_policy::Policy;

/// Whether any GPUs are cut.
pub(super) fn shares(policy: &Policy) -> bool {
    policy.gpus().any(|gpu| gpu.shards_per_gpu() > 1)
}

/// Whether slices of a type can be on a node. Types that are not shared may have shards that no job can request.
pub(super) fn has_slices(policy: &Policy, node: &Node, kind: &str) -> bool {
    let gpu = policy.gpu(kind);
    gpu.is_some_and(|gpu| gpu.shards_per_gpu() > 1) && node.count("shard", kind) > 0
}
