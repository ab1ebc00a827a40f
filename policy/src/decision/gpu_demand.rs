//! The number of GPUs and shards that a job requests.

use crate::config::gpu_types::GpuType;
use crate::config::policy::Policy;
use crate::decision::gpu_request::Wanted;
use crate::slurm::job_request::Request;

/// The GPUs and shards that a job requests. Each count is the least that the request can mean.
#[derive(Default)]
pub(crate) struct GpuDemand<'a> {
    /// As the user wrote it.
    pub(crate) text: String,
    /// True if the request counts several times: for each node, task or socket.
    pub(crate) is_for_each: bool,
    /// The nodes that have a slice each.
    pub(crate) nodes: u64,
    /// Its slices, in shards of a type.
    pub(crate) slice: Option<(&'a GpuType, u64)>,
    /// Whole GPUs of all types, without reserved ones.
    pub(crate) wholes: u64,
    /// The shards of these GPUs.
    pub(crate) whole_shards: u64,
    /// Those of these GPUs that are of a known type.
    pub(crate) of_types: Vec<(&'a GpuType, u64)>,
    /// True if some GPUs are requested without a type.
    pub(crate) is_untyped: bool,
    /// A type that the policy does not know.
    pub(crate) unknown_type: Option<&'a str>,
    /// MIG instances.
    pub(crate) mig: Vec<(&'a GpuType, u64)>,
    /// Types of reserved GPUs.
    pub(crate) reserved: Vec<&'a str>,
    /// When, in seconds since 1970.
    now: i64,
}

/// How many GPUs of one type, or of any, each field requests. Several fields mean the same GPUs.
struct Count<'a> {
    kind: Option<&'a str>,
    by_place: [u64; 4],
}

impl<'a> GpuDemand<'a> {
    /// The request is for one slice of so many shards on each node, and nothing else.
    pub(crate) fn slice(text: &str, gpu: Option<&'a GpuType>, shards: u64, nodes: u64) -> Self {
        Self {
            text: text.to_string(),
            nodes,
            slice: gpu.map(|gpu| (gpu, shards.saturating_mul(nodes))),
            ..Self::default()
        }
    }

    /// Whole GPUs and MIG instances.
    pub(crate) fn wholes(
        policy: &'a Policy,
        request: &Request,
        wanted: &Wanted<'a>,
        now: i64,
    ) -> Self {
        let mut demand = Self {
            now,
            ..Self::default()
        };
        for Count { kind, by_place } in demand.count(request, wanted) {
            let count = by_place.into_iter().max().unwrap_or(0);
            if count > 0 {
                demand.add(policy, kind, count);
            }
        }
        if wanted.misspelt.is_some() {
            demand.add(policy, None, 1);
        }
        if let (Some(tasks), false) = (request.ntasks_per_tres, wanted.has_wholes()) {
            // Slurm adds as many GPUs as the tasks need, of any type.
            let gpus = request.tasks().div_ceil(u64::from(tasks.max(1)));
            demand.text = format!("--ntasks-per-gpu={tasks}");
            demand.add(policy, None, gpus);
        }
        if demand.text.is_empty() {
            demand.text = if request.exclusive {
                "--exclusive".to_string()
            } else {
                "this job".to_string()
            };
        }
        demand
    }

    fn count(&mut self, request: &Request, wanted: &Wanted<'a>) -> Vec<Count<'a>> {
        let mut counts: Vec<Count<'a>> = Vec::new();
        for (place, gres) in &wanted.wholes {
            if !self.text.is_empty() {
                self.text.push(',');
            }
            self.text += &gres.to_string();
            let at = counts.iter().position(|count| count.kind == gres.kind);
            let at = at.unwrap_or_else(|| {
                counts.push(Count {
                    kind: gres.kind,
                    by_place: [0; 4],
                });
                counts.len() - 1
            });
            self.is_for_each |= request.in_all(*place, 1) != 1;
            let count = &mut counts[at].by_place[*place as usize];
            *count = count.saturating_add(request.in_all(*place, gres.count()));
        }
        counts
    }

    fn add(&mut self, policy: &'a Policy, kind: Option<&'a str>, count: u64) {
        match kind.map(|kind| (kind, policy.gpu(kind))) {
            Some((_, Some(gpu))) if gpu.is_mig() => self.mig.push((gpu, count)),
            Some((_, Some(gpu))) => {
                self.add_wholes(count, gpu.shards_per_gpu());
                self.of_types.push((gpu, count));
            }
            Some((kind, None)) if policy.is_reserved(kind, self.now) => self.reserved.push(kind),
            unknown => {
                if let Some(gpu) = kind.and_then(|kind| policy.of_reservable(kind)) {
                    // Its time is over, so it is a GPU like the others.
                    self.add_wholes(count, gpu.shards_per_gpu());
                    self.of_types.push((gpu, count));
                    return;
                }
                match unknown {
                    Some((kind, _)) if policy.is_plain_type(kind) => {}
                    Some((kind, _)) => self.unknown_type = Some(kind),
                    None => self.is_untyped = true,
                }
                self.add_wholes(count, least_shards(policy));
            }
        }
    }

    fn add_wholes(&mut self, count: u64, shards_each: u32) {
        let shards = count.saturating_mul(u64::from(shards_each));
        self.wholes = self.wholes.saturating_add(count);
        self.whole_shards = self.whole_shards.saturating_add(shards);
    }

    /// All of it, counted in shards.
    pub(crate) fn shards(&self) -> u64 {
        let slice = self.slice.map_or(0, |(_, shards)| shards);
        self.whole_shards.saturating_add(slice)
    }

    /// The part of one type, counted in shards.
    pub(crate) fn shards_of(&self, kind: &str) -> u64 {
        let wholes = self.of_types.iter().filter(|(gpu, _)| gpu.name() == kind);
        let wholes =
            wholes.map(|(gpu, count)| count.saturating_mul(u64::from(gpu.shards_per_gpu())));
        let slice = self.slice.filter(|(gpu, _)| gpu.name() == kind);
        wholes.fold(slice.map_or(0, |(_, shards)| shards), u64::saturating_add)
    }

    /// True if it requests no GPUs, or only reserved ones.
    pub(crate) fn is_nothing(&self) -> bool {
        self.wholes == 0 && self.mig.is_empty() && self.slice.is_none()
    }
}

/// The least shards of a GPU of any type.
fn least_shards(policy: &Policy) -> u32 {
    let types = policy.gpus().filter(|gpu| !gpu.is_mig());
    types.map(GpuType::shards_per_gpu).min().unwrap_or(1)
}
