//! What a job asks for, counted.

use crate::catalogue::GpuType;
use crate::decide::Wanted;
use crate::gres::Gres;
use crate::policy::Policy;
use crate::request::{Place, Request};

/// What a job asks for. A count is the least that it can come to.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    /// As the user wrote it.
    pub(crate) text: String,
    /// Its slice, in shards of a type.
    pub(crate) slice: Option<(&'a GpuType, u64)>,
    /// Whole GPUs that are for everybody, of any type.
    pub(crate) wholes: u64,
    /// The shards of those.
    pub(crate) whole_shards: u64,
    /// Those of known types.
    pub(crate) of_types: Vec<(&'a GpuType, u64)>,
    /// Whether any type will do.
    pub(crate) is_untyped: bool,
    /// MIG instances.
    pub(crate) mig: Vec<(&'a GpuType, u64)>,
    /// Types of GPUs that are kept for somebody.
    pub(crate) reserved: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    /// A slice, and nothing else.
    pub(crate) fn slice(text: &str, slice: Option<(&'a GpuType, u64)>) -> Self {
        Self {
            text: text.to_string(),
            slice,
            ..Self::default()
        }
    }

    /// Whole GPUs and MIG instances.
    pub(crate) fn wholes(policy: &'a Policy, request: &Request, wanted: &Wanted<'a>) -> Self {
        let mut asked = Self::default();
        for (place, gres) in &wanted.wholes {
            asked.add(policy, request, *place, gres);
        }
        if wanted.misspelt {
            asked.add_any(policy, 1);
        }
        if asked.text.is_empty() {
            asked.text = match request.exclusive {
                true => "--exclusive".to_string(),
                false => "this job".to_string(),
            };
        }
        asked
    }

    fn add(&mut self, policy: &'a Policy, request: &Request, place: Place, gres: &Gres<'a>) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text += &gres.to_string();
        let count = request.in_all(place, gres.count());
        if count == 0 {
            return;
        }
        match gres.kind.map(|kind| (kind, policy.gpu(kind))) {
            Some((_, Some(gpu))) if gpu.is_mig() => self.mig.push((gpu, count)),
            Some((_, Some(gpu))) => {
                self.add_wholes(count, gpu.shards_per_gpu());
                self.of_types.push((gpu, count));
            }
            Some((kind, None)) if policy.is_reservable(kind) => self.reserved.push(kind),
            Some((_, None)) => self.add_wholes(count, least_shards(policy)),
            None => self.add_any(policy, count),
        }
    }

    fn add_any(&mut self, policy: &Policy, count: u64) {
        self.is_untyped = true;
        self.add_wholes(count, least_shards(policy));
    }

    fn add_wholes(&mut self, count: u64, shards_each: u32) {
        let shards = count.saturating_mul(u64::from(shards_each));
        self.wholes = self.wholes.saturating_add(count);
        self.whole_shards = self.whole_shards.saturating_add(shards);
    }

    /// All that it counts in shards.
    pub(crate) fn shards(&self) -> u64 {
        let slice = self.slice.map_or(0, |(_, shards)| shards);
        self.whole_shards.saturating_add(slice)
    }

    /// The same of one type.
    pub(crate) fn shards_of(&self, kind: &str) -> u64 {
        let wholes = self.of_types.iter().filter(|(gpu, _)| gpu.name() == kind);
        let wholes =
            wholes.map(|(gpu, count)| count.saturating_mul(u64::from(gpu.shards_per_gpu())));
        let slice = self.slice.filter(|(gpu, _)| gpu.name() == kind);
        wholes.fold(slice.map_or(0, |(_, shards)| shards), u64::saturating_add)
    }

    /// Whether there is no GPU in it that is everybody's.
    pub(crate) fn is_nothing(&self) -> bool {
        self.wholes == 0 && self.mig.is_empty() && self.slice.is_none()
    }
}

/// Whichever type a GPU will be of, it has no fewer shards.
fn least_shards(policy: &Policy) -> u32 {
    let types = policy.gpus().filter(|gpu| !gpu.is_mig());
    types.map(GpuType::shards_per_gpu).min().unwrap_or(1)
}
