//! Parts of sentences: what `--gres` takes, lists and numbers.

use crate::decision::reason::{Less, May, Meant, MemoryOffer, Offer, SliceOrShards};
use crate::node::limits::Limits;

/// The two sentences of a refusal.
pub(crate) struct Words {
    /// The rule.
    pub(crate) message: String,
    /// The request to type instead.
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

/// The memory of a type's largest parts.
pub(super) fn most_memory(offer: &MemoryOffer) -> String {
    let MemoryOffer {
        gpu_type,
        whole_mib,
        ..
    } = offer;
    match &offer.largest {
        Some(largest) => format!(
            "GPUs of type {gpu_type} have {whole_mib} MiB, and their largest slices {} MiB",
            largest.memory_mib()
        ),
        None => format!("GPUs of type {gpu_type} are not shared, and have {whole_mib} MiB"),
    }
}

/// "use ...": what has as much memory, or else the most that the submitter may have.
pub(super) fn use_with_memory(offer: &MemoryOffer, may: &May) -> String {
    let wholes = offer
        .wholes
        .iter()
        .map(|name| gpus(name, 1))
        .collect::<Vec<_>>();
    let wholes = (!wholes.is_empty()).then(|| format!("{} for a whole GPU", wholes.join(" or ")));
    let slices = offer.slices.iter().map(with_limits);
    let enough: Vec<String> = wholes.into_iter().chain(slices).collect();
    match (enough.as_slice(), may.instead.or(offer.largest)) {
        ([], Some(largest)) => format!(
            "you may have nothing with so much memory; use {}",
            with_limits(&largest)
        ),
        ([], None) => instead(may),
        (enough, _) => format!("use {}", enough.join(", or ")),
    }
}

/// A slice, as `--gres` takes it.
pub(super) fn slice(limits: &Limits) -> String {
    format!("--gres={}", limits.slice_request())
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

/// "for a whole GPU", "for whole GPUs".
pub(super) fn for_whole(count: u64) -> &'static str {
    match count {
        1 => "for a whole GPU",
        _ => "for whole GPUs",
    }
}

pub(super) fn whole_gpu_or(
    gpu_type: &str,
    count: u64,
    largest: Option<&Limits>,
    may: &May,
) -> String {
    let whole = format!("{} {}", gpus(gpu_type, count), for_whole(count));
    match (may.whole, largest) {
        (true, Some(largest)) => format!("use {whole}, or {}", with_limits(largest)),
        (true, None) => format!("use {whole}"),
        (false, Some(largest)) => format!("use {}", with_limits(largest)),
        (false, None) => instead(may),
    }
}

/// The hint for a submitter who may not have the usual offer.
pub(super) fn instead(may: &May) -> String {
    match &may.instead {
        Some(slice) => format!("use {}", with_limits(slice)),
        None => less(&may.who, &Less::Unknown),
    }
}

pub(super) fn another_gpu(gpu_type: &str, may: &May) -> String {
    match (may.whole, &may.instead) {
        (true, _) => format!("use another GPU, for example {}", gpus(gpu_type, 1)),
        (false, Some(slice)) => format!("use part of another GPU, {}", with_limits(slice)),
        (false, None) => less(&may.who, &Less::Unknown),
    }
}

/// "use ...".
pub(super) fn use_nearest(offer: &Offer, may: &May) -> String {
    match (offer.nearest.as_slice(), may.whole) {
        ([], true) => format!("use {} for a whole GPU", gpus(&offer.gpu_type, 1)),
        ([], false) => instead(may),
        (slices, _) => format!("use {}", or(slices.iter().map(with_limits))),
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

/// `count` GPUs of one of the types.
pub(super) fn use_count_of_types(count: u64, types: &[&String]) -> String {
    format!("use {}", or(types.iter().map(|name| gpus(name, count))))
}

pub(super) fn use_one_of_types(types: &[String]) -> String {
    match types {
        [] => "use --gres=gpu:TYPE:1".to_string(),
        types => format!("use {}", or(types.iter().map(|name| gpus(name, 1)))),
    }
}

pub(super) fn did_you_mean(meant: &Meant, may: &May) -> String {
    match meant {
        Meant::Slice(limits) => format!("did you mean {}?", slice(limits)),
        Meant::OneOf(offer) => match (offer.nearest.as_slice(), may.whole) {
            ([], true) => format!("did you mean {} for a whole GPU?", gpus(&offer.gpu_type, 1)),
            ([], false) => instead(may),
            (slices, _) => format!("did you mean {}?", or(slices.iter().map(with_limits))),
        },
        Meant::WholeGpu(name) => format!("did you mean {}?", gpus(name, 1)),
        Meant::Examples(slices) => use_one_of(slices),
        Meant::Types(types) => use_one_of_types(types),
    }
}

pub(super) fn less(who: &str, less: &Less) -> String {
    match less {
        Less::WholeGpus { gpu_type, count } => format!("use {}", gpus(gpu_type, *count)),
        Less::AnyGpus { count } => format!("use --gres=gpu:{count}"),
        Less::Slice(limits) => format!("use {}", with_limits(limits)),
        Less::OnOneNode(limits) => format!("use {} --nodes=1", slice(limits)),
        Less::Unknown => format!("ask your administrator what {who} may use"),
    }
}

pub(super) fn fewer_cpus(most: u64) -> String {
    format!("use {most} or fewer CPUs in total: --ntasks times --cpus-per-task")
}
