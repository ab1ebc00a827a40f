//! The daemon's watch: measures again and again while jobs with limits are here, tells of jobs that have more, and has
//! [`crate::enforce`] end what is to be ended.
//!
//! A process that has just died is still in NVML's list when its successor has its memory already. So what is seen
//! once is looked at again a moment later, and only then told: at once the first time, then at most once a minute.

#![forbid(unsafe_code)]

mod settings;
pub mod textfile;

use crate::arbiter::{self, Arbiter, Seats, Unseated};
use crate::enforce::enforcer::{Enforcer, Probe, SECOND_SAMPLE};
use crate::enforce::evidence::Places;
use crate::enforce::tally::Tally;
use crate::jobs::confs::Confs;
use crate::measure::report::{Finding, Job, JobGpu, Report};
use crate::measure::table::{mib, pids};
use crate::measure::{Measure, Sample};
use crate::usage;
use rustix::rand::GetRandomFlags;
use settings::Settings;
use softmig_node::node::Node;
use softmig_policy::config::monitor::Monitor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use textfile::Textfile;
use tracing::{info, warn};

/// How long nothing more is said of a job.
const SILENCE: Duration = Duration::from_secs(60);

/// An arbiter that takes longer to answer may keep processes from their seats.
const PATIENCE: Duration = Duration::from_millis(100);

/// No look comes later than after so many times the interval.
const LONGEST: f64 = 3.0;

/// How often the settings are read, also where a sample is taken seldom.
const SETTINGS_EVERY: Duration = Duration::from_secs(1);

/// Watches a node.
#[derive(Debug)]
pub struct Watch {
    node: Node,
    probe: NodeProbe,
    settings: Settings,
    /// When the next sample is due, by the settings of the last one.
    due: Option<(Instant, Monitor)>,
    enforcer: Enforcer,
    tally: Arc<Tally>,
    memory: Memory,
    /// Whether there were jobs with limits in the last sample.
    is_watching: bool,
    /// The last trouble, so that it is said once.
    trouble: Option<String>,
    usage: usage::Keeper,
    /// Where the usage is told.
    shared: Arc<usage::Shared>,
    textfile: Textfile,
}

/// Where it looks from.
#[derive(Debug)]
struct NodeProbe {
    node: Node,
    measure: Measure,
    /// Its end does not wait for this thread.
    arbiter: Weak<Arbiter>,
}

impl Probe for NodeProbe {
    fn sample(&mut self, again: bool) -> (Sample, Seats) {
        let arbiter = &self.arbiter;
        let seats = || arbiter.upgrade().map(|arbiter| arbiter.seats());
        let (sample, seats) = self.measure.sample(!again, seats);
        // Without an arbiter no process can ask: it does not answer either.
        (sample, seats.unwrap_or_default())
    }

    fn arbiter_answers(&mut self) -> bool {
        arbiter::check(&self.node.arbiter_socket(), PATIENCE).is_ok()
    }

    fn report_unseated(&mut self, unseated: BTreeMap<String, BTreeMap<u32, Unseated>>) {
        if let Some(arbiter) = self.arbiter.upgrade() {
            arbiter.set_unseated(unseated);
        }
    }
}

impl Watch {
    /// A watch of this node, which counts there what was ended.
    pub fn new(
        node: Node,
        arbiter: Weak<Arbiter>,
        tally: Arc<Tally>,
        shared: Arc<usage::Shared>,
    ) -> Self {
        Self {
            probe: NodeProbe {
                node: node.clone(),
                measure: Measure::new(node.clone()),
                arbiter,
            },
            settings: Settings::default(),
            due: None,
            enforcer: Enforcer::new(node.clone(), Places::of_this_machine(), Arc::clone(&tally)),
            tally,
            usage: usage::Keeper::new(node.clone()),
            shared,
            textfile: Textfile::default(),
            node,
            memory: Memory::default(),
            is_watching: false,
            trouble: None,
        }
    }

    /// Looks if that is due or the settings are others, and says how long to wait for the next time.
    pub fn round(&mut self) -> Duration {
        let settings = self.settings.read_policy(&self.node);
        let is_early = |(due, by): &(Instant, Monitor)| *by == settings && Instant::now() < *due;
        let due = match self.due.filter(is_early) {
            Some((due, _)) => due,
            None => {
                let wait = self.look(&settings);
                Instant::now() + wait
            }
        };
        self.due = Some((due, settings));
        due.saturating_duration_since(Instant::now())
            .min(SETTINGS_EVERY)
    }

    /// Looks once, and says in how long it is to look again.
    fn look(&mut self, settings: &Monitor) -> Duration {
        let interval = until_next(settings.interval);
        if !self.is_watching {
            match Confs::read(&self.node) {
                Ok(confs) if confs.has_limits() => self.is_watching = true,
                Ok(confs) => {
                    self.tell(&Sample {
                        confs,
                        ..Sample::default()
                    });
                    return interval;
                }
                Err(error) => {
                    self.report(Some(error.to_string()));
                    return interval;
                }
            }
        }
        let seen = self.probe.sample(false);
        self.tell(&seen.0);
        let report = &seen.0.report;
        let is_seen = report.error.is_none();
        // Where the confs could not be read, no job has any.
        if is_seen && !seen.0.confs.has_limits() {
            self.rest();
            return interval;
        }
        self.report(trouble(report));
        let (lines, is_in_doubt) = if is_seen {
            self.memory.compare(report, Instant::now())
        } else {
            (Vec::new(), false)
        };
        for line in lines {
            match line {
                Line::Wrong(job, text) => warn!(job, "{text}"),
                Line::Right(job, text) => info!(job, "{text}"),
            }
        }
        let soon = self.enforcer.act(settings, &seen, &mut self.probe);
        let second = is_in_doubt.then_some(SECOND_SAMPLE);
        soon.into_iter()
            .chain(second)
            .min()
            .map_or(interval, |soon| soon.min(interval))
    }

    /// Tells the usage, as of now.
    fn tell(&mut self, sample: &Sample) {
        let arbiter = self.probe.arbiter.upgrade();
        let policy = self.settings.policy.as_ref();
        (self.usage).note(
            sample,
            arbiter.as_deref(),
            &self.tally,
            policy,
            &self.shared,
        );
        let path = self.settings.textfile.as_deref();
        let told = || self.shared.told();
        self.textfile.keep(path, self.node.owner, told);
    }

    /// There is nothing to look at.
    fn rest(&mut self) {
        self.is_watching = false;
        self.probe.measure.rest();
        self.enforcer.rest(&mut self.probe);
        self.memory = Memory::default();
        self.trouble = None;
    }

    /// Says what keeps it from measuring, once.
    fn report(&mut self, trouble: Option<String>) {
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => warn!("jobs are not measured from outside: {trouble}"),
                None => info!("jobs are measured from outside again"),
            }
        }
        self.trouble = trouble;
    }
}

/// A random time, whose mean is nearly the interval. Who knows when a look was, from a file's time, knows nothing of the next one: at any
/// moment it is equally likely (the times between them are distributed exponentially).
fn until_next(interval: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Before Linux has gathered enough to be random, looks are regular.
    if rustix::rand::getrandom(&mut bytes, GetRandomFlags::NONBLOCK) != Ok(bytes.len()) {
        return interval;
    }
    let chance = (f64::from(u32::from_le_bytes(bytes)) + 1.0) / (f64::from(u32::MAX) + 1.0);
    interval.mul_f64((-chance.ln()).min(LONGEST))
}

/// The trouble that kept a report from being whole.
fn trouble(report: &Report) -> Option<String> {
    let of_gpu = |gpu: &crate::measure::report::GpuReport| {
        let error = gpu.error.as_ref()?;
        Some(format!("GPU {}: {error}", gpu.index))
    };
    let of_gpus = || report.gpus.iter().find_map(of_gpu);
    report.error.clone().or_else(of_gpus)
}

/// A line to say.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A job has what it may not have.
    Wrong(Option<u32>, String),
    /// It does so no more.
    Right(Option<u32>, String),
}

/// A job, by its number or its SLUID.
type Name = (Option<u32>, Option<String>);

/// The findings of before.
#[derive(Debug, Default)]
struct Memory {
    /// In the last report: which job on which GPU.
    seen: BTreeSet<(Name, Option<String>)>,
    /// When each job was last spoken of.
    said: BTreeMap<Name, Instant>,
}

impl Memory {
    /// The lines for a report, and whether something in it has to be seen a second time.
    fn compare(&mut self, report: &Report, now: Instant) -> (Vec<Line>, bool) {
        let mut lines = Vec::new();
        let mut seen = BTreeSet::new();
        let mut told = BTreeSet::new();
        let mut doubt = false;
        for (job, gpu, finding) in report.findings() {
            let name = (job.job, job.sluid.clone());
            let key = (name.clone(), gpu.holding.uuid.clone());
            let again = self.seen.contains(&key);
            seen.insert(key);
            doubt |= !again;
            let due = |then: &Instant| now.saturating_duration_since(*then) >= SILENCE;
            // Noted below: all GPUs of a job are spoken of together.
            let may_say = self.said.get(&name).is_none_or(due);
            if again && may_say {
                lines.push(Line::Wrong(job.job, line(job, gpu, finding)));
                told.insert(name);
            }
        }
        self.seen = seen;
        self.said.extend(told.into_iter().map(|name| (name, now)));
        let wrong: BTreeSet<&Name> = self.seen.iter().map(|(name, _)| name).collect();
        self.said.retain(|name, _| {
            let still = wrong.contains(name);
            if !still {
                let text = format!("{} has no more than it may have", of_job(name));
                lines.push(Line::Right(name.0, text));
            }
            still
        });
        (lines, doubt)
    }
}

fn of_job((id, sluid): &Name) -> String {
    match (id, sluid) {
        (Some(id), _) => format!("job={id}"),
        (None, sluid) => format!("sluid={}", sluid.as_deref().unwrap_or("?")),
    }
}

/// One job on one GPU.
fn line(job: &Job, gpu: &JobGpu, finding: Finding) -> String {
    let mut line = of_job(&(job.job, job.sluid.clone()));
    if let Some(uid) = job.uid {
        line += &format!(" uid={uid}");
    }
    let holding = &gpu.holding;
    if let Some(index) = holding.index {
        line += &format!(" gpu={index}");
    }
    if let Some(uuid) = &holding.uuid {
        line += &format!(" uuid={uuid}");
    }
    if let Some(bytes) = holding.memory_bytes {
        line += &format!(" memory_mib={}", mib(bytes));
    }
    if let Some(bytes) = gpu.limit_bytes {
        line += &format!(" limit_mib={}", mib(bytes));
    }
    let what = match finding {
        Finding::OverLimit => "more memory than its slice",
        Finding::NotItsGpu => "a GPU that is not the job's",
        Finding::NoConf => "a job without limits of its own on a GPU",
    };
    line + &format!(" pids={}: {what}", pids(&holding.pids).replace(' ', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::report::{Conf, Holding};

    /// A job with these bytes beyond its limit on each of its GPUs.
    fn job(id: u32, excess: &[u64]) -> Job {
        let gpus = excess.iter().zip(0..).map(|(&excess, index)| JobGpu {
            holding: Holding {
                index: Some(index),
                uuid: Some(format!("GPU-{index}")),
                memory_bytes: Some((100 + excess) << 20),
                unmeasured: 0,
                pids: vec![11, 12],
            },
            assigned: Some(true),
            limit_bytes: Some(100 << 20),
            excess_bytes: Some(excess << 20),
            finding: (excess > 0).then_some(Finding::OverLimit),
        });
        Job {
            job: Some(id),
            sluid: None,
            uid: Some(2001),
            conf: Conf::Slice,
            conf_error: None,
            slice: None,
            gpus: gpus.collect(),
        }
    }

    fn report(jobs: Vec<Job>) -> Report {
        Report {
            jobs,
            ..Report::default()
        }
    }

    fn wrong(lines: &[Line]) -> Vec<u32> {
        let wrong = |line: &Line| match line {
            Line::Wrong(job, _) => *job,
            Line::Right(..) => None,
        };
        lines.iter().filter_map(wrong).collect()
    }

    #[test]
    fn looks_come_at_times_that_no_process_knows() {
        let second = Duration::from_secs(1);
        let times: Vec<_> = (0..10_000).map(|_| until_next(second)).collect();
        let sum: Duration = times.iter().sum();
        assert!((9_000..10_000).contains(&sum.as_secs()), "{sum:?}");
        // Of those that have not come by then, a tenth comes in the next tenth of a second.
        for past in [0.0, 0.5, 1.5] {
            let later = |by: f64| {
                times
                    .iter()
                    .filter(|it| it.as_secs_f64() > past + by)
                    .count()
            };
            let part = later(0.1) as f64 / later(0.0) as f64;
            assert!((0.87..0.94).contains(&part), "{past}: {part}");
        }
    }

    #[test]
    fn what_is_seen_once_is_looked_at_again_before_it_is_told() {
        let mut memory = Memory::default();
        let now = Instant::now();
        assert_eq!(
            memory.compare(&report(vec![job(7, &[1])]), now),
            (vec![], true)
        );
        assert_eq!(
            memory.compare(&report(vec![job(7, &[0])]), now),
            (vec![], false)
        );
        assert_eq!(
            memory.compare(&report(vec![job(7, &[1])]), now),
            (vec![], true)
        );
        let (lines, doubt) = memory.compare(&report(vec![job(7, &[1])]), now);
        let text = "job=7 uid=2001 gpu=0 uuid=GPU-0 memory_mib=101 limit_mib=100 pids=11,12: more memory than its slice";
        assert_eq!(lines, [Line::Wrong(Some(7), text.into())]);
        assert!(!doubt);
    }

    #[test]
    fn a_job_is_told_of_at_most_once_a_minute() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let mut told = Vec::new();
        for second in 0..130 {
            let now = start + Duration::from_secs(second);
            let mut jobs = vec![job(7, &[1])];
            if second >= 30 {
                jobs.push(job(8, &[1]));
            }
            let (lines, _) = memory.compare(&report(jobs), now);
            told.extend(wrong(&lines).into_iter().map(|job| (second, job)));
        }
        assert_eq!(told, [(1, 7), (31, 8), (61, 7), (91, 8), (121, 7)]);
    }

    #[test]
    fn all_gpus_of_a_job_are_told_of_together() {
        let mut memory = Memory::default();
        let now = Instant::now();
        let two = || report(vec![job(7, &[1, 2])]);
        memory.compare(&two(), now);
        assert_eq!(wrong(&memory.compare(&two(), now).0), [7, 7]);
        assert_eq!(wrong(&memory.compare(&two(), now).0), [] as [u32; 0]);
    }

    #[test]
    fn the_end_of_it_is_told_and_the_next_time_is_news() {
        let mut memory = Memory::default();
        let now = Instant::now();
        for _ in 0..2 {
            memory.compare(&report(vec![job(7, &[1])]), now);
        }
        let (lines, _) = memory.compare(&report(vec![]), now);
        let text = "job=7 has no more than it may have";
        assert_eq!(lines, [Line::Right(Some(7), text.into())]);
        memory.compare(&report(vec![job(7, &[1])]), now);
        let (lines, _) = memory.compare(&report(vec![job(7, &[1])]), now);
        assert_eq!(wrong(&lines), [7]);
    }

    #[test]
    fn metrics_are_in_the_textfile_while_the_policy_names_one() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        std::fs::create_dir_all(&node.run).unwrap();
        std::fs::create_dir_all(node.policy.parent().unwrap()).unwrap();
        let textfile = folder.path().join("softmig.prom");
        let mut watch = Watch::new(node.clone(), Weak::new(), Arc::default(), Arc::default());
        let mut look = |interval: u32, metrics: &str| {
            let text = format!("[monitor]\ninterval_seconds = {interval}\n[metrics]\n{metrics}\n");
            std::fs::write(&node.policy, text).unwrap();
            watch.round();
            std::fs::read_to_string(&textfile).ok()
        };
        assert_eq!(look(60, ""), None);
        let named = format!("textfile = \"{}\"", textfile.display());
        let told = look(61, &named).unwrap();
        assert!(
            told.contains("\nsoftmig_measured_timestamp_seconds 1"),
            "{told}"
        );
        assert_eq!(look(62, ""), None);
    }

    #[test]
    fn other_settings_count_at_once_also_where_looks_are_seldom() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        let write = |interval: u32| {
            let text = format!("[monitor]\ninterval_seconds = {interval}\n");
            std::fs::create_dir_all(node.policy.parent().unwrap()).unwrap();
            std::fs::write(&node.policy, text).unwrap();
        };
        write(3600);
        std::fs::create_dir_all(&node.run).unwrap();
        let mut watch = Watch::new(node.clone(), Weak::new(), Arc::default(), Arc::default());
        assert!(watch.round() <= SETTINGS_EVERY);
        assert_eq!(watch.trouble, None);
        // The next sample finds a folder that is not to be trusted.
        std::fs::set_permissions(&node.run, std::fs::Permissions::from_mode(0o777)).unwrap();
        watch.round();
        assert_eq!(watch.trouble, None);
        write(60);
        watch.round();
        assert!(watch.trouble.is_some());
    }
}
