//! The rules: what is a slice, and which requests for one can be granted.

use crate::config::choices::RawShards;
use crate::config::gpu_types::GpuType;
use crate::config::legacy_mps::Mps;
use crate::config::policy::Policy;
use crate::config::refusal_code::Code;
use crate::decision::access;
use crate::decision::gpu_request::{Part, Wanted, name_of, typed};
use crate::decision::refusal::Refusal;
use crate::decision::rewrite;
use crate::decision::verdict::{Context, Grant, Terms, Verdict};
use crate::decision::wording::{
    around, example_slices, nearest_size, nearest_slices, offer, or_a_slice, smallest_slice,
};
use crate::node::limits::{Limits, decimal};
use crate::slurm::gres::Name;
use crate::slurm::job_request::Request;

/// Decides on a request.
///
/// ```
/// use softmig_policy::{Code, Context, Policy, Request, Verdict, decide};
/// let policy = Policy::parse("[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n").unwrap();
/// let request = Request { tres_per_node: Some("gpu:l40s.3:1".into()), ..Request::default() };
/// let Verdict::Refused(refusal) = decide(&policy, &request, &Context::default()) else { panic!() };
/// assert_eq!(refusal.code, Code::SliceSize);
/// ```
pub fn decide(policy: &Policy, request: &Request, context: &Context) -> Verdict {
    let wanted = Wanted::read(request, Some(policy));
    match answer(policy, request, context, &wanted) {
        Ok(verdict) => verdict,
        Err(refusal) => Verdict::Refused(refusal.at(policy)),
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
            gpus: wanted.has_wholes() || request.implies_gpus(),
            terms: terms.map_err(|refusal| match (wanted.misspelt, refusal.code) {
                // What it was taken for is no answer to what was typed.
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

/// Decides when there is no policy: whatever might be a slice is refused, all else passes.
pub fn decide_without_policy(request: &Request) -> Verdict {
    let wanted = Wanted::read(request, None);
    if wanted.is_ours() {
        return Verdict::Refused(Refusal::new(
            Code::PolicyUnreadable,
            "the list of GPUs that can be shared, /etc/softmig/policy.toml, cannot be read",
            "ask your administrator to run: softmig explain --gres=gpu:1; or ask for a whole GPU, for example --gres=gpu:1",
        ));
    }
    Verdict::Unchanged {
        gpus: wanted.has_wholes() || request.implies_gpus(),
        terms: Terms::default(),
    }
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
        found.push(limits_of(policy, part)?);
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
        return Err(wrong_count(part, gpu, limits, *slices));
    }
    if wanted.has_wholes() {
        return Err(Refusal::new(
            Code::SliceMixed,
            format!("{}: one job cannot have a slice and whole GPUs", part.gres),
            format!(
                "ask for the slice alone, {}, or for whole GPUs alone, --gres=gpu:{}:1",
                gpu.as_option(limits.share().shards()),
                gpu.name()
            ),
        ));
    }
    Ok(Grant {
        asked: part.gres.to_string(),
        request: rewrite::to_shards(request, context, gpu, part, limits)?,
        limits: *limits,
        terms: Terms::default(),
    })
}

/// A part whose type and size are known.
struct Found<'a> {
    gpu: &'a GpuType,
    limits: Limits,
    /// How many such slices were asked for; any number of shards is one.
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
    let limits = decimal(size).and_then(|size| gpu.slice(size));
    match limits {
        Some(limits) => Ok(Found {
            gpu,
            limits,
            slices: part.gres.count(),
        }),
        None if decimal(size) == Some(1) => Err(Refusal::new(
            Code::SliceIsWholeGpu,
            format!("{}: a slice .1 would be the whole GPU", part.gres),
            format!("for a whole GPU use --gres=gpu:{name}:1{}", or_a_slice(gpu)),
        )),
        None => Err(Refusal::new(
            Code::SliceSize,
            format!("{}: {}", part.gres, offer(gpu)),
            format!("use {}", nearest_slices(gpu, decimal(size))),
        )),
    }
}

/// Shards of a named type and an offered count are that slice; others depend on the policy.
fn shard_limits<'p>(policy: &'p Policy, part: &Part<'_>) -> Result<Found<'p>, Refusal> {
    let shards = part.gres.count();
    let refuse = |message: String, hint: String| Err(Refusal::new(Code::RawShard, message, hint));
    let gpu = match part.gres.kind {
        Some(name) => policy
            .gpu(name)
            .ok_or_else(|| unknown_type(policy, part, name))?,
        // Only where there is no choice is it clear which GPU's memory is meant.
        None => match (
            policy.raw_shards,
            policy.gpus().collect::<Vec<_>>().as_slice(),
        ) {
            (RawShards::Allow, [gpu]) => gpu,
            _ => {
                return refuse(
                    format!(
                        "{}: ask for a slice of a type of GPU, not for a number of shards",
                        part.gres
                    ),
                    format!("use {}", example_slices(policy)),
                );
            }
        },
    };
    let limits = u32::try_from(shards)
        .ok()
        .and_then(|shards| gpu.limits(shards).ok());
    let offered = gpu.slice_of_shards(shards).is_some();
    match limits {
        Some(limits) if offered || policy.raw_shards == RawShards::Allow => Ok(Found {
            gpu,
            limits,
            slices: 1,
        }),
        Some(_) => refuse(
            format!(
                "{}: {shards} of {} shards is no slice; {}",
                part.gres,
                gpu.shards_per_gpu(),
                offer(gpu)
            ),
            format!("use {}", nearest_slices(gpu, nearest_size(gpu, shards))),
        ),
        None if shards == 0 => refuse(
            format!("{}: no shards are asked for", part.gres),
            format!("use {}", nearest_slices(gpu, None)),
        ),
        None => refuse(
            format!(
                "{}: one {} has {} shards, and a job can share one GPU only",
                part.gres,
                gpu.name(),
                gpu.shards_per_gpu()
            ),
            format!(
                "use --gres=gpu:{}:1 for a whole GPU{}",
                gpu.name(),
                or_a_slice(gpu)
            ),
        ),
    }
}

/// Units of mps are the slice that they are part of a GPU's units for.
fn mps_limits<'p>(policy: &'p Policy, mps: &Mps, part: &Part<'_>) -> Result<Found<'p>, Refusal> {
    let (units, kind) = (part.gres.count(), mps.gpu_type());
    let gpu = policy
        .gpu(kind)
        .filter(|_| part.gres.kind.is_none_or(|named| named == kind))
        .ok_or_else(|| unknown_type(policy, part, part.gres.kind.unwrap_or(kind)))?;
    let size = mps.size(units);
    if let Some(limits) = size.and_then(|size| gpu.slice(size)) {
        return Ok(Found {
            gpu,
            limits,
            slices: 1,
        });
    }
    let per_gpu = mps.units_per_gpu();
    if units >= u64::from(per_gpu) {
        return Err(Refusal::new(
            Code::SliceIsWholeGpu,
            format!(
                "{}: {per_gpu} units are a whole {kind}, and a job can share one only",
                part.gres
            ),
            format!("for a whole GPU use --gres=gpu:{kind}:1{}", or_a_slice(gpu)),
        ));
    }
    let offered: Vec<String> = gpu
        .slices()
        .iter()
        .filter_map(|&size| mps.units(size))
        .map(|units| units.to_string())
        .collect();
    let asked = u64::from(per_gpu).checked_div(units);
    let asked = asked.and_then(|size| u32::try_from(size).ok());
    let nearest: Vec<String> = around(gpu, asked)
        .filter_map(|size| {
            let units = mps.units(size)?;
            Some(format!(
                "--gres=mps:{units}, which is --gres=gpu:{kind}.{size}:1"
            ))
        })
        .collect();
    Err(Refusal::new(
        Code::SliceSize,
        format!(
            "{}: of the {per_gpu} units of one {kind} a job can have {}",
            part.gres,
            offered.join(", ")
        ),
        format!("use {}", nearest.join("; or ")),
    ))
}

fn malformed(policy: &Policy, raw: &str) -> Refusal {
    Refusal::new(
        Code::Malformed,
        format!(
            "{}: cannot be read as a request for part of a GPU",
            typed(raw)
        ),
        format!(
            "use {}",
            like(policy, raw).unwrap_or_else(|| example_slices(policy))
        ),
    )
}

/// The smallest slice of the type that an item names somewhere.
fn like(policy: &Policy, raw: &str) -> Option<String> {
    let words = raw.split([':', '=', '/']);
    let mut names = words.map(|word| word.rsplit_once('.').map_or(word, |(name, _)| name));
    smallest_slice(names.find_map(|name| policy.gpu(name))?)
}

fn in_other_case(raw: &str) -> Refusal {
    let (name, rest) = typed(raw).split_at(name_of(raw).len());
    Refusal::new(
        Code::Malformed,
        format!("{}: names of GRES are in lower case", typed(raw)),
        format!("did you mean --gres={}{rest}?", name.to_ascii_lowercase()),
    )
}

fn misspelt(policy: &Policy, raw: &str) -> Refusal {
    Refusal::new(
        Code::Malformed,
        format!("{}: cannot be read as a request for GPUs", typed(raw)),
        match policy.gpus().find(|gpu| !gpu.is_mig()) {
            Some(gpu) => format!("write for example --gres=gpu:{}:1", gpu.name()),
            None => "write for example --gres=gpu:1".to_string(),
        },
    )
}

fn unknown_type(policy: &Policy, part: &Part<'_>, name: &str) -> Refusal {
    let types: Vec<&str> = policy.gpus().map(GpuType::name).collect();
    let message = match types.as_slice() {
        [] => format!("{}: no GPU here can be shared", part.gres),
        types => format!(
            "{}: no GPU of type {name} can be shared; types are {}",
            part.gres,
            types.join(", ")
        ),
    };
    let meant = policy.nearest_type(name).map(|gpu| {
        let size = match part.slice {
            Some((_, size)) => decimal(size),
            None => gpu.slice_of_shards(part.gres.count()),
        };
        match size.filter(|&size| gpu.slice(size).is_some()) {
            Some(size) => format!("did you mean --gres=gpu:{}.{size}:1?", gpu.name()),
            None => format!("did you mean {}?", nearest_slices(gpu, size)),
        }
    });
    Refusal::new(
        Code::SliceType,
        message,
        meant.unwrap_or_else(|| format!("use {}", example_slices(policy))),
    )
}

fn several(parts: &[Part<'_>], found: &[Found<'_>]) -> Refusal {
    let asked: Vec<String> = parts.iter().map(|part| part.gres.to_string()).collect();
    let gpu = found[0].gpu;
    Refusal::new(
        Code::SliceCount,
        format!(
            "{}: a job can have one slice, not {}",
            asked.join(","),
            parts.len()
        ),
        format!("ask for one, for example {}", nearest_slices(gpu, None)),
    )
}

fn wrong_count(part: &Part<'_>, gpu: &GpuType, limits: &Limits, slices: u64) -> Refusal {
    let size = limits.share().per_gpu() / limits.share().shards();
    let one = format!("--gres=gpu:{}.{size}:1", gpu.name());
    let shards = u64::from(limits.share().shards()).saturating_mul(slices);
    let hint = match gpu.slice_of_shards(shards) {
        Some(bigger) if slices > 1 => {
            format!(
                "use --gres=gpu:{}.{bigger}:1 for the same amount on one GPU, or {one}",
                gpu.name()
            )
        }
        _ if slices == 0 => format!("use {one}"),
        _ => match shards.div_ceil(u64::from(gpu.shards_per_gpu())) {
            1 => format!("use {one}, or --gres=gpu:{}:1 for a whole GPU", gpu.name()),
            gpus @ 2..=64 => format!(
                "use {one}, or --gres=gpu:{}:{gpus} for whole GPUs",
                gpu.name()
            ),
            _ => format!("use {one}"),
        },
    };
    Refusal::new(
        Code::SliceCount,
        format!("{}: a job can have one slice, not {slices}", part.gres),
        hint,
    )
}
