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
    standings
        .flat_map(|standing| [wholes(policy, standing), slices(policy, standing)])
        .flatten()
        .collect()
}

/// The most shards of a type that one job can ever have; `None` for any number.
fn room(quota: &Quota, gpu: &GpuType) -> Option<u64> {
    let of_type = quota.shards_of.get(gpu.name()).copied();
    let limits = [quota.shards, quota.max_shards_per_job, of_type];
    limits.into_iter().flatten().min()
}

/// Whole GPUs: each of them counts as its shards, so a limit on shards may rule them out.
fn wholes(policy: &Policy, standing: &ClassLimits) -> Option<Finding> {
    let quota = &standing.quota;
    let most = quota.whole_gpus.filter(|&most| most > 0)?;
    let gpus: Vec<&GpuType> = policy.gpus().filter(|gpu| !gpu.is_mig()).collect();
    // Types without a table count as no shards.
    if gpus.is_empty() || !policy.plain_types().is_empty() {
        return None;
    }
    let fits = |gpu: &GpuType| {
        let shards = u64::from(gpu.shards_per_gpu());
        room(quota, gpu).is_none_or(|room| shards <= room)
    };
    if gpus.iter().any(|gpu| fits(gpu)) {
        return None;
    }
    let least = gpus.iter().min_by_key(|gpu| gpu.shards_per_gpu())?;
    Some(never(
        standing,
        format!(
            "whole_gpus = {most}, and no whole GPU can ever be had: one of type {} counts as {}, and shards, shards_of or \
             max_shards_per_job leave {}",
            least.name(),
            counted(least.shards_per_gpu(), "shard"),
            room(quota, least)?
        ),
        "write whole_gpus = 0, or more shards",
    ))
}

/// Slices: a limit on shards may be below the smallest slice of every type.
fn slices(policy: &Policy, standing: &ClassLimits) -> Option<Finding> {
    let quota = &standing.quota;
    if quota.shards == Some(0)
        || quota.max_shards_per_job == Some(0)
        || policy.raw_shards == RawShards::Allow
    {
        // No slices are meant, or jobs can ask for any number of shards.
        return None;
    }
    let smallest = |gpu: &GpuType| Some(u64::from(gpu.shards_per_gpu() / gpu.slices().last()?));
    let gpus: Vec<(&GpuType, u64)> = policy
        .gpus()
        .filter_map(|gpu| Some((gpu, smallest(gpu)?)))
        .collect();
    let fits =
        |(gpu, shards): &(&GpuType, u64)| room(quota, gpu).is_none_or(|room| *shards <= room);
    if gpus.iter().any(fits) {
        return None;
    }
    let (gpu, shards) = gpus.iter().min_by_key(|(_, shards)| *shards)?;
    Some(never(
        standing,
        format!(
            "no slice can ever be had: the smallest of type {} is {}, and shards, shards_of or max_shards_per_job \
             leave {}",
            gpu.name(),
            counted(*shards, "shard"),
            room(quota, gpu)?
        ),
        "write shards = 0 if that is meant, or more shards",
    ))
}

fn never(standing: &ClassLimits, what: String, remedy: &str) -> Finding {
    let place = format!("limits of {}", standing.called());
    Finding::new(Code::ClassNever, place, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::policy_with;

    fn found(more: &str) -> Vec<String> {
        let found = check(&policy_with(more));
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn whole_gpus_that_can_never_be_had_are_told() {
        assert!(found("").is_empty());
        assert!(found("[defaults]\nshards = 4\nwhole_gpus = 1\n").is_empty());
        assert!(found("[defaults]\nshards = 3\nwhole_gpus = 0\n").is_empty());
        assert!(found("[defaults]\nshards = 3\n").is_empty());
        assert_eq!(
            found("[defaults]\nshards = 3\nwhole_gpus = 1\n"),
            [
                "WARN  CLASS_NEVER limits of people in no class: whole_gpus = 1, and no whole GPU can ever be had: one of type l40s \
              counts as 4 shards, and shards, shards_of or max_shards_per_job leave 3; write whole_gpus = 0, or more shards"
            ]
        );
        // One of the other type can.
        let types = "shards = 16\nshards_of = { l40s = 2 }\nwhole_gpus = 1\n";
        assert!(found(&format!("[defaults]\n{types}")).is_empty());
        // GPUs of plain types do not count as shards.
        let plain = "plain_types = [\"v100\"]\n[defaults]\nshards = 3\nwhole_gpus = 1\n";
        assert!(found(plain).is_empty());
        let people = "[defaults]\nshards = 2\nwhole_gpus = \"unlimited\"\n[classes.a]\nmax_shards_per_job = 3\nwhole_gpus = 2\n\
                      shards = 8\n[users.bob]\nwhole_gpus = 1\n";
        let told = found(people);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("of class a: whole_gpus = 2"), "{told:?}");
        assert!(told[1].contains("of user bob: whole_gpus = 1"), "{told:?}");
    }

    #[test]
    fn slices_that_are_all_too_large_are_told() {
        let coarse = |more: &str| {
            let gpu =
                "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\nslices = [2]\n";
            let found = check(&Policy::parse(&format!("{more}{gpu}")).unwrap());
            found.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        assert!(coarse("[defaults]\nshards = 2\n").is_empty());
        assert!(coarse("[defaults]\nshards = 0\n").is_empty());
        assert!(coarse("raw_shards = \"allow\"\n[defaults]\nshards = 1\n").is_empty());
        let told = coarse("[defaults]\nshards = 1\n");
        assert_eq!(
            told,
            [
                "WARN  CLASS_NEVER limits of people in no class: no slice can ever be had: the smallest of type l40s is 2 shards, \
              and shards, shards_of or max_shards_per_job leave 1; write shards = 0 if that is meant, or more shards"
            ]
        );
    }

    #[test]
    fn no_user_is_without_a_class_where_all_others_are_in_one() {
        let policy = "default_class = \"a\"\n[defaults]\nshards = 2\nwhole_gpus = 1\n[classes.a]\nwhole_gpus = 0\n";
        assert!(found(policy).is_empty());
    }
}
