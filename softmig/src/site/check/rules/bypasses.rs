//! Ways around the limits of users, which only Slurm's settings, its queue or the choice of a class's members can
//! close.

use crate::site::check::facts::{Cluster, Job, Partition};
use crate::site::check::finding::{Code, Finding, listed};
use crate::site::check::rules::accounting::{called, partitions_with_gpus};
use softmig_policy::config::reservable::{Holder, Reservable, Window};
use softmig_policy::{MaybeKnown, Policy, Submitter};
use std::collections::BTreeSet;

pub(crate) fn check(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    if gives_by_person(policy) {
        found.extend(whole_nodes(cluster));
    }
    found.extend(groups(policy));
    found.extend(jobs(policy, cluster, now));
    found
}

/// Whether the policy treats users differently, by classes, gates or reserved GPUs.
fn gives_by_person(policy: &Policy) -> bool {
    let mut standings = policy.standings().iter();
    policy.standings().len() > 1
        || standings.any(|standing| standing.quota.needs_qos())
        || !policy.gates().is_empty()
        || !policy.reservables().is_empty()
}

/// Partitions and options with which a job gets whole nodes without asking for a GPU.
fn whole_nodes(cluster: &Cluster) -> Vec<Finding> {
    const SPEC: &str = "AllowSpecResourcesUsage";
    let is_exclusive = |partition: &&Partition| {
        // The second is the old name of the first. The third is what 26.05 prints for both, and reads in slurm.conf.
        let keys = [
            ("OverSubscribe", "EXCLUSIVE"),
            ("Shared", "EXCLUSIVE"),
            ("Exclusive", "NODE"),
        ];
        let mut values = keys
            .iter()
            .map(|(key, whole)| (partition.settings.get(key), whole));
        values.any(|(own, whole)| own.eq_ignore_ascii_case(whole))
    };
    let exclusive = called(partitions_with_gpus(cluster).filter(is_exclusive));
    let spec = cluster.settings.is_yes(SPEC).then(|| SPEC.to_string());
    let rows = rows! {
        exclusive, PartitionExclusive,
            "OverSubscribe=EXCLUSIVE or Exclusive=NODE: every job there gets all GPUs of its node, and softmig cannot see that it \
             asks for any, so none of the limits in policy.toml holds there",
            "take the setting out, or take the nodes with GPUs out of the partition";
        spec, SpecResources,
            "a job with --core-spec or --thread-spec gets all GPUs of its node, and softmig cannot see that it asks for any, so \
             none of the limits in policy.toml holds for it",
            "write AllowSpecResourcesUsage=NO. on_untagged = \"deny\" in [node] of policy.toml keeps such a job from using the \
             GPUs, but not from holding them";
    };
    let found = rows
        .into_iter()
        .filter_map(|(place, code, what, remedy)| Some(Finding::new(code, place?, what, remedy)));
    found.collect()
}

/// Classes with members by group. The primary group is that of the submitting process, and users with a second group
/// can change it.
fn groups(policy: &Policy) -> Vec<Finding> {
    let Some(others) = policy.standing_of_others() else {
        return Vec::new();
    };
    let found = policy.standings().iter().filter_map(|standing| {
        let class = standing.class.as_deref()?;
        if standing.user.is_some() || !policy.has_groups(class) {
            return None;
        }
        let keys = listed(standing.quota.stricter_than(&others.quota).into_iter())?;
        Some(Finding::new(
            Code::ClassGroups,
            format!("[classes.{class}]"),
            format!(
                "it has members by groups, and {} may have more ({keys}): users with a second group leave the class with sg \
                 or newgrp",
                others.called()
            ),
            "name its members by users or accounts, or make what holds for people in no class the strictest",
        ))
    });
    found.collect()
}

/// Jobs on GPUs that are now reserved for other users: a job that was accepted in one window may last beyond it.
fn jobs(policy: &Policy, cluster: &Cluster, now: i64) -> Vec<Finding> {
    if policy.reservables().is_empty() {
        return Vec::new();
    }
    let jobs = match &cluster.jobs {
        Ok(jobs) => jobs,
        Err(why) => return vec![Finding::skip("jobs", why)],
    };
    let kinds: BTreeSet<&str> = policy.reservables().iter().map(Reservable::kind).collect();
    let found = kinds.into_iter().filter_map(|kind| {
        let mut all = policy.reservables().iter();
        let open = all.find(|own| own.kind() == kind && own.window(now) == Window::Open);
        let holder = open.map(Reservable::holder);
        let asks = |job: &&Job| {
            let mut asked = job.asked.iter();
            asked.any(|gres| gres.name == "gpu" && gres.kind.as_deref() == Some(kind))
        };
        let is_others = |job: &&Job| !holder.is_some_and(|holder| is_holders(holder, job));
        let others = jobs.iter().filter(asks).filter(is_others);
        let whose = holder.map_or("no user".to_string(), Holder::called);
        let jobs =
            listed(others.map(|job| format!("{} ({} in {})", job.name, job.user, job.account)))?;
        Some(Finding::new(
            Code::ReservableJobs,
            format!("[[reservable]] {kind}"),
            format!("gpu:{kind} is reserved for {whose} now, and these jobs ask for it: {jobs}"),
            "cancel them with scancel, or hold those that wait with scontrol hold",
        ))
    });
    found.collect()
}

fn is_holders(holder: &Holder, job: &Job) -> bool {
    let submitter = Submitter {
        user: Some(job.user.clone()),
        account: MaybeKnown::known(Some(job.account.clone())),
        ..Submitter::default()
    };
    submitter.is(holder) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{KEPT, cluster, codes, job, policy, policy_with};

    const GATE: &str = "[[gate]]\nwhat = \"whole\"\nreservation = [\"a\"]\n";
    const LIMITS: &str = "[defaults]\nshards = 2\n";

    #[test]
    fn a_right_cluster_is_clean() {
        for policy in [policy(), policy_with(LIMITS), policy_with(KEPT)] {
            assert!(check(&policy, &cluster(), 60).is_empty());
        }
    }

    #[test]
    fn an_exclusive_partition_with_gpus_holds_no_user_to_a_limit() {
        let found = |policy: &Policy, at: usize, key: &str, value: &str| {
            let mut cluster = cluster();
            cluster.partitions[at].settings.set(key, value);
            codes(&check(policy, &cluster, 60))
        };
        for policy in [policy_with(LIMITS), policy_with(GATE), policy_with(KEPT)] {
            for (key, value) in [
                ("OverSubscribe", "EXCLUSIVE"),
                ("Shared", "Exclusive"),
                ("Exclusive", "NODE"),
            ] {
                assert_eq!(found(&policy, 0, key, value), ["PARTITION_EXCLUSIVE"]);
                // There are no GPUs.
                assert!(found(&policy, 1, key, value).is_empty());
            }
            for (key, value) in [("OverSubscribe", "FORCE:4"), ("Exclusive", "USER")] {
                assert!(found(&policy, 0, key, value).is_empty(), "{key}={value}");
            }
        }
        assert!(found(&policy(), 0, "OverSubscribe", "EXCLUSIVE").is_empty());
    }

    #[test]
    fn options_that_give_whole_nodes_hold_no_user_to_a_limit() {
        let found = |policy: &Policy, value: &str| {
            let mut cluster = cluster();
            cluster.settings.set("AllowSpecResourcesUsage", value);
            codes(&check(policy, &cluster, 60))
        };
        for policy in [policy_with(LIMITS), policy_with(GATE), policy_with(KEPT)] {
            for value in ["YES", "yes", "1", "True"] {
                assert_eq!(found(&policy, value), ["SPEC_RESOURCES"], "{value}");
            }
            for value in ["", "NO", "0"] {
                assert!(found(&policy, value).is_empty(), "{value}");
            }
        }
        assert!(found(&policy(), "YES").is_empty());
    }

    #[test]
    fn a_class_that_users_leave_with_sg_is_not_stricter() {
        let found = |defaults: u32, members: &str, default_class: &str| {
            let policy = policy_with(&format!(
                "{default_class}[defaults]\nwhole_gpus = 1\nshards = {defaults}\n\
                 [classes.student]\nmembers = {{ {members} }}\nshards = 4\n[classes.guest]\nshards = 9\n"
            ));
            let found = check(&policy, &cluster(), 60);
            found.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let left = found(8, "groups = [2000]", "");
        assert_eq!(
            left,
            [
                "WARN  CLASS_GROUPS [classes.student]: it has members by groups, and people in no class may have more (shards): \
              users with a second group leave the class with sg or newgrp; name its members by users or accounts, or make what \
              holds for people in no class the strictest"
            ]
        );
        assert!(found(4, "groups = [2000]", "").is_empty());
        assert!(found(8, "accounts = [\"course\"]", "").is_empty());
        // The default class counts for users in no class.
        let guests = found(2, "groups = [2000]", "default_class = \"guest\"\n");
        assert_eq!(guests.len(), 1);
        assert!(guests[0].contains("and class guest may have more (shards)"));
    }

    #[test]
    fn jobs_on_a_gpu_that_is_kept_for_others_are_named() {
        let next = "[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\naccount = \"Course\"\nreason = \"x\"\n\
            start = 1970-01-01T00:02:00Z\nend = 1970-01-01T00:03:00Z\n";
        let policy = policy_with(&format!("{KEPT}{next}"));
        let mut cluster = cluster();
        cluster.jobs = Ok(vec![
            job("7", "alice", "a", "gpu:l40s_r:1"),
            job("8_[0-3]", "bob", "course", "cpu:2,gpu:l40s_r:1"),
            job("9", "carol", "c", "gpu:l40s:1"),
        ]);
        // Alice's job is still there after its window.
        for (now, end) in [
            (
                60,
                "user alice now, and these jobs ask for it: 8_[0-3] (bob in course)",
            ),
            (
                120,
                "account Course now, and these jobs ask for it: 7 (alice in a)",
            ),
            (
                180,
                "no user now, and these jobs ask for it: 7 (alice in a), 8_[0-3] (bob in course)",
            ),
        ] {
            let found = check(&policy, &cluster, now);
            assert!(found[0].what.ends_with(end), "{}", found[0]);
        }
        cluster.jobs = Err("squeue did not say".into());
        assert_eq!(codes(&check(&policy, &cluster, 60)), ["NOT_LOOKED_AT"]);
    }
}
