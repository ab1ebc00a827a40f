//! Jobs that use several GPUs at a time: when such a job has its GPUs, and when it waits on all of them.
//!
//! Its kernels may wait for each other across GPUs, as those of NCCL do. They go on only while all of these GPUs run them, and each
//! GPU's own scheduler knows nothing of the others. So such a job is scheduled as a gang (J. K. Ousterhout, "Scheduling
//! Techniques for Concurrent Systems", ICDCS 1982): in its phase it has all of its GPUs for itself, and otherwise it is held on all.
//!
//! [`Sharing`](super::shares::Sharing) decides for each GPU whether a job may run. A gang may run if it may on each of its GPUs. Of
//! gangs that share a GPU one has its phase at a time. The next is the one with the least lead; until its phase begins, no gang
//! with a greater lead begins one on its GPUs, so that none starves. A phase ends when the gang may not run on one of its GPUs,
//! because of its lead or its cap, or has no work on any.
//!
//! Nothing here reads a clock.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Job, Nanos};

const MS: Nanos = 1_000_000;

/// A job is a gang as long as it wanted two GPUs this long ago. A GPU that waited for it in vain does not wait for it for 100 ms
/// ([`Sharing`](super::shares::Sharing)). It is a gang meanwhile: while that GPU holds it, it cannot go on at the others either.
const OF_LATE: Nanos = 150 * MS;
/// A GPU that did not tell anything for this long is not waited for.
const SILENT: Nanos = 100 * MS;

/// Which jobs have a GPU just now: in a gang's phase that gang, and otherwise all jobs but gangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// The gangs that use the GPU.
    pub gangs: BTreeSet<Job>,
    /// The gang whose phase it is.
    pub running: Option<Job>,
}

impl Phase {
    /// Whether a job waits for its phase, or for the end of another's.
    pub fn holds(&self, job: Job) -> bool {
        match self.running {
            Some(gang) => gang != job,
            None => self.gangs.contains(&job),
        }
    }
}

/// A job at one GPU, as that GPU's decisions have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it wants the GPU.
    pub wants_gpu: bool,
    /// Whether it is neither too far ahead there nor without credit.
    pub may_run: bool,
    /// Its lead over the job that is behind all others, in virtual time.
    pub lead: Nanos,
}

/// A GPU's number among those that are steered.
pub type GpuNumber = usize;

/// The gangs of a node.
#[derive(Debug, Default)]
pub struct Gangs {
    gpus: BTreeMap<GpuNumber, Gpu>,
    /// Those that have their phase.
    running: BTreeSet<Job>,
}

/// What a GPU told last.
#[derive(Debug, Default)]
struct Gpu {
    told: Nanos,
    jobs: BTreeMap<Job, Standing>,
    /// When each job wanted the GPU last.
    wanted: BTreeMap<Job, Nanos>,
    phase: Phase,
}

/// A gang that wants its GPUs.
#[derive(Debug)]
struct Gang {
    job: Job,
    gpus: BTreeSet<GpuNumber>,
    may_run: bool,
    lead: Nanos,
}

impl Gangs {
    /// A GPU tells of its jobs. Returns which of them have it, and the GPUs for which that changed.
    pub fn look(
        &mut self,
        now: Nanos,
        number: GpuNumber,
        jobs: BTreeMap<Job, Standing>,
    ) -> (Phase, Vec<GpuNumber>) {
        let gpu = self.gpus.entry(number).or_default();
        gpu.told = now;
        for (&job, _) in jobs.iter().filter(|(_, it)| it.wants_gpu) {
            gpu.wanted.insert(job, now);
        }
        gpu.wanted
            .retain(|job, last| jobs.contains_key(job) && now - *last <= OF_LATE);
        gpu.jobs = jobs;
        let mut changed = self.decide(now);
        changed.retain(|other| *other != number);
        let phase = self.gpus.get(&number).map(|gpu| gpu.phase.clone());
        (phase.unwrap_or_default(), changed)
    }

    /// A GPU is not steered any more. Returns the GPUs for which something changed.
    pub fn leave(&mut self, now: Nanos, number: GpuNumber) -> Vec<GpuNumber> {
        if self.gpus.remove(&number).is_none() {
            return Vec::new();
        }
        self.decide(now)
    }

    /// Ends and begins phases. Returns the GPUs that have another phase now.
    fn decide(&mut self, now: Nanos) -> Vec<GpuNumber> {
        let mut gangs = self.gangs(now);
        let wants_and_may = |gang: &&Gang| gang.may_run && self.wants(gang);
        let ready: BTreeSet<Job> = gangs
            .iter()
            .filter(wants_and_may)
            .map(|it| it.job)
            .collect();
        self.running.retain(|job| ready.contains(job));
        gangs.sort_by_key(|it| (!self.running.contains(&it.job), it.lead, it.job));
        let mut taken: BTreeSet<GpuNumber> = BTreeSet::new();
        let mut running = BTreeMap::new();
        for gang in gangs.iter().filter(|it| ready.contains(&it.job)) {
            if taken.is_disjoint(&gang.gpus) {
                self.running.insert(gang.job);
                running.extend(gang.gpus.iter().map(|&number| (number, gang.job)));
            } else {
                self.running.remove(&gang.job);
            }
            taken.extend(&gang.gpus);
        }
        let mut changed = Vec::new();
        for (&number, gpu) in &mut self.gpus {
            let here = gangs.iter().filter(|it| it.gpus.contains(&number));
            let phase = Phase {
                gangs: here.map(|it| it.job).collect(),
                running: running.get(&number).copied(),
            };
            if std::mem::replace(&mut gpu.phase, phase.clone()) != phase {
                changed.push(number);
            }
        }
        changed
    }

    /// The jobs that wanted several GPUs of late.
    fn gangs(&self, now: Nanos) -> Vec<Gang> {
        let mut gangs: BTreeMap<Job, Gang> = BTreeMap::new();
        for (&number, gpu) in self.gpus.iter().filter(|(_, it)| now - it.told <= SILENT) {
            for job in gpu.wanted.keys() {
                let Some(standing) = gpu.jobs.get(job) else {
                    continue;
                };
                let gang = gangs.entry(*job).or_insert_with(|| Gang {
                    job: *job,
                    gpus: BTreeSet::new(),
                    may_run: true,
                    lead: standing.lead,
                });
                gang.gpus.insert(number);
                gang.may_run &= standing.may_run;
                gang.lead = gang.lead.max(standing.lead);
            }
        }
        let all = gangs.into_values();
        all.filter(|gang| gang.gpus.len() > 1).collect()
    }

    fn wants(&self, gang: &Gang) -> bool {
        let gpus = gang.gpus.iter().filter_map(|number| self.gpus.get(number));
        let mut standings = gpus.filter_map(|gpu| gpu.jobs.get(&gang.job));
        standings.any(|it| it.wants_gpu)
    }
}

#[cfg(test)]
#[path = "gangs_tests.rs"]
mod tests;
