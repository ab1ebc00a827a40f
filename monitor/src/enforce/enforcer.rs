//! Observes, decides and acts: the one place where [`crate::enforce`] touches the node.

use crate::arbiter::{Seats, Unseated};
use crate::enforce::escalation::{Escalation, MOMENT, Step};
use crate::enforce::evidence::Places;
use crate::enforce::holders::{MOST_OF_A_SCAN, Scan, unattributed};
use crate::enforce::job_processes::{CGROUPS, JobProcesses};
use crate::enforce::message;
use crate::enforce::observation::{Holder, Observation, ProcessId, Unattributed};
use crate::enforce::rules::{Consequence, Evaluator, Rule, Violation};
use crate::enforce::snapshot::{Evidence, Snapshot, unseated};
use crate::enforce::tally::Tally;
use crate::enforce::target::Target;
use crate::gate::{PRELOAD, find_library};
use crate::jobs::confs::Confs;
use crate::jobs::log;
use crate::measure::Sample;
use crate::measure::table::mib;
use rustix::process::Signal;
use softmig_gate::Library;
use softmig_node::events::Event;
use softmig_node::node::Node;
use softmig_policy::config::monitor::{End, Monitor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long after a first sample the second is.
pub const SECOND_SAMPLE: Duration = Duration::from_millis(500);

/// How long a look at most searches processes for the library. A user can make that slow.
const LOOKING_FOR_THE_LIBRARY: Duration = Duration::from_millis(50);

/// How long nothing more is said of the same thing.
const SILENCE: Duration = Duration::from_secs(60);

/// The pause between two scans for processes that may keep memory in no process's figure.
const SCAN_EVERY: Duration = Duration::from_secs(10);

/// Access to the node: what the enforcer asks of it and tells it.
pub trait Probe {
    /// Measures, and asks the arbiter who has a seat. With `again` it is not asked how busy processes are.
    fn sample(&mut self, again: bool) -> (Sample, Seats);

    /// Whether the arbiter answers within a moment.
    fn arbiter_answers(&mut self) -> bool;

    /// Tells the arbiter which processes have no seat, by the GPU's UUID.
    fn report_unseated(&mut self, unseated: BTreeMap<String, BTreeMap<u32, Unseated>>);
}

/// Ends what is to be ended.
#[derive(Debug)]
pub struct Enforcer {
    node: Node,
    places: Places,
    proc: PathBuf,
    cgroups: PathBuf,
    preload: PathBuf,
    library: Arc<Library>,
    start: Instant,
    evaluator: Evaluator,
    escalation: Escalation,
    tally: Arc<Tally>,
    /// Processes that are counted among those that would have been ended.
    counted: BTreeSet<(Rule, ProcessId)>,
    /// When each thing was last spoken of.
    said: BTreeMap<(Rule, Holder, String), Duration>,
    /// The findings of the last observation.
    found: BTreeSet<(Rule, Holder, String)>,
    /// What jobs were told in their logs.
    told: BTreeSet<(Rule, u32, String)>,
    /// When it was said last that no process is judged by its seat.
    said_unjudged: Option<Duration>,
    scan: Scan,
    unattributed: Option<(Duration, Vec<Unattributed>)>,
}

impl Enforcer {
    /// One for this node, which counts there.
    pub fn new(node: Node, places: Places, tally: Arc<Tally>) -> Self {
        Self {
            node,
            places,
            proc: "/proc".into(),
            cgroups: Path::new(CGROUPS).into(),
            preload: PRELOAD.into(),
            library: Arc::default(),
            start: Instant::now(),
            evaluator: Evaluator::default(),
            escalation: Escalation::default(),
            tally,
            counted: BTreeSet::new(),
            said: BTreeMap::new(),
            found: BTreeSet::new(),
            told: BTreeSet::new(),
            said_unjudged: None,
            scan: Scan::default(),
            unattributed: None,
        }
    }

    /// Forgets what was seen: there is nothing to see. The escalation keeps its record.
    pub fn rest(&mut self, probe: &mut impl Probe) {
        probe.report_unseated(BTreeMap::new());
        self.evaluator = Evaluator::default();
        self.counted.clear();
        self.said.clear();
        self.found.clear();
        self.told.clear();
        self.unattributed = None;
    }

    /// Does what follows from what was seen. Says in how long something is to be looked at again, if it is sooner than usual.
    pub fn act(
        &mut self,
        settings: &Monitor,
        (sample, seats): &(Sample, Seats),
        probe: &mut impl Probe,
    ) -> Option<Duration> {
        let mut evidence = self.places.evidence(true);
        let settings = &settings_of_node(settings, &evidence);
        self.tally.set(settings.end);
        if sample.report.error.is_some() {
            // Work that is not seen is charged to no job.
            probe.report_unseated(BTreeMap::new());
            return None;
        }
        // At each observation, so that the one before an upgrade is known. `softmig check` tells of one that cannot be opened.
        let _ = find_library(&self.library, &self.preload);
        let unattributed = self.unattributed(sample);
        let mut observation = self.observe(sample, seats, &evidence, unattributed.clone());
        let is_unseated = observation
            .tenants
            .iter()
            .any(|it| it.unseated().next().is_some());
        if is_unseated && !probe.arbiter_answers() {
            evidence.arbiter_answers = false;
            self.say_that_none_is_judged();
            observation = self.observe(sample, seats, &evidence, unattributed);
        }
        probe.report_unseated(unseated(&observation, &sample.confs));
        let again = self.escalation.repeated(&observation);
        let evaluation = self.evaluator.evaluate(&observation, settings, &again);
        self.count(&evaluation.violations);
        let (ended, told): (Vec<_>, Vec<_>) = (evaluation.violations.into_iter()).partition(|it| {
            it.rule.consequence(settings) == Consequence::End && !it.processes.is_empty()
        });
        let enforces = evidence.enforced_since.is_some();
        self.tell(&told, settings, observation.at, enforces);
        let there: BTreeSet<ProcessId> = (observation.tenants.iter())
            .flat_map(|tenant| tenant.processes.iter().map(|process| process.id))
            .collect();
        self.counted.retain(|(_, id)| there.contains(id));
        let holders: BTreeSet<&Holder> = observation.tenants.iter().map(|it| &it.holder).collect();
        self.told
            .retain(|(_, job, _)| holders.contains(&Holder::Job(*job)));
        let steps = self.escalation.escalate(&observation, &ended);
        if !steps.is_empty() {
            self.take(&steps, &sample.confs, &evidence, probe);
        }
        if self.escalation.is_waiting() {
            return Some(MOMENT);
        }
        evaluation.is_in_doubt.then_some(SECOND_SAMPLE)
    }

    fn observe(
        &self,
        sample: &Sample,
        seats: &Seats,
        evidence: &Evidence,
        unattributed: Vec<Unattributed>,
    ) -> Observation {
        let snapshot = Snapshot {
            sample,
            seats,
            evidence,
            proc: &self.proc,
            library: &self.library,
            until: Instant::now() + LOOKING_FOR_THE_LIBRARY,
        };
        snapshot.observe(self.start.elapsed(), unattributed)
    }

    fn unattributed(&mut self, sample: &Sample) -> Vec<Unattributed> {
        let now = self.start.elapsed();
        let known = self
            .unattributed
            .take()
            .filter(|(at, _)| now.saturating_sub(*at) < SCAN_EVERY);
        let (at, found) = known.unwrap_or_else(|| {
            let found = unattributed(&self.proc, sample, &mut self.scan, MOST_OF_A_SCAN);
            // The pause begins where the scan ends.
            (self.start.elapsed(), found)
        });
        self.unattributed = Some((at, found.clone()));
        found
    }

    /// Says it once a minute, since a user can have caused it.
    fn say_that_none_is_judged(&mut self) {
        let now = self.start.elapsed();
        let is_due = |at: Duration| now.saturating_sub(at) >= SILENCE;
        if self.said_unjudged.is_none_or(is_due) {
            self.said_unjudged = Some(now);
            warn!("seats take longer than they may: no process is ended now for work without one");
        }
    }

    /// Counts what was not there at the last observation.
    fn count(&mut self, violations: &[Violation]) {
        let key = |it: &Violation| (it.rule, it.holder.clone(), it.gpu.clone());
        let found: BTreeSet<_> = violations.iter().map(key).collect();
        for (rule, ..) in found.difference(&self.found) {
            self.tally.found(*rule);
        }
        self.found = found;
    }

    /// Says what was found and is not ended.
    fn tell(
        &mut self,
        violations: &[Violation],
        settings: &Monitor,
        now: Duration,
        enforces: bool,
    ) {
        self.said.retain(|_, at| now.saturating_sub(*at) < SILENCE);
        for violation in violations {
            let would = violation.rule.consequence(settings) == Consequence::WouldEnd;
            let new = violation.processes.iter().map(|&id| (violation.rule, id));
            let new: Vec<_> = new
                .filter(|key| would && !self.counted.contains(key))
                .collect();
            self.tally.would_have_ended(violation.rule, new.len());
            self.counted.extend(new);
            let key = (
                violation.rule,
                violation.holder.clone(),
                violation.gpu.clone(),
            );
            if self.said.contains_key(&key) {
                continue;
            }
            self.said.insert(key, now);
            let consequence = match violation.rule.consequence(settings) {
                Consequence::None | Consequence::Report => "only logged".into(),
                _ if violation.processes.is_empty() => "none of these may be ended".into(),
                _ => {
                    let end = settings.end.as_str();
                    format!("would be ended, but [monitor] end = \"{end}\"")
                }
            };
            self.log(violation, &consequence);
            // Otherwise the library limits nobody.
            if enforces {
                self.tell_job(violation);
            }
        }
    }

    /// Says it once in a job's log, for its user. Who has it ended is told elsewhere.
    fn tell_job(&mut self, violation: &Violation) {
        // Those first whose end would put it right.
        let processes = violation.processes.iter().map(|id| id.pid);
        let pid = processes.chain(violation.pids.iter().copied()).next();
        let (Holder::Job(job), Some(pid)) = (&violation.holder, pid) else {
            return;
        };
        let is_past_library = matches!(violation.rule, Rule::Memory | Rule::Seat | Rule::Time);
        if is_past_library
            && self
                .told
                .insert((violation.rule, *job, violation.gpu.clone()))
        {
            let what = violation.rule.what();
            let sentence = format!(
                "{what}, on {}: softmig's library may not limit this program. Static programs, containers and software stacks with a \
                 loader of their own run without it; tell your administrator",
                violation.gpu
            );
            log::tell(&self.node, *job, pid, &sentence);
        }
    }

    /// Takes these steps: first the files of the processes, then the measurement again, then the signals.
    fn take(&self, steps: &[Step], confs: &Confs, evidence: &Evidence, probe: &mut impl Probe) {
        let targets: Vec<Vec<Target>> = (steps.iter())
            .map(|step| self.targets(step.violation(), confs, evidence))
            .collect();
        let (sample, seats) = probe.sample(true);
        let observation = self.observe(&sample, &seats, evidence, Vec::new());
        for (step, targets) in steps.iter().zip(targets) {
            let confirmed = self.evaluator.confirmed(step.violation(), &observation);
            let targets = targets
                .iter()
                .filter(|target| confirmed.contains(&target.id));
            let violation = step.violation();
            let (ended, how) = match step {
                Step::Ask(_) => (signal(targets, Signal::TERM), "asked to end (SIGTERM)"),
                Step::End(_) => (signal(targets, Signal::KILL), "ended (SIGKILL)"),
                Step::EndJob(_) if targets.count() > 0 => {
                    let processes = JobProcesses {
                        proc: &self.proc,
                        cgroups: &self.cgroups,
                        holder: &violation.holder,
                        confs,
                        enforced_since: evidence.enforced_since,
                    };
                    let ended = processes.end();
                    (
                        ended.max(1),
                        "did not end or came back, so all of the job is ended",
                    )
                }
                Step::EndJob(_) => (0, ""),
            };
            if ended == 0 {
                continue;
            }
            // One that is ended was asked before.
            if !matches!(step, Step::End(_)) {
                self.tally.ended(ended);
            }
            self.log(violation, how);
            message::leave(
                &self.node,
                &violation.holder,
                &format!("{}: {how}", violation.rule.what()),
            );
        }
    }

    /// Says it in the log and among the events.
    fn log(&self, violation: &Violation, consequence: &str) {
        let line = line(violation, consequence);
        let job = match violation.holder {
            Holder::Job(job) => Some(job),
            Holder::Sluid(_) | Holder::User(_) => None,
        };
        match job {
            Some(job) => warn!(job, "{line}"),
            None => warn!("{line}"),
        }
        let event = Event {
            job,
            uid: violation.uid,
            gpu: Some(violation.gpu.clone()),
            ..Event::new("finding")
        };
        let event = event.with("rule", violation.rule.as_str());
        // It stays in the log.
        let _ = event.with("consequence", consequence).write(&self.node);
    }

    fn targets(&self, violation: &Violation, confs: &Confs, evidence: &Evidence) -> Vec<Target> {
        let ids = violation.processes.iter();
        let targets = ids.filter_map(|&id| {
            let since = evidence.enforced_since;
            let taken = Target::take(&self.proc, id, &violation.holder, confs, since);
            let refused = |why: &_| warn!("process {} is not ended: {why}", id.pid);
            taken.inspect_err(refused).ok()
        });
        targets.collect()
    }
}

/// A node that does not enforce ends nothing.
fn settings_of_node(settings: &Monitor, evidence: &Evidence) -> Monitor {
    match evidence.enforced_since {
        Some(_) => *settings,
        None => Monitor {
            end: End::No,
            ..*settings
        },
    }
}

/// Sends a signal to each, and counts those that got it.
fn signal<'a>(targets: impl Iterator<Item = &'a Target>, signal: Signal) -> usize {
    targets
        .filter(|target| target.signal(signal).is_ok())
        .count()
}

/// `job=12 uid=2001 gpu=GPU-... rule=memory memory_mib=12000 limit_mib=11366 pids=41,42: more memory than its slice: ...`.
fn line(violation: &Violation, consequence: &str) -> String {
    let mut line = match &violation.holder {
        Holder::Job(id) => format!("job={id}"),
        Holder::Sluid(sluid) => format!("sluid={sluid}"),
        Holder::User(_) => "job=none".into(),
    };
    let words = [
        violation.uid.map(|uid| format!("uid={uid}")),
        Some(format!("gpu={}", violation.gpu)),
        Some(format!("rule={}", violation.rule.as_str())),
        violation
            .memory
            .map(|bytes| format!("memory_mib={}", mib(bytes))),
        violation
            .limit
            .map(|bytes| format!("limit_mib={}", mib(bytes))),
    ];
    for word in words.into_iter().flatten() {
        line += &format!(" {word}");
    }
    let pids: Vec<String> = violation.pids.iter().map(u32::to_string).collect();
    line + &format!(
        " pids={}: {}: {consequence}",
        pids.join(","),
        violation.rule.what()
    )
}

#[cfg(test)]
mod tests;
