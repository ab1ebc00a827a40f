//! The events of jobs that run: their first GPU time, refused memory, memory that is nearly used up, work that something else kept
//! off the GPU, memory of theirs that others hold, and GPUs that they leave unused.

use crate::measure::table::mib;
use softmig_node::events::Event;
use softmig_usage as usage;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tracing::warn;

/// That a job's memory is almost full is told of again when it held less than this part of it in between.
const FAR: f64 = 0.8;
/// Refusals of a job on a GPU, its interruptions, and that its memory is nearly used up, are told of no more often.
const SILENCE: Duration = Duration::from_secs(60);
/// The precision of a job's beginning in what an earlier monitor wrote.
const SAME: f64 = 0.001;

/// The events that were told of the jobs that are here.
#[derive(Debug, Default)]
pub struct Notices {
    known: BTreeMap<(u32, String), Known>,
    /// False for the first sample without the figures of an earlier monitor: what was before is not new.
    has_looked: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// The run of the job that it is about.
    since: f64,
    has_started: bool,
    is_nearly_full: bool,
    is_idle: bool,
    refused: u64,
    interruptions: u64,
    told_interruptions: Option<Instant>,
    told_refused: Option<Instant>,
    told_full: Option<Instant>,
    told_setting: bool,
    is_missing: bool,
    told_missing: bool,
}

impl Notices {
    /// After an earlier monitor, which told of all that is in its last figures.
    pub fn new(saved: &usage::Node) -> Self {
        let each = |job: &usage::Job, gpu: &usage::JobGpu| {
            let key = (job.job, gpu.uuid.clone());
            (key, Known::told(job, gpu))
        };
        let jobs = saved.jobs.iter();
        Self {
            known: jobs
                .flat_map(|job| job.gpus.iter().map(move |gpu| each(job, gpu)))
                .collect(),
            has_looked: saved.schema_version > 0,
        }
    }

    /// The events that are new in these figures.
    pub fn new_events(&mut self, node: &usage::Node, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let mut here = BTreeSet::new();
        let is_new = self.has_looked;
        for job in &node.jobs {
            for gpu in &job.gpus {
                let key = (job.job, gpu.uuid.clone());
                let first = || {
                    if is_new {
                        Known::new(job)
                    } else {
                        // How much of its memory it holds is about now.
                        Known {
                            is_nearly_full: false,
                            ..Known::told(job, gpu)
                        }
                    }
                };
                let known = self.known.entry(key.clone()).or_insert_with(first);
                if (known.since - job.since).abs() > SAME {
                    *known = Known::new(job);
                }
                here.insert(key);
                let event = |kind: &str| Event {
                    job: Some(job.job),
                    uid: Some(job.uid),
                    user: job.user.clone(),
                    account: job.account.clone(),
                    gpu: Some(gpu.uuid.clone()),
                    ..Event::new(kind)
                };
                let shared = node.gpus.iter().find(|it| it.uuid == gpu.uuid);
                if let Some(shared) = shared {
                    events.extend(known.note_setting(job, shared, event));
                    events.extend(known.note_missing(job, shared, event));
                }
                let others = || others(node, job, gpu);
                events.extend(known.compare(job, gpu, others, now, event));
            }
        }
        self.has_looked |= node.error.is_none();
        // Where confs could not be read, no job is known to be over.
        if node.error.is_none() || !node.jobs.is_empty() {
            self.known.retain(|key, _| here.contains(key));
        }
        events
    }
}

impl Known {
    /// Nothing was told yet.
    fn new(job: &usage::Job) -> Self {
        Self {
            since: job.since,
            ..Self::default()
        }
    }

    /// All of it was told.
    fn told(job: &usage::Job, gpu: &usage::JobGpu) -> Self {
        Self {
            has_started: is_used(gpu),
            is_nearly_full: job.is_nearly_full(gpu),
            is_idle: job.is_idle(gpu),
            refused: gpu.refused,
            interruptions: gpu.interruptions,
            told_setting: true,
            told_missing: true,
            ..Self::new(job)
        }
    }

    /// The GPU has a setting that keeps the job from sharing it.
    fn note_setting(
        &mut self,
        job: &usage::Job,
        gpu: &usage::GpuUsage,
        event: impl Fn(&str) -> Event,
    ) -> Option<Event> {
        let setting = gpu.setting.as_ref().filter(|_| job.slice.is_some());
        let was_told = std::mem::replace(&mut self.told_setting, setting.is_some());
        let setting = setting.filter(|_| !was_told)?;
        let (job, uuid, index) = (job.job, &gpu.uuid, gpu.index);
        warn!(
            job,
            "job={job} cannot share {uuid}: {setting}; type: nvidia-smi -i {index} -c DEFAULT"
        );
        Some(event("setting").with("setting", setting.as_str()))
    }

    /// Others hold memory of the job's slice. The memory of a process that has just ended may do so once.
    fn note_missing(
        &mut self,
        job: &usage::Job,
        gpu: &usage::GpuUsage,
        event: impl Fn(&str) -> Event,
    ) -> Option<Event> {
        let is_missing = gpu.missing_bytes > 0 && job.slice.is_some();
        let is_again = std::mem::replace(&mut self.is_missing, is_missing) && is_missing;
        self.told_missing &= is_missing;
        if !is_again || std::mem::replace(&mut self.told_missing, true) {
            return None;
        }
        let (job, uuid, mib) = (job.job, &gpu.uuid, mib(gpu.missing_bytes));
        warn!(
            job,
            "job={job} cannot have all memory of its slice on {uuid}: others hold {mib} MiB of it; 'softmig monitor' shows who"
        );
        Some(event("missing").with("missing_bytes", gpu.missing_bytes))
    }

    fn compare(
        &mut self,
        job: &usage::Job,
        gpu: &usage::JobGpu,
        others: impl FnOnce() -> Vec<u32>,
        now: Instant,
        event: impl Fn(&str) -> Event,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if is_used(gpu) && !std::mem::replace(&mut self.has_started, true) {
            events.push(event("start").with("processes", gpu.processes));
        }
        let is_due = |told: Option<Instant>| {
            told.is_none_or(|told| now.saturating_duration_since(told) >= SILENCE)
        };
        if gpu.refused > self.refused && is_due(self.told_refused) {
            let new = gpu.refused - self.refused;
            let refusal = event("refusal").with("refused", new);
            events.push(refusal.with("refused_largest_bytes", gpu.refused_largest_bytes));
            (self.refused, self.told_refused) = (gpu.refused, Some(now));
        }
        if gpu.interruptions > self.interruptions && is_due(self.told_interruptions) {
            let new = gpu.interruptions - self.interruptions;
            let interruption = event("interruption").with("interruptions", new);
            events.push(interruption.with("others", others()));
            (self.interruptions, self.told_interruptions) = (gpu.interruptions, Some(now));
        }
        if let Some(part) = job.memory_part(gpu) {
            if job.is_nearly_full(gpu) && !self.is_nearly_full && is_due(self.told_full) {
                (self.is_nearly_full, self.told_full) = (true, Some(now));
                let nearly = event("memory").with("memory_bytes", gpu.memory_bytes);
                let limit = job.slice.as_ref().map(|slice| slice.memory_bytes);
                events.push(nearly.with("limit_bytes", limit));
            }
            self.is_nearly_full &= part > FAR;
        }
        let is_idle = job.is_idle(gpu);
        if is_idle && !self.is_idle {
            let idle = event("idle").with("idle_seconds", gpu.idle_seconds);
            events.push(idle.with("idle_after_seconds", job.idle_after_seconds));
        }
        self.is_idle = is_idle;
        events
    }
}

/// The other jobs with processes on this GPU.
fn others(node: &usage::Node, job: &usage::Job, gpu: &usage::JobGpu) -> Vec<u32> {
    let is_there = |other: &&usage::Job| {
        other
            .gpus
            .iter()
            .any(|it| it.uuid == gpu.uuid && is_here(it))
    };
    let others = node.jobs.iter().filter(|other| other.job != job.job);
    others.filter(is_there).map(|other| other.job).collect()
}

fn is_here(gpu: &usage::JobGpu) -> bool {
    gpu.processes > 0 || !gpu.seats.is_empty()
}

fn is_used(gpu: &usage::JobGpu) -> bool {
    gpu.charged_seconds > 0.0 || gpu.processes > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(charged: f64, held: u64, refused: u64) -> usage::Node {
        let gpu = usage::JobGpu {
            uuid: "GPU-1".into(),
            memory_bytes: Some(held),
            charged_seconds: charged,
            refused,
            refused_largest_bytes: 70,
            ..usage::JobGpu::default()
        };
        let slice = usage::Slice {
            memory_bytes: 100,
            ..usage::Slice::default()
        };
        let job = usage::Job {
            job: 7,
            slice: Some(slice),
            gpus: vec![gpu],
            ..usage::Job::default()
        };
        usage::Node {
            jobs: vec![job],
            ..usage::Node::default()
        }
    }

    fn kinds(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.event.as_str()).collect()
    }

    #[test]
    fn what_begins_is_told_once() {
        let mut notices = Notices::default();
        let now = Instant::now();
        let mut told =
            |charged, held, refused| notices.new_events(&node(charged, held, refused), now);
        assert_eq!(told(0.0, 0, 0), []);
        assert_eq!(kinds(&told(0.1, 10, 0)), ["start"]);
        assert_eq!(kinds(&told(0.2, 91, 0)), ["memory"]);
        assert_eq!(told(0.3, 85, 0), []);
        assert_eq!(told(0.3, 95, 0), [], "it was not far from it");
        assert_eq!(told(0.3, 50, 0), []);
        assert_eq!(told(0.3, 99, 0), [], "it was told of a moment ago");
        let refusal = told(0.3, 99, 2);
        assert_eq!(kinds(&refusal), ["refusal"]);
        assert_eq!(refusal[0].details["refused"], 2);
        assert_eq!(refusal[0].job, Some(7));
    }

    #[test]
    fn missing_memory_is_told_once_it_is_seen_twice() {
        let mut notices = Notices::default();
        let now = Instant::now();
        let mut told = |missing_bytes| {
            let mut node = node(0.0, 0, 0);
            let uuid = node.jobs[0].gpus[0].uuid.clone();
            node.gpus = vec![usage::GpuUsage {
                uuid,
                missing_bytes,
                ..usage::GpuUsage::default()
            }];
            let events = notices.new_events(&node, now);
            events
                .iter()
                .map(|event| event.event.clone())
                .collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        for _ in 0..2 {
            assert_eq!(told(0), none);
            assert_eq!(told(9), none);
            assert_eq!(told(9), ["missing"]);
            assert_eq!(told(9), none);
        }
    }

    #[test]
    fn interruptions_are_told_once_a_minute_with_the_jobs_that_were_there() {
        let mut notices = Notices::default();
        let start = Instant::now();
        let mut told = |interruptions, second| {
            let mut node = node(1.0, 0, 0);
            node.jobs[0].gpus[0].interruptions = interruptions;
            let other = usage::Job {
                job: 8,
                gpus: vec![usage::JobGpu {
                    processes: 1,
                    ..node.jobs[0].gpus[0].clone()
                }],
                ..usage::Job::default()
            };
            let elsewhere = usage::Job {
                job: 9,
                gpus: vec![usage::JobGpu {
                    uuid: "GPU-2".into(),
                    ..other.gpus[0].clone()
                }],
                ..usage::Job::default()
            };
            node.jobs.extend([other, elsewhere]);
            node.jobs[1].gpus[0].interruptions = 0;
            node.jobs[2].gpus[0].interruptions = 0;
            let events = notices.new_events(&node, start + Duration::from_secs(second));
            let mut own = events
                .into_iter()
                .filter(|event| event.event == "interruption");
            own.next().map(|event| event.details)
        };
        assert_eq!(told(0, 0), None);
        let first = told(3, 1).unwrap();
        assert_eq!(
            (&first["interruptions"], &first["others"]),
            (&3.into(), &vec![8].into())
        );
        assert_eq!(told(5, 30), None);
        assert_eq!(told(5, 62).unwrap()["interruptions"], 2);
    }

    #[test]
    fn an_idle_gpu_is_told_of_once_until_it_is_used_again() {
        let mut notices = Notices::default();
        let now = Instant::now();
        let idle = |seconds: f64, after: Option<f64>| {
            let mut node = node(1.0, 0, 0);
            node.jobs[0].idle_after_seconds = after;
            node.jobs[0].gpus[0].idle_seconds = seconds;
            node
        };
        // An earlier monitor told of this one.
        assert_eq!(notices.new_events(&idle(70.0, Some(60.0)), now), []);
        assert_eq!(notices.new_events(&idle(1.0, Some(60.0)), now), []);
        let told = notices.new_events(&idle(60.0, Some(60.0)), now);
        assert_eq!(kinds(&told), ["idle"]);
        assert_eq!(told[0].details["idle_after_seconds"], 60.0);
        assert_eq!(notices.new_events(&idle(61.0, Some(60.0)), now), []);
        assert_eq!(notices.new_events(&idle(0.0, Some(60.0)), now), []);
        assert_eq!(notices.new_events(&idle(9e9, None), now), []);
        assert_eq!(
            kinds(&notices.new_events(&idle(90.0, Some(60.0)), now)),
            ["idle"]
        );
    }

    #[test]
    fn refusals_are_told_once_a_minute_with_all_that_came_meanwhile() {
        let mut notices = Notices::default();
        let start = Instant::now();
        notices.new_events(&node(1.0, 0, 0), start);
        let mut told = Vec::new();
        for second in 1..130_u64 {
            let now = start + Duration::from_secs(second);
            for event in notices.new_events(&node(1.0, 0, second), now) {
                told.push((second, event.details["refused"].as_u64().unwrap()));
            }
        }
        assert_eq!(told, [(1, 1), (61, 60), (121, 60)]);
    }

    #[test]
    fn what_an_earlier_monitor_told_is_not_told_again() {
        let mut notices = Notices::default();
        assert_eq!(notices.new_events(&node(9.0, 10, 5), Instant::now()), []);
        // But a job that came while this one runs is new.
        assert_eq!(
            notices.new_events(&usage::Node::default(), Instant::now()),
            []
        );
        let told = notices.new_events(&node(0.5, 10, 1), Instant::now());
        assert_eq!(kinds(&told), ["start", "refusal"]);
    }

    #[test]
    fn what_happened_while_no_monitor_ran_is_told_by_the_next() {
        let saved = |node: usage::Node| usage::Node {
            schema_version: usage::VERSION,
            ..node
        };
        let now = Instant::now();
        let told = |before: &usage::Node, after: &usage::Node| {
            let told = Notices::new(before).new_events(after, now);
            told.into_iter()
                .map(|event| (event.event.clone(), event.details.get("refused").cloned()))
                .collect::<Vec<_>>()
        };
        let [before, after] = [node(1.0, 50, 2), node(2.0, 95, 5)].map(saved);
        let expected = [
            ("refusal".to_string(), Some(3.into())),
            ("memory".to_string(), None),
        ];
        assert_eq!(told(&before, &after), expected);
        assert_eq!(told(&after, &after), []);
        // Nor after a look at which nothing could be read.
        let mut notices = Notices::new(&after);
        let blind = usage::Node {
            error: Some("no".into()),
            ..usage::Node::default()
        };
        assert_eq!(notices.new_events(&blind, now), []);
        assert_eq!(notices.new_events(&after, now), []);
        // The job came meanwhile, or Slurm started it anew.
        let all = ["start", "refusal", "memory"];
        let kinds = |told: Vec<(String, _)>| told.into_iter().map(|(kind, _)| kind);
        let none = saved(usage::Node::default());
        assert!(kinds(told(&none, &after)).eq(all));
        let mut anew = after.clone();
        anew.jobs[0].since = 9.0;
        assert!(kinds(told(&after, &anew)).eq(all));
    }
}
