//! The decision: which requests are slices, and which of them are granted.

use crate::config::choices::RawShards;
use crate::config::gpu_types::GpuType;
use crate::config::legacy_mps::Mps;
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::alternatives::{
    example_slices, largest_slice, nearest_size, size_meant, sizes_around, slice_near, whole_types,
};
use crate::decision::gpu_request::{Part, Size, Wanted, name_of, typed};
use crate::decision::reason::{Meant, MemoryOffer, Offer, Reason, SameAmount, SliceOrShards};
use crate::decision::refusal::Refusal;
use crate::decision::rewrite;
use crate::decision::verdict::{Context, Grant, Terms, Verdict};
use crate::decision::{access, attainable};
use crate::node::limits::{Limits, decimal};
use crate::node::tag::Tag;
use crate::slurm::gres::Name;
use crate::slurm::job_request::{CountedPer, Request};

/// Decides on a request.
///
/// ```
/// use softmig_policy::{Code, Context, Policy, Request, Verdict, decide};
/// let policy = Policy::parse("[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n").unwrap();
/// let request = Request { tres_per_node: Some("gpu:l40s.3:1".into()), ..Request::default() };
/// let Verdict::Refused(refusal) = decide(&policy, &request, &Context::default()) else { panic!() };
/// assert_eq!(refusal.code(), Code::SliceSize);
/// ```
pub fn decide(policy: &Policy, request: &Request, context: &Context) -> Verdict {
    let wanted = Wanted::read(request, Some(policy));
    match answer(policy, request, context, &wanted) {
        Ok(verdict) => verdict,
        Err(refusal) => {
            let fitted = refusal.fit(|reason| attainable::keep(policy, &context.submitter, reason));
            Verdict::Refused(fitted.at(policy))
        }
    }
}

fn answer(
    policy: &Policy,
    request: &Request,
    context: &Context,
    wanted: &Wanted<'_>,
) -> Result<Verdict, Refusal> {
    if let Some(raw) = wanted.in_other_case {
        return Err(in_other_case(raw));
    }
    if !wanted.is_ours() {
        let terms = access::of_wholes(policy, request, context, wanted);
        return Ok(Verdict::Unchanged {
            tag: tag_of_wholes(Some(policy), request, wanted),
            terms: terms.map_err(|refusal| match (wanted.misspelt, refusal.code()) {
                // The refusal would be about another request than the one that was typed.
                (Some(raw), Code::Reserved | Code::LimitJob | Code::SliceType) => {
                    misspelt(policy, raw)
                }
                _ => refusal,
            })?,
        });
    }
    let mut grant = grant(policy, request, context, wanted)?;
    grant.terms = access::of_slice(policy, context, wanted, &mut grant)?;
    Ok(Verdict::Granted(Box::new(grant)))
}

/// Decides without a policy: refuses every request that might be a slice, and lets all others pass.
pub fn decide_without_policy(request: &Request) -> Verdict {
    let wanted = Wanted::read(request, None);
    if wanted.is_ours() {
        return Verdict::Refused(Refusal::new("", Reason::NoPolicy));
    }
    Verdict::Unchanged {
        tag: tag_of_wholes(None, request, &wanted),
        terms: Terms::default(),
    }
}

/// The tag of a request for whole GPUs.
fn tag_of_wholes(policy: Option<&Policy>, request: &Request, wanted: &Wanted<'_>) -> Option<Tag> {
    // A job that has its nodes to itself gets all their GPUs.
    let is_any = request.implies_gpus() || wanted.has_untyped_wholes();
    if wanted.names_several_types() || is_any && policy.is_none_or(Policy::may_mix_types) {
        return Some(Tag::Mixed);
    }
    (wanted.has_wholes() || request.implies_gpus()).then_some(Tag::Whole)
}

fn grant(
    policy: &Policy,
    request: &Request,
    context: &Context,
    wanted: &Wanted<'_>,
) -> Result<Grant, Refusal> {
    if let Some(raw) = wanted.malformed {
        return Err(malformed(policy, raw));
    }
    let mut found = Vec::new();
    for part in &wanted.parts {
        let limits = limits_of(policy, part)?;
        let gpu = limits.gpu;
        if !policy.shares(gpu.name()) {
            let reason = Reason::NotShared {
                gpu_type: gpu.name().to_string(),
                mig: gpu.is_mig(),
            };
            return Err(refuse(part, reason));
        }
        found.push(limits);
    }
    let [part] = wanted.parts.as_slice() else {
        return Err(several(&wanted.parts, &found));
    };
    let Found {
        gpu,
        limits,
        slices,
    } = &found[0];
    if *slices != 1 {
        return Err(wrong_count(request, part, gpu, limits, *slices));
    }
    if wanted.has_wholes() {
        let slice = SliceOrShards::from_limits(gpu, limits);
        return Err(refuse(part, Reason::SliceAndGpus { slice }));
    }
    Ok(Grant {
        asked: part.gres.to_string(),
        memory: match part.slice {
            Some((_, Size::Memory(least))) => Some(least),
            _ => None,
        },
        request: rewrite::to_shards(request, context, gpu, part, limits)?,
        limits: *limits,
        terms: Terms::default(),
    })
}

/// A part whose type and size are known.
struct Found<'a> {
    gpu: &'a GpuType,
    limits: Limits,
    /// The number of slices; a request for shards is one slice.
    slices: u64,
}

fn limits_of<'p>(policy: &'p Policy, part: &Part<'_>) -> Result<Found<'p>, Refusal> {
    let Some((name, size)) = part.slice else {
        return match policy.mps() {
            Some(mps) if part.gres.name == Name::Mps => mps_limits(policy, mps, part),
            _ => shard_limits(policy, part),
        };
    };
    let gpu = policy
        .gpu(name)
        .ok_or_else(|| unknown_type(policy, part, name))?;
    let limits = match size {
        Size::Part(size) => decimal(size).and_then(|size| gpu.slice(size)),
        Size::Memory(least) => gpu.slice_with(least),
    };
    let reason = match (limits, size) {
        (Some(limits), _) => {
            return Ok(Found {
                gpu,
                limits,
                slices: part.gres.count(),
            });
        }
        (None, Size::Memory(least)) => Reason::SliceMemory(MemoryOffer::new(policy, gpu, least)),
        (None, Size::Part(size)) if decimal(size) == Some(1) => Reason::WholeGpuAsSlice {
            gpu_type: name.to_string(),
            count: part.gres.count().max(1),
            largest: largest_slice(gpu),
        },
        (None, Size::Part(size)) => Reason::SliceSize(Offer::near(gpu, decimal(size))),
    };
    Err(refuse(part, reason))
}

fn refuse(part: &Part<'_>, reason: Reason) -> Refusal {
    Refusal::new(part.gres.to_string(), reason)
}

/// Shards of a type are a slice if their count is on offer; other requests for shards depend on the policy.
fn shard_limits<'p>(policy: &'p Policy, part: &Part<'_>) -> Result<Found<'p>, Refusal> {
    let shards = part.gres.count();
    let gpu = match part.gres.kind {
        Some(name) => policy
            .gpu(name)
            .ok_or_else(|| unknown_type(policy, part, name))?,
        // The memory of a shard depends on the type, so there must be only one.
        None => match (
            policy.raw_shards,
            policy.gpus().collect::<Vec<_>>().as_slice(),
        ) {
            (RawShards::Allow, [gpu]) => gpu,
            _ => {
                let examples = example_slices(policy, None);
                return Err(refuse(part, Reason::UntypedShards { examples }));
            }
        },
    };
    let limits = u32::try_from(shards)
        .ok()
        .and_then(|shards| gpu.limits(shards).ok());
    // The request for all units of mps of one GPU.
    let is_whole = policy.mps().is_some_and(|mps| mps.gpu_type() == gpu.name())
        && shards == u64::from(gpu.shards_per_gpu());
    let offered = is_whole || gpu.slice_of_shards(shards).is_some();
    let reason = match limits {
        Some(limits) if offered || policy.raw_shards == RawShards::Allow => {
            return Ok(Found {
                gpu,
                limits,
                slices: 1,
            });
        }
        Some(_) => Reason::ShardCount {
            shards,
            per_gpu: gpu.shards_per_gpu(),
            offer: Offer::near(gpu, nearest_size(gpu, shards)),
        },
        None if shards == 0 => Reason::NoShards(Offer::near(gpu, None)),
        None => Reason::ShardsBeyondGpu {
            gpu_type: gpu.name().to_string(),
            per_gpu: gpu.shards_per_gpu(),
            largest: largest_slice(gpu),
        },
    };
    Err(refuse(part, reason))
}

/// Units of mps are the slice with the same part of a GPU.
fn mps_limits<'p>(policy: &'p Policy, mps: &Mps, part: &Part<'_>) -> Result<Found<'p>, Refusal> {
    let (units, kind) = (part.gres.count(), mps.gpu_type());
    let gpu = policy
        .gpu(kind)
        .ok_or_else(|| unknown_type(policy, part, kind))?;
    let size = mps.size(units);
    if part.gres.kind.is_some_and(|named| named != kind) {
        let same = size.and_then(|size| gpu.slice(size));
        let gpu_type = kind.to_string();
        return Err(refuse(part, Reason::MpsType { gpu_type, same }));
    }
    let slice = match size {
        // All units are the whole GPU, as they were before.
        Some(1) => gpu.limits(gpu.shards_per_gpu()).ok(),
        size => size.and_then(|size| gpu.slice(size)),
    };
    if let Some(limits) = slice {
        return Ok(Found {
            gpu,
            limits,
            slices: 1,
        });
    }
    let per_gpu = mps.units_per_gpu();
    if units > u64::from(per_gpu) {
        return Err(refuse(
            part,
            Reason::WholeGpuAsMps {
                gpu_type: kind.to_string(),
                units: per_gpu,
                largest: largest_slice(gpu),
            },
        ));
    }
    let asked = u64::from(per_gpu)
        .checked_div(units)
        .and_then(|size| u32::try_from(size).ok());
    let nearest = sizes_around(gpu, asked).filter_map(|size| Some((mps.units(size)?, size)));
    let offered = [1]
        .iter()
        .chain(gpu.slices())
        .filter_map(|&size| mps.units(size));
    Err(refuse(
        part,
        Reason::MpsUnits {
            gpu_type: kind.to_string(),
            units_per_gpu: per_gpu,
            offered: offered.collect(),
            nearest: nearest.collect(),
        },
    ))
}

fn malformed(policy: &Policy, raw: &str) -> Refusal {
    let examples = match like(policy, raw) {
        Some(slice) => vec![slice],
        None => {
            let size = typed(raw).trim_start_matches(|it: char| it.is_ascii_alphabetic());
            let size = size.trim_start_matches([':', '=', '.']).split([':', '=']);
            example_slices(policy, size.take(1).find_map(size_meant))
        }
    };
    Refusal::new(typed(raw), Reason::UnreadableSlice { examples })
}

/// A slice of the type that an item names somewhere, of the size that the words behind it mean, or else the smallest.
fn like(policy: &Policy, raw: &str) -> Option<Limits> {
    let words = raw.split([':', '=', '/', ';']);
    let mut names = words.flat_map(|word| {
        let dots = word.match_indices('.').map(|(at, _)| &word[..at]);
        dots.chain([word])
    });
    let gpu = names.find_map(|name| policy.gpu(name))?;
    let (_, rest) = raw.split_once(gpu.name())?;
    let size = rest.get(1..).unwrap_or_default().split([':', '=']).next();
    slice_near(gpu, size.and_then(size_meant))
}

fn in_other_case(raw: &str) -> Refusal {
    let (name, rest) = typed(raw).split_at(name_of(raw).len());
    let meant = name.to_ascii_lowercase() + rest;
    Refusal::new(typed(raw), Reason::UpperCase { meant })
}

fn misspelt(policy: &Policy, raw: &str) -> Refusal {
    let gpu_type = whole_types(policy).into_iter().next();
    Refusal::new(typed(raw), Reason::UnreadableGpu { gpu_type })
}

fn unknown_type(policy: &Policy, part: &Part<'_>, name: &str) -> Refusal {
    let size = match part.slice {
        Some((_, Size::Part(size))) => decimal(size),
        _ => None,
    };
    let meant = policy.nearest_type(name).map(|gpu| {
        let by_size = |size: Option<u32>| (size, size.and_then(|size| gpu.slice(size)));
        let (size, slice) = match part.slice {
            Some((_, Size::Part(_))) => by_size(size),
            Some((_, Size::Memory(least))) => (None, gpu.slice_with(least)),
            None => by_size(gpu.slice_of_shards(part.gres.count())),
        };
        match slice {
            Some(slice) => Meant::Slice(slice),
            None => Meant::OneOf(Offer::near(gpu, size)),
        }
    });
    let reason = Reason::UnknownSliceType {
        name: name.to_string(),
        shared: policy.gpus().map(|gpu| gpu.name().to_string()).collect(),
        meant: meant.unwrap_or_else(|| Meant::Examples(example_slices(policy, size))),
    };
    refuse(part, reason)
}

fn several(parts: &[Part<'_>], found: &[Found<'_>]) -> Refusal {
    let asked: Vec<String> = parts.iter().map(|part| part.gres.to_string()).collect();
    let reason = Reason::SeveralSlices {
        slices: parts.len(),
        offer: Offer::near(found[0].gpu, None),
    };
    Refusal::new(asked.join(","), reason)
}

fn wrong_count(
    request: &Request,
    part: &Part<'_>,
    gpu: &GpuType,
    limits: &Limits,
    slices: u64,
) -> Refusal {
    /// A request for more GPUs than this is a typing error.
    const MOST_GPUS: u64 = 64;
    let shards = u64::from(limits.share().shards()).saturating_mul(slices);
    let nodes = request.nodes();
    let is_for_each = part.place == CountedPer::Job && nodes == slices;
    let on_each = is_for_each.then_some(SameAmount::OnEachNode(nodes));
    let bigger = gpu.slice_of_shards(shards).and_then(|size| gpu.slice(size));
    let same = on_each.or(bigger.map(SameAmount::Slice)).or_else(|| {
        let gpus = shards.div_ceil(u64::from(gpu.shards_per_gpu()));
        (1..=MOST_GPUS)
            .contains(&gpus)
            .then_some(SameAmount::WholeGpus(gpus))
    });
    let one = *limits;
    refuse(part, Reason::SliceCount { slices, one, same })
}
