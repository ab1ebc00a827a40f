//! The savings by slices: the jobs of a history, counted and replayed.

use super::catalogue::{Catalogue, Fit, Unknown};
use super::replay::{self, Need};
use crate::ask::sacct::{History, Job};
use serde::Serialize;
use softmig_policy::Limits;
use std::collections::{BTreeMap, HashMap};

/// The number of this form.
const VERSION: u32 = 1;

/// The replay keeps something of each GPU.
const MOST_GPUS: u32 = 1_000_000;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct Advice {
    schema_version: u32,
    /// When the first job could have run, and when the last ended: seconds since 1970.
    pub(crate) from: Option<i64>,
    pub(crate) to: Option<i64>,
    /// All jobs with GPUs that ended.
    pub(crate) all: Count,
    /// Of these: one whole GPU, which a slice could replace.
    pub(crate) one_gpu: Count,
    pub(crate) several_gpus: Count,
    pub(crate) shards: Count,
    pub(crate) running: u64,
    pub(crate) unreadable_lines: u64,
    pub(crate) types: Vec<OfType>,
    /// Jobs with one GPU that nothing can be told of.
    pub(crate) unknown: Unknowns,
    /// Of all types.
    pub(crate) saved_gpu_hours: f64,
}

/// A number of jobs, and the hours of all of their GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Count {
    pub(crate) jobs: u64,
    pub(crate) gpu_hours: f64,
}

impl Count {
    fn add(&mut self, hours: f64) {
        self.jobs += 1;
        self.gpu_hours += hours;
    }
}

/// Why nothing can be told.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Unknowns {
    /// The accounting has no type of GPU.
    pub(crate) no_type: Count,
    /// The policy does not have it.
    pub(crate) other_type: Count,
    /// Jobs without a figure of memory.
    pub(crate) no_memory: Count,
    /// Jobs whose figure of memory fits a slice, but without a figure of utilization.
    pub(crate) no_utilization: Count,
}

/// The jobs with one GPU of a type.
#[derive(Debug, Serialize)]
pub(crate) struct OfType {
    pub(crate) r#type: String,
    pub(crate) slices: Vec<OfSlice>,
    /// More than the largest slice.
    pub(crate) whole: Count,
    /// The policy's rules let the user have no such slice.
    pub(crate) refused: Count,
    pub(crate) replay: Option<Replayed>,
}

/// The jobs that a slice would have held, and no smaller one.
#[derive(Debug, Serialize)]
pub(crate) struct OfSlice {
    /// As it is requested.
    pub(crate) slice: String,
    pub(crate) memory_mib: u32,
    #[serde(flatten)]
    pub(crate) held: Count,
    pub(crate) saved_gpu_hours: f64,
}

/// The time that jobs of a type waited, in hours.
#[derive(Debug, Serialize)]
pub(crate) struct Replayed {
    pub(crate) gpus: u32,
    /// The source of the figure.
    pub(crate) gpus_from: &'static str,
    pub(crate) jobs: u64,
    /// More GPUs than there are.
    pub(crate) left_out: u64,
    /// As Slurm's accounting has it, with all other reasons to wait.
    pub(crate) recorded_hours: f64,
    pub(crate) whole_gpus_hours: f64,
    pub(crate) slices_hours: f64,
}

/// Counts and replays. `gpus` are the numbers of GPUs that the caller knows better.
pub(crate) fn advise(
    history: &History,
    catalogue: &mut Catalogue,
    gpus: &HashMap<String, u32>,
) -> Advice {
    let jobs = &history.jobs;
    let mut advice = Advice {
        schema_version: VERSION,
        from: jobs.iter().map(|job| job.eligible).min(),
        to: jobs.iter().map(|job| job.end).max(),
        all: Count::default(),
        one_gpu: Count::default(),
        several_gpus: Count::default(),
        shards: Count::default(),
        running: history.running,
        unreadable_lines: history.unreadable,
        types: Vec::new(),
        unknown: Unknowns::default(),
        saved_gpu_hours: 0.0,
    };
    let mut types: BTreeMap<String, Tally> = BTreeMap::new();
    for job in jobs {
        let hours = job.hours() * f64::from(job.gpus.whole.max(1));
        let kind = catalogue.kind(job).map(str::to_string);
        let fit = match (job.gpus.shards, job.gpus.whole) {
            (1.., _) => {
                let part = kind
                    .ok()
                    .and_then(|kind| catalogue.gpu(&kind))
                    .map_or(1.0, |gpu| {
                        f64::from(job.gpus.shards) / f64::from(gpu.shards_per_gpu())
                    });
                advice.all.add(job.hours() * part);
                advice.shards.add(job.hours() * part);
                continue;
            }
            (_, 1) => {
                advice.one_gpu.add(hours);
                catalogue.fit(job)
            }
            _ => {
                advice.several_gpus.add(hours);
                Fit::Whole
            }
        };
        advice.all.add(hours);
        if let Ok(kind) = kind {
            types.entry(kind).or_default().add(job, hours, &fit);
        }
        if let Fit::Unknown(unknown) = fit {
            let unknowns = &mut advice.unknown;
            let count = match unknown {
                Unknown::Type => &mut unknowns.no_type,
                Unknown::OtherType => &mut unknowns.other_type,
                Unknown::Memory => &mut unknowns.no_memory,
                Unknown::Utilization => &mut unknowns.no_utilization,
            };
            count.add(hours);
        }
    }
    for (kind, tally) in types {
        let replay = tally.replay(catalogue, &kind, gpus.get(&kind).copied());
        let of_slice = |(size, (limits, held)): (u32, (Limits, Count))| OfSlice {
            slice: format!("{kind}.{size}"),
            memory_mib: limits.memory_mib(),
            held,
            saved_gpu_hours: held.gpu_hours * (1.0 - limits.share().fraction()),
        };
        // The smallest slice first.
        let slices: Vec<OfSlice> = tally.slices.into_iter().rev().map(of_slice).collect();
        advice.saved_gpu_hours += slices.iter().map(|row| row.saved_gpu_hours).sum::<f64>();
        advice.types.push(OfType {
            r#type: kind.clone(),
            slices,
            whole: tally.whole,
            refused: tally.refused,
            replay,
        });
    }
    advice
}

/// The jobs of a type.
#[derive(Default)]
struct Tally {
    slices: BTreeMap<u32, (Limits, Count)>,
    whole: Count,
    refused: Count,
    /// Each job, and the shards that would have held it.
    jobs: Vec<(Queued, Option<u32>)>,
}

/// The part of a job that the replay takes.
#[derive(Clone, Copy)]
struct Queued {
    eligible: i64,
    start: i64,
    end: i64,
    gpus: u32,
}

impl Tally {
    fn add(&mut self, job: &Job, hours: f64, fit: &Fit) {
        let mut shards = None;
        match fit {
            Fit::Slice(size, limits) => {
                let (_, count) = self
                    .slices
                    .entry(*size)
                    .or_insert((*limits, Count::default()));
                count.add(hours);
                shards = Some(limits.share().shards());
            }
            Fit::Whole if job.gpus.whole == 1 => self.whole.add(hours),
            Fit::Refused => self.refused.add(hours),
            Fit::Whole | Fit::Unknown(_) => {}
        }
        let queued = Queued {
            eligible: job.eligible,
            start: job.start,
            end: job.end,
            gpus: job.gpus.whole,
        };
        self.jobs.push((queued, shards));
    }

    fn replay(&self, catalogue: &Catalogue, kind: &str, gpus: Option<u32>) -> Option<Replayed> {
        let shards = catalogue.gpu(kind)?.shards_per_gpu();
        let (gpus, from) = match (gpus, catalogue.inventory(kind)) {
            (Some(gpus), _) => (gpus, "option"),
            (None, 0) => (self.most_at_once(), "history"),
            (None, gpus) => (gpus, "policy"),
        };
        let gpus = gpus.min(MOST_GPUS);
        let mut jobs: Vec<&(Queued, Option<u32>)> = self.jobs.iter().collect();
        jobs.retain(|(job, _)| job.gpus <= gpus);
        jobs.sort_by_key(|(job, _)| (job.eligible, job.start));
        let hours = |need: fn(&(Queued, Option<u32>)) -> Need| {
            let jobs = jobs.iter().map(|&one| replay::Job {
                eligible: one.0.eligible,
                takes: one.0.end - one.0.start,
                need: need(one),
            });
            let waits = replay::waits(gpus, shards, &jobs.collect::<Vec<_>>());
            waits
                .into_iter()
                .flatten()
                .map(|wait| wait as f64)
                .sum::<f64>()
                / 3600.0
        };
        let recorded = jobs
            .iter()
            .map(|(job, _)| (job.start - job.eligible) as f64);
        Some(Replayed {
            gpus,
            gpus_from: from,
            jobs: jobs.len() as u64,
            left_out: (self.jobs.len() - jobs.len()) as u64,
            recorded_hours: recorded.sum::<f64>() / 3600.0,
            whole_gpus_hours: hours(|(job, _)| Need::Gpus(job.gpus)),
            slices_hours: hours(|(job, shards)| match shards {
                Some(shards) => Need::Shards(*shards),
                None => Need::Gpus(job.gpus),
            }),
        })
    }

    /// The most GPUs that these jobs had at once.
    fn most_at_once(&self) -> u32 {
        let both = self.jobs.iter().flat_map(|(job, _)| {
            let gpus = i64::from(job.gpus);
            [(job.start, gpus), (job.end, -gpus)]
        });
        let mut changes: Vec<(i64, i64)> = both.collect();
        // A job that ends at a moment leaves its place to one that begins then.
        changes.sort_unstable();
        let mut now = 0;
        let held = changes.iter().map(|&(_, change)| {
            now += change;
            now
        });
        held.max()
            .and_then(|most| u32::try_from(most).ok())
            .unwrap_or(0)
    }
}
