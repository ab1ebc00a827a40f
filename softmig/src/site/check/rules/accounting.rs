//! Checks that Slurm holds each class to its limits: accounting, QOS, billing weights.

use crate::settings::accounting;
use crate::settings::partitions::BillingWeights;
use crate::settings::qos::{self, FLAG};
use crate::settings::tres::Tres;
use crate::site::check::facts::{Accounting, Cluster, Partition, Qos};
use crate::site::check::finding::{Code, Finding, listed};
use softmig_policy::{Policy, WallTime};
use std::collections::BTreeMap;

/// The command that prints everything that has to be done here.
const CONFIG: &str = "run softmig-qos.sh, which 'softmig config' makes";

pub(crate) fn check(policy: &Policy, cluster: &Cluster) -> Vec<Finding> {
    // Without limits there is nothing to enforce.
    let Some(wanted) = accounting::for_policy(policy) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(weights) = &wanted.weights {
        billing(weights, cluster, &mut found);
    }
    partitions(policy, cluster, &mut found);
    match &cluster.accounting {
        Ok(accounting) => {
            for wanted in qos::all(policy) {
                found.extend(compare(&wanted, accounting));
            }
            found.extend(other_qos(policy, accounting));
        }
        // A missing slurmdbd is an error already.
        Err(_) if !has_slurmdbd(cluster) => {}
        Err(why) => found.push(Finding::skip("QOS and associations", why)),
    }
    found
}

/// Whether limits are on billing, for which GPUs and shards have weights.
pub(crate) fn is_weighed(policy: &Policy) -> bool {
    accounting::for_policy(policy).is_some_and(|wanted| wanted.weights.is_some())
}

pub(crate) fn has_slurmdbd(cluster: &Cluster) -> bool {
    let storage = cluster.settings.get("AccountingStorageType");
    storage.ends_with("slurmdbd")
}

/// Resources that are counted in one unit need the same weight in all partitions with GPUs.
fn billing(wanted: &BillingWeights, cluster: &Cluster, found: &mut Vec<Finding>) {
    let expected: BTreeMap<String, f64> = wanted
        .iter()
        .map(|(name, weight)| (name.to_string(), weight as f64))
        .collect();
    let wrong = partitions_with_gpus(cluster).filter(|partition| weights(partition) != expected);
    if let Some(place) = called(wrong) {
        found.push(Finding::new(
            Code::BillingWeights,
            place,
            "TRESBillingWeights is not what limits on shards are counted by",
            format!("write TRESBillingWeights=\"{wanted}\" and nothing else in it"),
        ));
    }
}

/// "partition a, b"; `None` without any.
pub(crate) fn called<'a>(partitions: impl Iterator<Item = &'a Partition>) -> Option<String> {
    let names: Vec<&str> = partitions
        .map(|partition| partition.name.as_str())
        .collect();
    (!names.is_empty()).then(|| format!("partition {}", names.join(", ")))
}

/// The weights in a partition, by Slurm's names in lower case.
pub(crate) fn weights(partition: &Partition) -> BTreeMap<String, f64> {
    let words = partition.settings.words("TRESBillingWeights");
    let pairs = words.filter_map(|word| {
        let (name, weight) = word.split_once('=')?;
        // A type keeps its case.
        let name = match name.split_once('/') {
            Some((gres, rest)) => format!("{}/{rest}", gres.to_ascii_lowercase()),
            None => name.to_ascii_lowercase(),
        };
        let digits = weight.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        Some((name, digits.parse::<f64>().ok()?))
    });
    pairs.filter(|(_, weight)| *weight != 0.0).collect()
}

/// The partitions that have a node with GPUs.
pub(crate) fn partitions_with_gpus(cluster: &Cluster) -> impl Iterator<Item = &Partition> {
    let all = cluster.partitions.iter();
    all.filter(|partition| cluster.nodes_of(partition).any(|node| node.has("gpu")))
}

/// Every partition with GPUs has to allow the QOS of classes.
fn partitions(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let all = qos::all(policy);
    for partition in partitions_with_gpus(cluster) {
        let settings = &partition.settings;
        let is_open = matches!(settings.get("AllowQos"), "" | "ALL");
        let is_allowed = |name: &str| {
            (is_open || settings.has("AllowQos", name)) && !settings.has("DenyQos", name)
        };
        let names = all.iter().map(|qos| qos.name.as_str());
        if let Some(shut) = listed(names.filter(|name| !is_allowed(name))) {
            found.push(Finding::new(
                Code::QosPartition,
                format!("partition {}", partition.name),
                format!("it does not take QOS {shut}, so it refuses their jobs with GPUs"),
                "add them to AllowQos, or take them out of DenyQos",
            ));
        }
    }
}

/// A QOS as it is wanted, against slurmdbd's.
fn compare(wanted: &qos::Qos, accounting: &Accounting) -> Vec<Finding> {
    let place = format!("QOS {} ({})", wanted.name, wanted.whose);
    let say = |code, what: String, remedy: &str| Finding::new(code, &place, what, remedy);
    let Some(own) = accounting.qos.iter().find(|qos| qos.name == wanted.name) else {
        return vec![say(
            Code::QosMissing,
            "Slurm has no such QOS, so jobs with GPUs are refused".into(),
            CONFIG,
        )];
    };
    let mut found = Vec::new();
    if let Some(what) = different(&limits(wanted, own)) {
        found.push(say(Code::QosLimits, what, CONFIG));
    }
    let priority = own.fields.get("Priority").parse::<u32>().unwrap_or(0);
    let priorities = (
        "its priority",
        priority.to_string(),
        wanted.priority.to_string(),
    );
    if let Some(what) = different(&[priorities]) {
        found.push(say(Code::QosPriority, what, CONFIG));
    }
    if !own.fields.has("Flags", FLAG) {
        let what = format!("without the flag {FLAG} a job that could never start waits for ever");
        found.push(say(Code::QosFlags, what, CONFIG));
    }
    let all = accounting.associations.iter();
    let without = all.filter(|association| !association.qos.contains(&wanted.name));
    if let Some(names) = listed(without.map(|association| association.called())) {
        let what =
            format!("it is not allowed to {names}; Slurm refuses a job that job_submit gives it");
        found.push(say(Code::QosNotAllowed, what, CONFIG));
    }
    found
}

/// A name, and its value in Slurm and in the policy.
type Pair<'a> = (&'a str, String, String);

/// The limits of a QOS in one form.
fn limits(wanted: &qos::Qos, own: &Qos) -> [Pair<'static>; 4] {
    let field = |key: &str| own.fields.get(key).to_string();
    // Text that is not a list of amounts is shown as it is.
    let tres = |key: &str| match field(key).parse::<Tres>() {
        Ok(tres) => tres.to_string(),
        Err(_) => field(key),
    };
    let wall = WallTime::parse(&field("MaxWall")).map_or(field("MaxWall"), |wall| wall.to_string());
    let shown = |value: Option<String>| value.unwrap_or_default();
    [
        (
            "MaxTRESPerUser",
            tres("MaxTRESPerUser"),
            wanted.per_user.to_string(),
        ),
        ("MaxTRES", tres("MaxTRES"), wanted.per_job.to_string()),
        (
            "MaxJobsPerUser",
            field("MaxJobsPU"),
            shown(wanted.jobs.map(|jobs| jobs.to_string())),
        ),
        (
            "MaxWall",
            wall,
            shown(wanted.wall_time.map(|wall| wall.to_string())),
        ),
    ]
}

/// The pairs that differ, in words.
fn different(pairs: &[Pair<'_>]) -> Option<String> {
    let shown = |value: &str| {
        if value.is_empty() {
            "not set".to_string()
        } else {
            value.to_string()
        }
    };
    let wrong = pairs.iter().filter(|(_, own, wanted)| own != wanted);
    let words: Vec<String> = wrong
        .map(|(name, own, wanted)| {
            format!(
                "{name} is {}, and policy.toml makes it {}",
                shown(own),
                shown(wanted)
            )
        })
        .collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// QOS of the site's own that classes may name.
fn other_qos(policy: &Policy, accounting: &Accounting) -> Vec<Finding> {
    let is_known = |name: &&String| {
        let mut all = accounting.qos.iter();
        all.any(|qos| qos.name.eq_ignore_ascii_case(name))
    };
    let found = policy.standings().iter().filter_map(|standing| {
        let names = listed(
            standing
                .quota
                .other_qos
                .iter()
                .filter(|name| !is_known(name)),
        )?;
        Some(Finding::new(
            Code::OtherQos,
            format!("other_qos of {}", standing.called()),
            format!("QOS {names} does not exist in Slurm"),
            "correct it in policy.toml, or add the QOS with sacctmgr",
        ))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{
        LIMITS, WEIGHTS, association, codes, limited, policy_with,
    };

    fn found(change: impl Fn(&mut Cluster)) -> Vec<&'static str> {
        let mut cluster = limited();
        change(&mut cluster);
        codes(&check(&policy_with(LIMITS), &cluster))
    }

    #[test]
    fn limits_that_slurm_holds_are_clean() {
        assert!(found(|_| {}).is_empty());
    }

    #[test]
    fn weights_have_to_be_exactly_those() {
        for weights in [
            "",
            "GRES/shard=1.0",
            "CPU=1.0,GRES/shard=1.0,GRES/gpu:l40s=4.0,GRES/gpu:h200=8.0",
            "GRES/shard=1.0,GRES/gpu:l40s=4.0,GRES/gpu:h200=4.0",
            "GRES/shard=1.0,GRES/gpu=4.0,GRES/gpu:l40s=4.0,GRES/gpu:h200=8.0",
        ] {
            let found = found(|cluster| {
                cluster.partitions[0]
                    .settings
                    .set("TRESBillingWeights", weights)
            });
            assert_eq!(found, ["BILLING_WEIGHTS"], "{weights}");
        }
        let zero = format!("{WEIGHTS},CPU=0.0");
        assert!(
            found(|cluster| cluster.partitions[0]
                .settings
                .set("TRESBillingWeights", &zero))
            .is_empty()
        );
        // This partition has no GPUs.
        assert!(
            found(|cluster| cluster.partitions[1]
                .settings
                .set("TRESBillingWeights", "CPU=1"))
            .is_empty()
        );
    }

    #[test]
    fn partitions_take_the_qos() {
        let shut = |key: &'static str, value: &'static str| {
            found(move |cluster| cluster.partitions[0].settings.set(key, value))
        };
        assert_eq!(shut("AllowQos", "normal"), ["QOS_PARTITION"]);
        assert_eq!(shut("DenyQos", "softmig"), ["QOS_PARTITION"]);
        assert!(shut("AllowQos", "normal,softmig").is_empty());
    }

    #[test]
    fn a_qos_is_what_the_policy_makes_it() {
        let with = |key: &'static str, value: &'static str| {
            found(move |cluster| {
                if let Ok(accounting) = &mut cluster.accounting {
                    accounting.qos[1].fields.set(key, value);
                }
            })
        };
        for (key, value, code) in [
            ("MaxTRESPerUser", "billing=3", "QOS_LIMITS"),
            ("MaxTRESPerUser", "", "QOS_LIMITS"),
            ("MaxTRESPerUser", "billing=2,cpu=4", "QOS_LIMITS"),
            ("MaxTRES", "gres/shard=1", "QOS_LIMITS"),
            ("MaxJobsPU", "", "QOS_LIMITS"),
            ("MaxWall", "12:00:00", "QOS_LIMITS"),
            ("Priority", "0", "QOS_PRIORITY"),
            ("Flags", "", "QOS_FLAGS"),
        ] {
            assert_eq!(with(key, value), [code], "{key}={value}");
        }
    }

    #[test]
    fn all_users_are_allowed_the_qos() {
        let missing = found(|cluster| {
            if let Ok(accounting) = &mut cluster.accounting {
                accounting
                    .associations
                    .push(association("teaching", "bob", &["normal"]));
            }
        });
        assert_eq!(missing, ["QOS_NOT_ALLOWED"]);
        let none = found(|cluster| {
            if let Ok(accounting) = &mut cluster.accounting {
                accounting.qos.pop();
            }
        });
        assert_eq!(none, ["QOS_MISSING"]);
    }
}
