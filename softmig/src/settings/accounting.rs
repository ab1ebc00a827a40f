//! The resources that Slurm has to count, and whether it needs slurmdbd for that.

use crate::settings::partitions::BillingWeights;
use crate::settings::qos;
use softmig_policy::Policy;
use std::collections::BTreeSet;

/// The needs of a policy's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accounting {
    /// AccountingStorageTRES: what is counted besides CPUs, memory and the like.
    pub(crate) tres: Vec<String>,
    /// The weights in `billing`; `None` where no class is held to shards.
    pub(crate) weights: Option<BillingWeights>,
    /// Whether any class has a priority, which Slurm heeds only where QOS count in a job's priority.
    pub(crate) priority: bool,
}

/// The words of AccountingStorageEnforce that limits need.
pub(crate) const ENFORCE: [&str; 3] = ["associations", "limits", "qos"];

/// `None` when no class has anything for Slurm to hold: slurmdbd is not needed then.
pub(crate) fn for_policy(policy: &Policy) -> Option<Accounting> {
    let all = qos::all(policy);
    if all.is_empty() {
        return None;
    }
    let limited = all
        .iter()
        .flat_map(|qos| qos.per_user.iter().chain(qos.per_job.iter()));
    let mut tres: BTreeSet<String> = limited
        .map(|(name, _)| name.to_string())
        .filter(|name| name.starts_with("gres/"))
        .collect();
    // Slurm counts a type only beside all types.
    tres.extend(["gres/gpu", "gres/shard"].map(str::to_string));
    // So that they can be reserved.
    let kept = policy.reservables().iter();
    tres.extend(kept.map(|kept| format!("gres/gpu:{}", kept.kind())));
    let shards = all.iter().any(|qos| qos.per_user.get("billing").is_some());
    let weights = shards.then(|| BillingWeights::for_policy(policy));
    if let Some(weights) = &weights {
        tres.extend(weights.iter().map(|(name, _)| name.to_string()));
    }
    Some(Accounting {
        tres: tres.into_iter().collect(),
        weights,
        priority: all.iter().any(|qos| qos.priority > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: &str = "[gpu.l40s]\nmemory_mib = 10000\nreserved_mib = 0\nshards = 4\n";

    #[test]
    fn slurmdbd_is_needed_for_limits_alone() {
        assert_eq!(for_policy(&Policy::parse(GPUS).unwrap()), None);
    }

    #[test]
    fn all_that_is_limited_or_weighs_is_counted() {
        let policy = Policy::parse(&format!("{GPUS}[defaults]\nshards = 2\n")).unwrap();
        let accounting = for_policy(&policy).unwrap();
        assert_eq!(accounting.tres, ["gres/gpu", "gres/shard"]);
        assert!(accounting.weights.is_some() && !accounting.priority);
        let policy = Policy::parse(&format!("{GPUS}[defaults]\ncpus = 2\npriority = 1\n")).unwrap();
        let accounting = for_policy(&policy).unwrap();
        assert_eq!(accounting.tres, ["gres/gpu", "gres/shard"]);
        assert!(accounting.weights.is_none() && accounting.priority);
    }
}
