//! Sentences about the limits of a class.

use crate::config::classes::Standing;
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
            let counted = match is_of_gpus {
                true => format!("this counts as {asked}"),
                false => format!("{asked} requested"),
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
pub(crate) fn limit_notice(standing: &Standing) -> Option<String> {
    let quota = &standing.quota;
    let mut may = Vec::new();
    if let Some(shards) = quota.shards {
        may.push(number(shards, "shard"));
    }
    may.extend(
        quota
            .shards_of
            .iter()
            .map(|(kind, most)| format!("{} of type {kind}", number(*most, "shard"))),
    );
    if let Some(wholes) = quota.whole_gpus {
        may.push(number(wholes, "whole GPU"));
    }
    if let Some(jobs) = quota.jobs {
        may.push(number(jobs, "GPU job"));
    }
    if may.is_empty() {
        return None;
    }
    Some(format!(
        "softmig: {} may hold at once: {}; jobs beyond that stay pending [{}]",
        standing.called(),
        may.join(", "),
        Code::LimitNotice.as_str()
    ))
}
