//! What there is, in the words of a refusal's hint.

use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::config::suggest::nearest;

/// "GPUs of type l40s are cut in 2 or 4".
pub(crate) fn offer(gpu: &GpuType) -> String {
    let sizes: Vec<String> = gpu.slices().iter().map(u32::to_string).collect();
    match sizes.split_last() {
        None => format!("GPUs of type {} are not shared", gpu.name()),
        Some((last, [])) => format!("GPUs of type {} are cut in {last}", gpu.name()),
        Some((last, others)) => {
            format!(
                "GPUs of type {} are cut in {} or {last}",
                gpu.name(),
                others.join(", ")
            )
        }
    }
}

/// A slice with what it holds.
pub(crate) fn with_limits(gpu: &GpuType, size: u32) -> Option<String> {
    let limits = gpu.slice(size)?;
    Some(format!(
        "--gres=gpu:{}.{size}:1 ({} MiB, {} % of the GPU's time)",
        gpu.name(),
        limits.memory_mib(),
        limits.percent()
    ))
}

/// The slices around a size: the next larger part and the next smaller one.
pub(crate) fn nearest_slices(gpu: &GpuType, size: Option<u32>) -> String {
    let slices: Vec<String> = around(gpu, size)
        .filter_map(|size| with_limits(gpu, size))
        .collect();
    match slices.as_slice() {
        [] => format!("--gres=gpu:{}:1 for a whole GPU", gpu.name()),
        slices => slices.join(" or "),
    }
}

pub(crate) fn around(gpu: &GpuType, size: Option<u32>) -> impl Iterator<Item = u32> {
    let wanted = size.unwrap_or(u32::MAX);
    let larger = gpu.slices().iter().rev().find(|&&size| size <= wanted);
    let smaller = gpu.slices().iter().find(|&&size| size > wanted);
    [larger, smaller].into_iter().flatten().copied()
}

/// The size that so many shards come nearest to.
pub(crate) fn nearest_size(gpu: &GpuType, shards: u64) -> Option<u32> {
    u64::from(gpu.shards_per_gpu())
        .checked_div(shards)
        .and_then(|size| u32::try_from(size).ok())
}

pub(crate) fn or_a_slice(gpu: &GpuType) -> String {
    match gpu.slices().first() {
        Some(&size) => {
            with_limits(gpu, size).map_or(String::new(), |slice| format!(", or {slice}"))
        }
        None => String::new(),
    }
}

/// The smallest slice of a type, where it is cut.
pub(crate) fn smallest_slice(gpu: &GpuType) -> Option<String> {
    let size = gpu.slices().last()?;
    Some(format!("--gres=gpu:{}.{size}:1", gpu.name()))
}

/// The smallest slice of each type, at most three of them.
pub(crate) fn example_slices(policy: &Policy) -> String {
    let examples: Vec<String> = policy.gpus().filter_map(smallest_slice).take(3).collect();
    match examples.as_slice() {
        [] => "a whole GPU, for example --gres=gpu:1".to_string(),
        examples => examples.join(" or "),
    }
}

/// What to type for a whole GPU whose type has to be named.
pub(crate) fn name_a_type(policy: &Policy) -> String {
    let types: Vec<String> = policy
        .gpus()
        .filter(|gpu| !gpu.is_mig())
        .map(|gpu| format!("--gres=gpu:{}:1", gpu.name()))
        .collect();
    format!("name the type: {}", types.join(" or "))
}

/// The slice that a word such as `l40s.four` most likely means.
pub(crate) fn slice_meant(policy: &Policy, word: &str) -> Option<String> {
    smallest_slice(policy.gpu(word.rsplit_once('.')?.0)?)
}

/// The type of a whole GPU or MIG instance that another word most likely means; part of its name is enough.
pub(crate) fn meant_type<'p>(policy: &'p Policy, word: &str) -> Option<&'p str> {
    let all = || {
        policy
            .gpus()
            .map(GpuType::name)
            .chain(policy.plain_types().iter().map(String::as_str))
    };
    let lower = word.to_ascii_lowercase();
    let is_part = |name: &&str| lower.len() > 2 && name.to_ascii_lowercase().contains(&lower);
    let mut parts = all().filter(is_part);
    match (parts.next(), parts.next()) {
        (Some(only), None) => Some(only),
        _ => nearest(word, all()),
    }
}

/// "1 shard", "2 shards".
pub(crate) fn number(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
