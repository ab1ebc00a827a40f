//! Sentences about the limits of a class.

use crate::config::classes::ClassLimits;
use crate::config::gpu_types::{GpuType, part_names};
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::reason::{Less, LimitPassed, MostShards};
use crate::decision::wording::phrases::{Words, fewer_cpus, less, number, use_one_of_types, words};

pub(super) fn of_limit(who: &str, limit: &LimitPassed) -> Words {
    let at_once = |asked: String, most: u64| match most {
        0 => format!("{asked} requested, but {who} may not hold any"),
        most => format!("{asked} requested, but {who} may hold at most {most} at once"),
    };
    match limit {
        LimitPassed::NoJobs => words(
            format!("{who} may not run GPU jobs"),
            less(who, &Less::Unknown),
        ),
        LimitPassed::NoWholeGpus { instead } => {
            words(format!("{who} may not use whole GPUs"), less(who, instead))
        }
        LimitPassed::WholeGpus {
            asked,
            most,
            instead,
        } => words(
            at_once(number(*asked, "whole GPU"), *most),
            less(who, instead),
        ),
        LimitPassed::Mig {
            gpu_type,
            asked,
            most,
            instead,
        } => words(
            at_once(
                format!("{} of type {gpu_type}", number(*asked, "MIG instance")),
                *most,
            ),
            less(who, instead),
        ),
        LimitPassed::Untyped { types } => words(
            format!(
                "a GPU type is required here, because types count differently in the limits of {who}"
            ),
            use_one_of_types(types),
        ),
        LimitPassed::Shards {
            asked,
            is_of_gpus,
            most,
            instead,
        } => {
            let asked = number(*asked, "shard");
            let counted = if *is_of_gpus {
                format!("this counts as {asked}")
            } else {
                format!("{asked} requested")
            };
            let most = match most {
                MostShards::AtOnce(0) => "not hold any".to_string(),
                MostShards::AtOnce(most) => format!("hold at most {most} at once"),
                MostShards::AtOnceOfType(0, name) => format!("not hold any of type {name}"),
                MostShards::AtOnceOfType(most, name) => {
                    format!("hold at most {most} of type {name} at once")
                }
                MostShards::InOneJob(most) => format!("use at most {most} in one job"),
            };
            words(
                format!("{counted}, but {who} may {most}"),
                less(who, instead),
            )
        }
        LimitPassed::Time { asked, most } => words(
            match asked {
                Some(asked) => {
                    format!("--time={asked} requested, but {who} may use at most {most}")
                }
                None => format!("--time=UNLIMITED requested, but {who} may use at most {most}"),
            },
            format!("use --time={most} or less"),
        ),
        LimitPassed::Cpus { asked, most } => {
            words(at_once(number(*asked, "CPU"), *most), fewer_cpus(*most))
        }
        LimitPassed::Memory {
            mib,
            most_mib,
            most_mib_per_node,
        } => words(
            format!(
                "{mib} MiB of host memory requested, but {who} may hold at most {most_mib} MiB at once"
            ),
            format!("use --mem={most_mib_per_node}M or less"),
        ),
        LimitPassed::SliceCpus {
            asked,
            most,
            shards,
        } => words(
            format!(
                "{} requested, but {who} may use at most {most} for {}",
                number(*asked, "CPU"),
                number(*shards, "shard")
            ),
            fewer_cpus(*most),
        ),
        LimitPassed::SliceMemory {
            mib,
            most_mib,
            shards,
        } => {
            let asked = match mib {
                Some(mib) => format!("{mib} MiB of host memory"),
                None => "all memory of a node".to_string(),
            };
            words(
                format!(
                    "{asked} requested, but {who} may use at most {most_mib} MiB for {}",
                    number(*shards, "shard")
                ),
                format!("use --mem={most_mib}M or less"),
            )
        }
    }
}

/// The line that a granted job gets where the policy says so: what its class may hold.
pub(crate) fn limit_notice(policy: &Policy, standing: &ClassLimits) -> Option<String> {
    Some(format!(
        "softmig: {} may hold at once: {}; jobs beyond that stay pending [{}]",
        standing.called(),
        may_hold(policy, standing)?,
        Code::LimitNotice.as_str()
    ))
}

/// The amount that a class may hold at once: "2 quarters or 1 half, 0 whole GPUs"; `None` if it has no such limit.
pub fn may_hold(policy: &Policy, standing: &ClassLimits) -> Option<String> {
    let quota = &standing.quota;
    let mut may = Vec::new();
    if let Some(shards) = quota.shards {
        may.push(in_slices(policy, None, shards));
    }
    may.extend(
        quota
            .shards_of
            .iter()
            .map(|(kind, most)| format!("{} of type {kind}", in_slices(policy, Some(kind), *most))),
    );
    if let Some(wholes) = quota.whole_gpus {
        may.push(number(wholes, "whole GPU"));
    }
    let instances = quota.mig.iter().filter(|(_, most)| **most > 0);
    may.extend(instances.map(|(kind, most)| format!("{most} of type {kind}")));
    if let Some(jobs) = quota.jobs {
        may.push(number(jobs, "GPU job"));
    }
    (!may.is_empty()).then(|| may.join(", "))
}

/// "2 quarters or 1 half": these shards as the smallest and as the largest slices. Where types are divided in
/// different ways, the shards themselves.
fn in_slices(policy: &Policy, kind: Option<&str>, shards: u64) -> String {
    let is_meant = |gpu: &&GpuType| kind.map_or(!gpu.is_mig(), |kind| gpu.name() == kind);
    let mut types = policy.gpus().filter(is_meant);
    let plain = || number(shards, "shard");
    let Some(first) = types.next() else {
        return plain();
    };
    let is_same = |gpu: &GpuType| {
        gpu.shards_per_gpu() == first.shards_per_gpu() && gpu.slices() == first.slices()
    };
    if !types.all(is_same) {
        return plain();
    }
    let count = |size: &u32| shards / u64::from(first.shards_per_gpu() / size);
    let mut sizes = first.slices().iter().rev().filter(|size| count(size) > 0);
    let in_words = |size: &u32| number_of_parts(count(size), *size);
    match (sizes.next(), sizes.next_back()) {
        (Some(only), None) => in_words(only),
        (Some(smallest), Some(largest)) => {
            format!("{} or {}", in_words(smallest), in_words(largest))
        }
        _ => plain(),
    }
}

/// "2 quarters".
fn number_of_parts(count: u64, size: u32) -> String {
    match part_names(size) {
        Some((one, several)) => format!("{count} {}", if count == 1 { one } else { several }),
        None => format!("{count} x 1/{size} GPU"),
    }
}
