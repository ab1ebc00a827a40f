//! Parts of sentences: what `--gres` takes, lists and numbers.

use crate::decision::reason::{Less, Meant, Offer, SliceOrShards};
use crate::node::limits::Limits;

/// The two sentences of a refusal.
pub(crate) struct Words {
    /// The rule.
    pub(crate) message: String,
    /// What to type instead.
    pub(crate) hint: String,
}

pub(super) fn words(message: impl Into<String>, hint: impl Into<String>) -> Words {
    Words {
        message: message.into(),
        hint: hint.into(),
    }
}

/// "1 shard", "2 shards".
pub(super) fn number(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// "2, 4 or 8".
pub(super) fn any_of(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match numbers.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// How a type is divided.
pub(super) fn sizes(offer: &Offer) -> String {
    match offer.sizes.as_slice() {
        [] => format!("GPUs of type {} are not shared", offer.gpu_type),
        sizes => format!(
            "GPUs of type {} are divided into {} slices",
            offer.gpu_type,
            any_of(sizes)
        ),
    }
}

/// A slice, as `--gres` takes it.
pub(super) fn slice(limits: &Limits) -> String {
    let share = limits.share();
    let size = share.per_gpu() / share.shards();
    format!("--gres=gpu:{}.{size}:1", limits.gpu_type())
}

pub(super) fn part(part: &SliceOrShards) -> String {
    match part {
        SliceOrShards::Slice(limits) => slice(limits),
        SliceOrShards::Shards(limits) => format!(
            "--gres=shard:{}:{}",
            limits.gpu_type(),
            limits.share().shards()
        ),
    }
}

/// A slice with what it holds.
pub(super) fn with_limits(limits: &Limits) -> String {
    format!(
        "{} ({} MiB, {} % of the GPU's time)",
        slice(limits),
        limits.memory_mib(),
        limits.percent()
    )
}

pub(super) fn gpus(gpu_type: &str, count: u64) -> String {
    format!("--gres=gpu:{gpu_type}:{count}")
}

/// All of the GPU that a part is of.
pub(super) fn whole_gpu(part: &SliceOrShards) -> String {
    gpus(part.limits().gpu_type().as_str(), 1)
}

pub(super) fn whole_gpu_or(gpu_type: &str, largest: Option<&Limits>) -> String {
    let whole = format!("use {} for a whole GPU", gpus(gpu_type, 1));
    match largest {
        Some(largest) => format!("{whole}, or {}", with_limits(largest)),
        None => whole,
    }
}

pub(super) fn another_gpu(gpu_type: &str) -> String {
    format!("use another GPU, for example {}", gpus(gpu_type, 1))
}

pub(super) fn nearest(offer: &Offer) -> String {
    match offer.nearest.as_slice() {
        [] => format!("{} for a whole GPU", gpus(&offer.gpu_type, 1)),
        slices => or(slices.iter().map(with_limits)),
    }
}

pub(super) fn or(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(" or ")
}

pub(super) fn use_one_of(slices: &[Limits]) -> String {
    match slices {
        [] => "use a whole GPU, for example --gres=gpu:1".to_string(),
        slices => format!("use {}", or(slices.iter().map(slice))),
    }
}

pub(super) fn use_one_of_types(types: &[String]) -> String {
    match types {
        [] => "use --gres=gpu:TYPE:1".to_string(),
        types => format!("use {}", or(types.iter().map(|name| gpus(name, 1)))),
    }
}

pub(super) fn did_you_mean(meant: &Meant) -> String {
    match meant {
        Meant::Slice(limits) => format!("did you mean {}?", slice(limits)),
        Meant::OneOf(offer) => format!("did you mean {}?", nearest(offer)),
        Meant::WholeGpu(name) => format!("did you mean {}?", gpus(name, 1)),
        Meant::Examples(slices) => use_one_of(slices),
        Meant::Types(types) => use_one_of_types(types),
    }
}

pub(super) fn less(who: &str, less: &Less) -> String {
    match less {
        Less::WholeGpus { gpu_type, count } => format!("use {}", gpus(gpu_type, *count)),
        Less::Slice(limits) => format!("use {}", with_limits(limits)),
        Less::Unknown => format!("ask your administrator what {who} may use"),
    }
}

pub(super) fn fewer_cpus(most: u64) -> String {
    format!("use {most} or fewer CPUs in total: --ntasks times --cpus-per-task")
}
