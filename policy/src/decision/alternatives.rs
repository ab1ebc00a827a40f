//! Alternatives to a refused request: slices on offer, and names that were most likely meant.

use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::config::suggest::nearest;
use crate::decision::reason::{MemoryOffer, Offer};
use crate::node::limits::{Limits, decimal};
use crate::node::size::Bytes;

impl Offer {
    /// The offer of a type, with the slices around a size: the next larger part and the next smaller one.
    pub(crate) fn near(gpu: &GpuType, size: Option<u32>) -> Self {
        Self {
            gpu_type: gpu.name().to_string(),
            sizes: gpu.slices().to_vec(),
            nearest: sizes_around(gpu, size)
                .filter_map(|size| gpu.slice(size))
                .collect(),
        }
    }
}

impl MemoryOffer {
    /// What has so much memory where no slice of this type has.
    pub(crate) fn new(policy: &Policy, gpu: &GpuType, least: Bytes) -> Self {
        let is_enough = |it: &&GpuType| least.is_in(it.usable_mib());
        let others = policy.gpus().filter(|it| it.name() != gpu.name());
        let all = [gpu].into_iter().chain(others);
        let wholes = all
            .filter(is_enough)
            .filter(|it| it.slice_with(least).is_none());
        Self {
            gpu_type: gpu.name().to_string(),
            largest: largest_slice(gpu),
            whole_mib: gpu.usable_mib(),
            slices: policy
                .gpus()
                .filter_map(|it| it.slice_with(least))
                .collect(),
            wholes: wholes.map(|it| it.name().to_string()).collect(),
        }
    }
}

pub(crate) fn sizes_around(gpu: &GpuType, size: Option<u32>) -> impl Iterator<Item = u32> {
    let wanted = size.unwrap_or(u32::MAX);
    let larger = gpu.slices().iter().rev().find(|&&size| size <= wanted);
    let smaller = gpu.slices().iter().find(|&&size| size > wanted);
    [larger, smaller].into_iter().flatten().copied()
}

/// The size that is nearest to a number of shards.
pub(crate) fn nearest_size(gpu: &GpuType, shards: u64) -> Option<u32> {
    u64::from(gpu.shards_per_gpu())
        .checked_div(shards)
        .and_then(|size| u32::try_from(size).ok())
}

pub(crate) fn largest_slice(gpu: &GpuType) -> Option<Limits> {
    gpu.slice(*gpu.slices().first()?)
}

pub(crate) fn smallest_slice(gpu: &GpuType) -> Option<Limits> {
    gpu.slice(*gpu.slices().last()?)
}

/// A slice of each type, at most three of them: that next to this size, or else the smallest.
pub(crate) fn example_slices(policy: &Policy, size: Option<u32>) -> Vec<Limits> {
    let slices = policy.gpus().filter_map(|gpu| slice_near(gpu, size));
    slices.take(3).collect()
}

/// The slice of this size, or the next larger part, or else the largest that there is; the smallest where no size is meant.
pub(crate) fn slice_near(gpu: &GpuType, size: Option<u32>) -> Option<Limits> {
    match size {
        Some(_) => gpu.slice(sizes_around(gpu, size).next()?),
        None => smallest_slice(gpu),
    }
}

/// The size of a part of a GPU as people write it elsewhere: `0.25`, `25%`, `1/4`, `quarter` and `4` are all 4.
pub(crate) fn size_meant(text: &str) -> Option<u32> {
    const WORDS: [(&str, u32); 10] = [
        ("half", 2),
        ("two", 2),
        ("third", 3),
        ("three", 3),
        ("quarter", 4),
        ("four", 4),
        ("fourth", 4),
        ("fifth", 5),
        ("eighth", 8),
        ("eight", 8),
    ];
    let text = text.to_ascii_lowercase();
    if let Some((_, size)) = WORDS.iter().find(|(word, _)| *word == text) {
        return Some(*size);
    }
    if let Some(size) = decimal(&text) {
        return Some(size);
    }
    let number = |text: &str| text.parse::<f64>().ok();
    let part = match (text.strip_suffix('%'), text.split_once('/')) {
        (Some(percent), _) => number(percent)? / 100.0,
        (_, Some((some, all))) => number(some)? / number(all)?,
        (None, None) => number(&text)?,
    };
    // More than all of it is no part, and less than that no slice.
    let is_part = (0.001..=1.0).contains(&part);
    is_part.then(|| (1.0 / part).round() as u32)
}

/// The types of whole GPUs that the policy knows.
pub(crate) fn whole_types(policy: &Policy) -> Vec<String> {
    let types = policy.gpus().filter(|gpu| !gpu.is_mig());
    types.map(|gpu| gpu.name().to_string()).collect()
}

/// The slice that a word such as `l40s.four` most likely means.
pub(crate) fn slice_meant(policy: &Policy, word: &str) -> Option<Limits> {
    let (name, size) = word.rsplit_once('.')?;
    slice_near(policy.gpu(name)?, size_meant(size))
}

/// The type of a whole GPU or MIG instance that another word most likely means; part of its name is enough.
pub(crate) fn type_meant<'p>(policy: &'p Policy, word: &str) -> Option<&'p str> {
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
