//! Keeps of a refusal's suggestions those that the submitter may have: a hint must not lead to the next refusal.

use crate::config::classes::ClassLimits;
use crate::config::gates::GateSubject;
use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::decision::gate_check;
use crate::decision::reason::{May, Meant, Reason, SameAmount, SliceOrShards};
use crate::decision::submitter::Submitter;
use crate::node::limits::Limits;

/// Removes suggestions that the submitter's limits and gates rule out, and says what remains.
pub(crate) fn keep(policy: &Policy, submitter: &Submitter, reason: &mut Reason) -> May {
    if submitter.is_exempt || !policy.looks_at_people() {
        return May::default();
    }
    // Where the class depends on an unknown fact, slurmctld decides and says.
    let standing = submitter.standing(policy).ok().flatten();
    let own = Attainable {
        policy,
        standing,
        wholes: gate_check::is_open(policy, submitter, &GateSubject::Whole),
        instances: gate_check::is_open(policy, submitter, &GateSubject::Mig),
    };
    own.keep_slices(reason);
    let offered = whole_offered(reason);
    May {
        whole: offered.is_none_or(|(gpu_type, count)| own.wholes(gpu_type, count)),
        instead: own.largest_slice(offered.map(|(gpu_type, _)| gpu_type)),
        who: standing.map_or_else(|| "you".to_string(), ClassLimits::called),
    }
}

struct Attainable<'a> {
    policy: &'a Policy,
    standing: Option<&'a ClassLimits>,
    /// Whether the gates let whole GPUs through.
    wholes: bool,
    /// Whether they let MIG instances through.
    instances: bool,
}

impl Attainable<'_> {
    fn slice(&self, limits: &Limits) -> bool {
        self.slices(limits, 1)
    }

    /// As many of them in one job.
    fn slices(&self, limits: &Limits, count: u64) -> bool {
        let shards = u64::from(limits.share().shards()).saturating_mul(count);
        let name = limits.gpu_type().as_str();
        self.standing
            .is_none_or(|standing| standing.quota.allows_slice(name, shards))
    }

    fn wholes(&self, gpu_type: &str, count: u64) -> bool {
        if self.policy.gpu(gpu_type).is_some_and(GpuType::is_mig) {
            let most = self
                .standing
                .and_then(|standing| standing.quota.mig.get(gpu_type));
            return self.instances && most.is_none_or(|most| count <= *most);
        }
        let per_gpu = self.policy.gpu(gpu_type).map_or(1, GpuType::shards_per_gpu);
        let shards = count.saturating_mul(u64::from(per_gpu));
        let allowed = |standing: &ClassLimits| {
            let quota = &standing.quota;
            quota.whole_gpus.is_none_or(|most| count <= most)
                && quota.allows_slice(gpu_type, shards)
        };
        self.wholes && self.standing.is_none_or(allowed)
    }

    /// The largest slice of the type, or else of any.
    fn largest_slice(&self, gpu_type: Option<&str>) -> Option<Limits> {
        let named = gpu_type.and_then(|name| self.policy.gpu(name));
        let types = named.into_iter().chain(self.policy.gpus());
        let mut slices =
            types.flat_map(|gpu| gpu.slices().iter().filter_map(|&size| gpu.slice(size)));
        slices.find(|slice| self.slice(slice))
    }

    fn keep_slices(&self, reason: &mut Reason) {
        match reason {
            Reason::UnreadableSlice { examples } | Reason::UntypedShards { examples } => {
                self.keep_examples(examples);
            }
            Reason::WholeGpuAsSlice { largest, .. }
            | Reason::WholeGpuAsMps { largest, .. }
            | Reason::ShardsBeyondGpu { largest, .. } => {
                *largest = largest.filter(|slice| self.slice(slice));
            }
            Reason::SliceSize(offer)
            | Reason::ShardCount { offer, .. }
            | Reason::NoShards(offer)
            | Reason::SeveralSlices { offer, .. } => {
                offer.nearest.retain(|slice| self.slice(slice));
            }
            Reason::SliceMemory(offer) => {
                offer.slices.retain(|slice| self.slice(slice));
                offer.wholes.retain(|name| self.wholes(name, 1));
            }
            Reason::SeveralNodes {
                nodes,
                slice,
                may_have_each,
            } => {
                let gpu_type = slice.limits().gpu_type();
                if !self.slice(slice.limits())
                    && let Some(smaller) = self.largest_slice(Some(gpu_type.as_str()))
                {
                    *slice = SliceOrShards::Slice(smaller);
                }
                *may_have_each = self.slices(slice.limits(), *nodes);
            }
            Reason::SliceCount { one, same, .. } => {
                let gpu_type = one.gpu_type();
                *same = same.take().filter(|same| match same {
                    SameAmount::Slice(slice) => self.slice(slice),
                    SameAmount::WholeGpus(count) => self.wholes(gpu_type.as_str(), *count),
                    SameAmount::OnEachNode(nodes) => self.slices(one, *nodes),
                });
                if !self.slice(one)
                    && let Some(smaller) = self.largest_slice(Some(gpu_type.as_str()))
                {
                    *one = smaller;
                }
            }
            Reason::UnknownSliceType { meant, .. } | Reason::UnknownGpuType { meant, .. } => {
                self.keep_meant(meant);
            }
            Reason::MayBeReserved { types, count, .. } => {
                types.retain(|name| self.wholes(name, *count));
            }
            _ => {}
        }
    }

    fn keep_examples(&self, examples: &mut Vec<Limits>) {
        let had_some = !examples.is_empty();
        examples.retain(|slice| self.slice(slice));
        if had_some && examples.is_empty() {
            examples.extend(self.largest_slice(None));
        }
    }

    fn keep_meant(&self, meant: &mut Meant) {
        let named = match meant {
            Meant::Slice(slice) if !self.slice(slice) => {
                Some(slice.gpu_type().as_str().to_string())
            }
            Meant::WholeGpu(name) if !self.wholes(name, 1) => Some(name.clone()),
            Meant::OneOf(offer) => {
                offer.nearest.retain(|slice| self.slice(slice));
                None
            }
            Meant::Examples(examples) => {
                self.keep_examples(examples);
                None
            }
            Meant::Types(types) => {
                types.retain(|name| self.wholes(name, 1));
                types.is_empty().then(String::new)
            }
            _ => None,
        };
        if let Some(slice) = named.and_then(|name| self.largest_slice(Some(&name))) {
            *meant = Meant::Slice(slice);
        }
    }
}

/// The whole GPUs that the hint of a refusal offers.
fn whole_offered(reason: &Reason) -> Option<(&str, u64)> {
    let offered = match reason {
        Reason::WholeGpuAsSlice {
            gpu_type, count, ..
        } => (gpu_type.as_str(), *count),
        Reason::WholeGpuAsMps { gpu_type, .. }
        | Reason::ShardsBeyondGpu { gpu_type, .. }
        | Reason::ExclusiveSlice { gpu_type }
        | Reason::SliceFrequency { gpu_type }
        | Reason::UnreadableGpu {
            gpu_type: Some(gpu_type),
        } => (gpu_type.as_str(), 1),
        Reason::SliceSize(offer)
        | Reason::ShardCount { offer, .. }
        | Reason::NoShards(offer)
        | Reason::SeveralSlices { offer, .. } => (offer.gpu_type.as_str(), 1),
        Reason::UnknownSliceType {
            meant: Meant::OneOf(offer),
            ..
        } => (offer.gpu_type.as_str(), 1),
        Reason::SliceMemory(offer) => (offer.gpu_type.as_str(), 1),
        Reason::SliceAndGpus { slice } => (slice.limits().gpu_type().as_str(), 1),
        Reason::Reserved { instead, .. } | Reason::ReservedLater { instead, .. } => {
            (instead.as_str(), 1)
        }
        Reason::MayBeReserved { types, count, .. } => (types.first()?.as_str(), *count),
        _ => return None,
    };
    Some(offered)
}
