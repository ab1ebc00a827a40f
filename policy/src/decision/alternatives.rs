//! Alternatives to a refused request: slices on offer, and names that were most likely meant.

use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::config::suggest::nearest;
use crate::decision::reason::{MemoryOffer, Offer};
use crate::node::limits::Limits;
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

/// The smallest slice of each type, at most three of them.
pub(crate) fn example_slices(policy: &Policy) -> Vec<Limits> {
    policy.gpus().filter_map(smallest_slice).take(3).collect()
}

/// The types of whole GPUs that the policy knows.
pub(crate) fn whole_types(policy: &Policy) -> Vec<String> {
    let types = policy.gpus().filter(|gpu| !gpu.is_mig());
    types.map(|gpu| gpu.name().to_string()).collect()
}

/// The slice that a word such as `l40s.four` most likely means.
pub(crate) fn slice_meant(policy: &Policy, word: &str) -> Option<Limits> {
    smallest_slice(policy.gpu(word.rsplit_once('.')?.0)?)
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
