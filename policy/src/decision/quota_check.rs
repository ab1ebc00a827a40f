//! Compares a request with the limits of a class: a job beyond them would be pending for ever.

use crate::config::classes::ClassLimits;
use crate::config::policy::Policy;
use crate::decision::alternatives::whole_types;
use crate::decision::gpu_demand::GpuDemand;
use crate::decision::reason::{Less, LimitPassed, MostShards, Reason};
use crate::decision::refusal::Refusal;
use crate::decision::submitter::Submitter;
use crate::slurm::time_limit::WallTime;

/// Refuses a job that could never start.
pub(crate) fn fit(
    policy: &Policy,
    demand: &GpuDemand<'_>,
    standing: &ClassLimits,
    submitter: &Submitter,
) -> Result<(), Refusal> {
    let ceilings = Ceilings {
        policy,
        demand,
        standing,
    };
    if standing.quota.jobs == Some(0) {
        return Err(ceilings.refuse(LimitPassed::NoJobs));
    }
    ceilings.mig()?;
    ceilings.wholes()?;
    ceilings.shards()?;
    ceilings.wall_time(submitter)
}

struct Ceilings<'a> {
    policy: &'a Policy,
    demand: &'a GpuDemand<'a>,
    standing: &'a ClassLimits,
}

impl Ceilings<'_> {
    fn refuse(&self, limit: LimitPassed) -> Refusal {
        let who = self.standing.called();
        Refusal::new(&self.demand.text, Reason::Limit { who, limit })
    }

    fn mig(&self) -> Result<(), Refusal> {
        for (gpu, count) in &self.demand.mig {
            let most = self.standing.quota.mig.get(gpu.name());
            if let Some(most) = most.filter(|most| count > most) {
                return Err(self.refuse(LimitPassed::Mig {
                    gpu_type: gpu.name().to_string(),
                    asked: *count,
                    most: *most,
                    instead: self.instead(),
                }));
            }
        }
        Ok(())
    }

    fn wholes(&self) -> Result<(), Refusal> {
        let (quota, demand) = (&self.standing.quota, self.demand);
        match quota.whole_gpus {
            Some(0) if demand.wholes > 0 => {
                let instead = self.instead();
                return Err(self.refuse(LimitPassed::NoWholeGpus { instead }));
            }
            Some(most) if demand.wholes > most => {
                return Err(self.refuse(LimitPassed::WholeGpus {
                    asked: demand.wholes,
                    most,
                    instead: self.instead(),
                }));
            }
            _ => {}
        }
        let is_weighed = self.policy.weights().by_type()
            && (quota.shards.is_some()
                || quota.max_shards_per_job.is_some()
                || quota.whole_gpus.is_some());
        if demand.is_untyped && (is_weighed || !quota.shards_of.is_empty()) {
            let types = whole_types(self.policy);
            return Err(self.refuse(LimitPassed::Untyped { types }));
        }
        Ok(())
    }

    fn shards(&self) -> Result<(), Refusal> {
        let (quota, demand) = (&self.standing.quota, self.demand);
        let refuse = |shards: u64, most: MostShards| {
            Err(self.refuse(LimitPassed::Shards {
                asked: shards,
                is_of_gpus: demand.wholes > 0,
                most,
                instead: self.instead(),
            }))
        };
        let shards = demand.shards();
        if let Some(most) = quota.shards.filter(|&most| shards > most) {
            return refuse(shards, MostShards::AtOnce(most));
        }
        if let Some(most) = quota.max_shards_per_job.filter(|&most| shards > most) {
            return refuse(shards, MostShards::InOneJob(most));
        }
        for (kind, most) in &quota.shards_of {
            let shards = demand.shards_of(kind);
            if shards > *most {
                return refuse(shards, MostShards::AtOnceOfType(*most, kind.clone()));
            }
        }
        Ok(())
    }

    fn wall_time(&self, submitter: &Submitter) -> Result<(), Refusal> {
        match (self.standing.quota.wall_time, submitter.time_limit) {
            (Some(most), Some(asked)) if asked > most.minutes() => {
                let asked = WallTime::of_minutes(asked);
                Err(self.refuse(LimitPassed::Time { asked, most }))
            }
            _ => Ok(()),
        }
    }

    /// Fewer of the same, else the largest slice that the class may have, preferably of the requested type.
    fn instead(&self) -> Less {
        let quota = &self.standing.quota;
        if let Some(fewer) = self.fewer().filter(|_| quota.jobs != Some(0)) {
            return fewer;
        }
        let slice = self.demand.slice.map(|(gpu, _)| gpu);
        let named = slice.or(self.demand.of_types.first().map(|(gpu, _)| *gpu));
        let types = || named.into_iter().chain(self.policy.gpus());
        let largest = |nodes: u64| {
            types().find_map(|gpu| {
                let fits = |size: &&u32| {
                    let shards = u64::from(gpu.shards_per_gpu() / **size) * nodes;
                    self.policy.shares(gpu.name()) && quota.allows_slice(gpu.name(), shards)
                };
                gpu.slice(*gpu.slices().iter().find(fits)?)
            })
        };
        if let Some(slice) = largest(self.demand.nodes.max(1)) {
            return Less::Slice(slice);
        }
        if let Some(slice) = largest(1) {
            return Less::OnOneNode(slice);
        }
        Less::Unknown
    }

    /// As many whole GPUs or MIG instances of the requested type as the class may hold, if that is fewer but not none.
    fn fewer(&self) -> Option<Less> {
        let quota = &self.standing.quota;
        let (gpu, asked, most) = match (self.demand.mig.as_slice(), self.demand.of_types.as_slice())
        {
            ([(gpu, asked)], []) => (gpu, asked, quota.mig.get(gpu.name()).copied()),
            ([], [(gpu, asked)]) => {
                let of_type = quota.shards_of.get(gpu.name()).copied();
                let shards = [quota.shards, quota.max_shards_per_job, of_type]
                    .into_iter()
                    .flatten()
                    .min();
                let by_shards = shards.map(|shards| shards / u64::from(gpu.shards_per_gpu()));
                let most = [quota.whole_gpus, by_shards].into_iter().flatten().min();
                (gpu, asked, most)
            }
            ([], []) if self.demand.is_untyped => {
                let most = quota.whole_gpus?;
                let is_fewer = most > 0 && most < self.demand.wholes && !self.demand.is_for_each;
                return is_fewer.then_some(Less::AnyGpus { count: most });
            }
            _ => return None,
        };
        let count = most.filter(|most| *most > 0 && most < asked && !self.demand.is_for_each)?;
        Some(Less::WholeGpus {
            gpu_type: gpu.name().to_string(),
            count,
        })
    }
}
