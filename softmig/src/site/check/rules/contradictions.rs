//! Contradictions: one figure of the policy allows a user something that another figure makes impossible.

use crate::output::say::counted;
use crate::site::check::finding::{Code, Finding};
use softmig_policy::Policy;
use softmig_policy::config::choices::RawShards;
use softmig_policy::config::classes::ClassLimits;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::config::quota::Quota;

pub(crate) fn check(policy: &Policy) -> Vec<Finding> {
    let others = policy.standing_of_others();
    let standings = policy.standings().iter().filter(|standing| {
        // With a default class every user is in a class, so the limits of users without one do not count.
        let is_somebodys = standing.user.is_some() || standing.class.is_some();
        is_somebodys || others.is_some_and(|others| others.class.is_none())
    });
    let mut found = Vec::new();
    for standing in standings {
        let quota = &standing.quota;
        // GPUs of types without a table count as no shards.
        if quota.whole_gpus.is_some_and(|most| most > 0) && policy.plain_types().is_empty() {
            let gpus = policy.gpus().filter(|gpu| !gpu.is_mig());
            let wholes = gpus.map(|gpu| (gpu, u64::from(gpu.shards_per_gpu())));
            let remedy = "write whole_gpus = 0, or more shards";
            found.extend(never(standing, "no whole GPU", wholes.collect(), remedy));
        }
        let none_meant = quota.shards == Some(0) || quota.max_shards_per_job == Some(0);
        if !none_meant && policy.raw_shards != RawShards::Allow {
            let smallest = policy.gpus().filter_map(|gpu| {
                let shards = gpu.shards_per_gpu() / gpu.slices().last()?;
                Some((gpu, u64::from(shards)))
            });
            let remedy = "write shards = 0 if that is meant, or more shards";
            found.extend(never(standing, "no slice", smallest.collect(), remedy));
        }
    }
    found
}

/// The most shards of a type that one job can ever have; `None` for any number.
fn room(quota: &Quota, gpu: &GpuType) -> Option<u64> {
    let of_type = quota.shards_of.get(gpu.name()).copied();
    let limits = [quota.shards, quota.max_shards_per_job, of_type];
    limits.into_iter().flatten().min()
}

/// A finding if the limits on shards rule out each of these types, with the shards of one.
fn never(
    standing: &ClassLimits,
    what: &str,
    sizes: Vec<(&GpuType, u64)>,
    remedy: &str,
) -> Option<Finding> {
    let room_for = |gpu: &GpuType| room(&standing.quota, gpu);
    let fits = |(gpu, shards): &(&GpuType, u64)| room_for(gpu).is_none_or(|room| *shards <= room);
    if sizes.iter().any(fits) {
        return None;
    }
    let (gpu, shards) = sizes.into_iter().min_by_key(|(_, shards)| *shards)?;
    Some(Finding::new(
        Code::ClassNever,
        format!("limits of {}", standing.called()),
        format!(
            "{what} can ever be had: the smallest, of type {}, counts as {}, and shards, shards_of or max_shards_per_job leave {}",
            gpu.name(),
            counted(shards, "shard"),
            room_for(gpu)?
        ),
        remedy,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::policy_with;

    fn places(policy: &str) -> Vec<String> {
        let found = check(&policy_with(policy));
        found.into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn whole_gpus_that_can_never_be_had_are_told() {
        for possible in [
            "",
            "[defaults]\nshards = 4\nwhole_gpus = 1\n",
            "[defaults]\nshards = 3\nwhole_gpus = 0\n",
            "[defaults]\nshards = 3\n",
            // One of the other type can.
            "[defaults]\nshards = 16\nshards_of = { l40s = 2 }\nwhole_gpus = 1\n",
            // GPUs of plain types do not count as shards.
            "plain_types = [\"v100\"]\n[defaults]\nshards = 3\nwhole_gpus = 1\n",
            // No user is without a class.
            "default_class = \"a\"\n[defaults]\nshards = 2\nwhole_gpus = 1\n[classes.a]\nwhole_gpus = 0\n",
        ] {
            assert!(places(possible).is_empty(), "{possible}");
        }
        let people = "[defaults]\nshards = 2\nwhole_gpus = \"unlimited\"\n[classes.a]\nmax_shards_per_job = 3\nwhole_gpus = 2\n\
                      shards = 8\n[users.bob]\nwhole_gpus = 1\n";
        assert_eq!(places(people), ["limits of class a", "limits of user bob"]);
    }

    #[test]
    fn slices_that_are_all_too_large_are_told() {
        let is_clean = |more: &str| {
            let gpu =
                "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\nslices = [2]\n";
            check(&Policy::parse(&format!("{more}{gpu}")).unwrap()).is_empty()
        };
        assert!(is_clean("[defaults]\nshards = 2\n"));
        assert!(is_clean("[defaults]\nshards = 0\n"));
        assert!(is_clean("raw_shards = \"allow\"\n[defaults]\nshards = 1\n"));
        assert!(!is_clean("[defaults]\nshards = 1\n"));
    }
}
