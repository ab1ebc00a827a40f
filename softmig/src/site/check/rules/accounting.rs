//! Checks that Slurm holds each class to its limits: accounting, QOS, billing weights.

use crate::output::say::and_others;
use crate::settings::accounting::{self, Accounting as Wanted};
use crate::settings::partitions::BillingWeights;
use crate::settings::qos::{self, FLAG};
use crate::settings::tres::Tres;
use crate::site::check::facts::{Accounting, Cluster, Partition, Qos};
use crate::site::check::finding::{Code, Finding};
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
    settings(&wanted, cluster, &mut found);
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

pub(crate) fn has_slurmdbd(cluster: &Cluster) -> bool {
    cluster
        .settings
        .get("AccountingStorageType")
        .ends_with("slurmdbd")
}

fn settings(wanted: &Wanted, cluster: &Cluster, found: &mut Vec<Finding>) {
    let settings = &cluster.settings;
    if !has_slurmdbd(cluster) {
        found.push(Finding::new(
            Code::Accounting,
            "AccountingStorageType",
            "policy.toml has limits for users, and Slurm enforces none without slurmdbd",
            "set up slurmdbd and write AccountingStorageType=accounting_storage/slurmdbd",
        ));
        return;
    }
    let missing: Vec<&str> = wanted
        .tres
        .iter()
        .filter(|tres| !settings.has("AccountingStorageTRES", tres))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        found.push(Finding::new(
            Code::AccountingTres,
            "AccountingStorageTRES",
            format!(
                "Slurm does not count {}, which limits are on",
                missing.join(",")
            ),
            format!("add {}, and restart slurmctld", missing.join(",")),
        ));
    }
    const ENFORCE: &str = "AccountingStorageEnforce";
    let has = |words: &[&str]| words.iter().any(|word| settings.has(ENFORCE, word));
    let limits = has(&["limits", "safe", "all"]);
    let by_qos = has(&["qos", "all"]);
    let missing: Vec<&str> = [(limits, "limits"), (by_qos, "qos")]
        .iter()
        .filter(|(there, _)| !there)
        .map(|(_, word)| *word)
        .collect();
    if !missing.is_empty() {
        found.push(Finding::new(
            Code::AccountingEnforce,
            ENFORCE,
            format!(
                "without {} Slurm enforces none of the limits in policy.toml",
                missing.join(" and ")
            ),
            format!("write {ENFORCE}={}", accounting::ENFORCE.join(",")),
        ));
    }
    let weight = settings.get("PriorityWeightQOS");
    let heeds =
        settings.get("PriorityType") == "priority/multifactor" && !matches!(weight, "" | "0");
    if wanted.priority && !heeds {
        found.push(Finding::new(
            Code::PriorityUnused,
            "PriorityWeightQOS",
            "policy.toml has priorities, and Slurm does not heed those of QOS",
            "write PriorityType=priority/multifactor and a PriorityWeightQOS such as 1000",
        ));
    }
}

/// Resources that are counted in one unit need the same weight in all partitions with GPUs.
fn billing(wanted: &BillingWeights, cluster: &Cluster, found: &mut Vec<Finding>) {
    let flags: Vec<&str> = cluster.settings.words("PriorityFlags").collect();
    // The similar MAX_TRES_GRES takes the largest of CPUs and memory and adds all GRES.
    let by_most = |word: &&&str| word.eq_ignore_ascii_case("MAX_TRES");
    if let Some(flag) = flags.iter().find(by_most) {
        found.push(Finding::new(
            Code::BillingMaxTres,
            "PriorityFlags",
            format!("with {flag} a job's billing is not the sum of what it has, and limits on shards do not hold"),
            format!("take {flag} out"),
        ));
    }
    let expected: BTreeMap<String, f64> = wanted
        .iter()
        .map(|(name, weight)| (name.to_string(), weight as f64))
        .collect();
    let wrong: Vec<&str> = partitions_with_gpus(cluster)
        .filter(|partition| weights(partition) != expected)
        .map(|partition| partition.name.as_str())
        .collect();
    if !wrong.is_empty() {
        found.push(Finding::new(
            Code::BillingWeights,
            format!("partition {}", wrong.join(", ")),
            "TRESBillingWeights is not what limits on shards are counted by",
            format!("write TRESBillingWeights=\"{wanted}\" and nothing else in it"),
        ));
    }
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
    cluster.partitions.iter().filter(|partition| {
        let mut nodes = cluster.nodes.iter().filter(|node| node.has("gpu"));
        nodes.any(|node| partition.nodes.contains(&node.name))
    })
}

/// Every partition with GPUs has to allow the QOS of classes.
fn partitions(policy: &Policy, cluster: &Cluster, found: &mut Vec<Finding>) {
    let all = qos::all(policy);
    for partition in partitions_with_gpus(cluster) {
        let allowed = |name: &str| {
            let (allow, deny) = ("AllowQos", "DenyQos");
            let open = matches!(partition.settings.get(allow), "" | "ALL")
                || partition.settings.has(allow, name);
            open && !partition.settings.has(deny, name)
        };
        let shut: Vec<&str> = all
            .iter()
            .map(|qos| qos.name.as_str())
            .filter(|name| !allowed(name))
            .collect();
        if !shut.is_empty() {
            found.push(Finding::new(
                Code::QosPartition,
                format!("partition {}", partition.name),
                format!(
                    "it does not take QOS {}, so it refuses their jobs with GPUs",
                    shut.join(", ")
                ),
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
    let differences = differences(wanted, own);
    if !differences.is_empty() {
        found.push(say(Code::QosLimits, differences.join("; "), CONFIG));
    }
    let priority = own.fields.get("Priority").parse::<u32>().unwrap_or(0);
    if priority != wanted.priority {
        let what = format!(
            "its priority is {priority}, and policy.toml makes it {}",
            wanted.priority
        );
        found.push(say(Code::QosPriority, what, CONFIG));
    }
    if !own.fields.has("Flags", FLAG) {
        let what = format!("without the flag {FLAG} a job that could never start waits for ever");
        found.push(say(Code::QosFlags, what, CONFIG));
    }
    let without: Vec<String> = accounting
        .associations
        .iter()
        .filter(|association| !association.qos.contains(&wanted.name))
        .map(|association| association.called())
        .collect();
    if let Some((first, others)) = without.split_first() {
        found.push(say(
            Code::QosNotAllowed,
            format!(
                "it is not allowed to {}; Slurm refuses a job that job_submit gives it",
                and_others(first, others.len())
            ),
            CONFIG,
        ));
    }
    found
}

/// Each limit that is another one, in words.
fn differences(wanted: &qos::Qos, own: &Qos) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |name: &str, own: String, wanted: String| {
        let shown = |value: &str| match value {
            "" => "not set".to_string(),
            value => value.to_string(),
        };
        if own != wanted {
            differences.push(format!(
                "{name} is {}, and policy.toml makes it {}",
                shown(&own),
                shown(&wanted)
            ));
        }
    };
    for (name, tres) in [
        ("MaxTRESPerUser", &wanted.per_user),
        ("MaxTRES", &wanted.per_job),
    ] {
        let own = own.fields.get(name);
        // Text that is not a list of amounts is shown as it is.
        let own = own
            .parse::<Tres>()
            .map_or(own.to_string(), |own| own.to_string());
        compare(name, own, tres.to_string());
    }
    let jobs = wanted.jobs.map(|jobs| jobs.to_string());
    compare(
        "MaxJobsPerUser",
        own.fields.get("MaxJobsPU").to_string(),
        jobs.unwrap_or_default(),
    );
    let wall = own.fields.get("MaxWall");
    let wall = WallTime::parse(wall).map_or(wall.to_string(), |wall| wall.to_string());
    let wanted_wall = wanted.wall_time.map(|wall| wall.to_string());
    compare("MaxWall", wall, wanted_wall.unwrap_or_default());
    differences
}

/// QOS of the site's own that classes may name.
fn other_qos(policy: &Policy, accounting: &Accounting) -> Vec<Finding> {
    let standings = policy.standings().iter();
    let missing = standings.flat_map(|standing| {
        let names = standing.quota.other_qos.iter();
        let missing = names.filter(|name| {
            !accounting
                .qos
                .iter()
                .any(|qos| qos.name.eq_ignore_ascii_case(name))
        });
        missing.map(|name| {
            Finding::new(
                Code::OtherQos,
                format!("other_qos of {}", standing.called()),
                format!("QOS {name} does not exist in Slurm"),
                format!("correct it in policy.toml, or 'sacctmgr add qos {name}'"),
            )
        })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::check::rules::example::{
        LIMITS, WEIGHTS, association, codes, limited, policy, policy_with,
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
    fn without_limits_no_slurmdbd_is_needed() {
        let mut cluster = limited();
        cluster.settings.set("AccountingStorageType", "");
        cluster.accounting = Err("there is none".into());
        assert!(check(&policy(), &cluster).is_empty());
        assert_eq!(
            codes(&check(&policy_with(LIMITS), &cluster)),
            ["ACCOUNTING"]
        );
    }

    #[test]
    fn each_setting_that_limits_need_is_missed() {
        for (key, value, code) in [
            (
                "AccountingStorageTRES",
                "cpu,mem,gres/gpu,gres/shard",
                "ACCOUNTING_TRES",
            ),
            ("AccountingStorageEnforce", "none", "ACCOUNTING_ENFORCE"),
            (
                "AccountingStorageEnforce",
                "associations,limits",
                "ACCOUNTING_ENFORCE",
            ),
            ("AccountingStorageEnforce", "qos", "ACCOUNTING_ENFORCE"),
            ("PriorityType", "priority/basic", "PRIORITY_UNUSED"),
            ("PriorityWeightQOS", "0", "PRIORITY_UNUSED"),
            ("PriorityFlags", "MAX_TRES", "BILLING_MAX_TRES"),
        ] {
            let found = found(|cluster| cluster.settings.set(key, value));
            assert_eq!(found, [code], "{key}={value}");
        }
        for (key, value) in [
            ("AccountingStorageEnforce", "safe,qos"),
            ("PriorityFlags", "MAX_TRES_GRES"),
        ] {
            let found = found(|cluster| cluster.settings.set(key, value));
            assert!(found.is_empty(), "{key}={value}");
        }
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
    fn a_difference_is_shown_with_both_figures() {
        let mut cluster = limited();
        if let Ok(accounting) = &mut cluster.accounting {
            accounting.qos[1].fields.set("MaxTRESPerUser", "billing=3");
            accounting.qos[1].fields.set("MaxWall", "");
        }
        let found = check(&policy_with(LIMITS), &cluster);
        assert_eq!(
            found[0].what,
            "MaxTRESPerUser is billing=3, and policy.toml makes it billing=2; MaxWall is not set, and policy.toml makes it 1-00:00:00"
        );
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

    #[test]
    fn a_qos_of_the_sites_own_has_to_be_there() {
        let others = policy_with(&format!("{LIMITS}other_qos = [\"normal\", \"long\"]\n"));
        assert_eq!(codes(&check(&others, &limited())), ["OTHER_QOS"]);
    }

    #[test]
    fn a_slurmdbd_that_is_silent_is_said() {
        let silent = found(|cluster| cluster.accounting = Err("slurmdbd did not say".into()));
        assert_eq!(silent, ["NOT_LOOKED_AT"]);
    }
}
