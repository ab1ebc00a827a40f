//! Looks, decides and acts: the one place where [`crate::enforce`] touches the node.

use crate::arbiter::{Seats, Unseated};
use crate::enforce::grounds::Places;
use crate::enforce::group::{CGROUPS, Whole};
use crate::enforce::holders::{MOST_OF_A_SCAN, Scan, strays};
use crate::enforce::ladder::{Ladder, MOMENT, Step};
use crate::enforce::look::{Holder, Look, ProcessId, Stray};
use crate::enforce::message;
use crate::enforce::rules::{Consequence, Judge, Offence, Rule};
use crate::enforce::scene::{Grounds, Scene, unseated};
use crate::enforce::tally::Tally;
use crate::enforce::target::Target;
use crate::gate::{PRELOAD, find_library};
use crate::jobs::confs::Confs;
use crate::measure::Sight;
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

/// How long after a first sight the second is.
pub const SECOND_LOOK: Duration = Duration::from_millis(500);

/// How long a look at most searches processes for the library. A user can make that slow.
const LOOKING_FOR_THE_LIBRARY: Duration = Duration::from_millis(50);

/// How long nothing more is said of the same thing.
const SILENCE: Duration = Duration::from_secs(60);

/// The pause between two scans for processes that may keep memory in no process's figure.
const STRAYS_EVERY: Duration = Duration::from_secs(10);

/// The sight of the node, from where it is asked.
pub trait Eyes {
    /// Measures, and asks the arbiter who has a seat. With `again` it is not asked how busy processes are.
    fn see(&mut self, again: bool) -> (Sight, Seats);

    /// Whether the arbiter answers within a moment.
    fn arbiter_answers(&mut self) -> bool;

    /// Tells the arbiter which processes have no seat, by the GPU's UUID.
    fn tell_unseated(&mut self, unseated: BTreeMap<String, BTreeMap<u32, Unseated>>);
}

/// Ends what is to be ended.
#[derive(Debug)]
pub struct Enforcer {
    node: Node,
    places: Places,
    proc: PathBuf,
    cgroups: PathBuf,
    preload: PathBuf,
    library: Library,
    start: Instant,
    judge: Judge,
    ladder: Ladder,
    tally: Arc<Tally>,
    /// Processes that are counted among those that would have been ended.
    counted: BTreeSet<(Rule, ProcessId)>,
    /// When each thing was last spoken of.
    said: BTreeMap<(Rule, Holder, String), Duration>,
    /// The findings of the last look.
    found: BTreeSet<(Rule, Holder, String)>,
    scan: Scan,
    strays: Option<(Duration, Vec<Stray>)>,
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
            library: Library::default(),
            start: Instant::now(),
            judge: Judge::default(),
            ladder: Ladder::default(),
            tally,
            counted: BTreeSet::new(),
            said: BTreeMap::new(),
            found: BTreeSet::new(),
            scan: Scan::default(),
            strays: None,
        }
    }

    /// Forgets what was seen: there is nothing to see. The ladder keeps its offences.
    pub fn rest(&mut self, eyes: &mut impl Eyes) {
        eyes.tell_unseated(BTreeMap::new());
        self.judge = Judge::default();
        self.counted.clear();
        self.said.clear();
        self.found.clear();
        self.strays = None;
    }

    /// Does what follows from what was seen. Says in how long something is to be looked at again, if it is sooner than usual.
    pub fn act(
        &mut self,
        settings: &Monitor,
        (sight, seats): &(Sight, Seats),
        eyes: &mut impl Eyes,
    ) -> Option<Duration> {
        let mut grounds = self.places.grounds(true);
        let settings = &settings_of_node(settings, &grounds);
        self.tally.set(settings.end);
        if sight.report.error.is_some() {
            // Work that is not seen is charged to no job.
            eyes.tell_unseated(BTreeMap::new());
            return None;
        }
        // At each look, so that the one before an upgrade is known. `softmig check` tells of one that cannot be opened.
        let _ = find_library(&self.library, &self.preload);
        let strays = self.strays(sight);
        let mut look = self.look(sight, seats, &grounds, strays.clone());
        let is_unseated = look.tenants.iter().any(|it| it.unseated().next().is_some());
        if is_unseated && !eyes.arbiter_answers() {
            grounds.arbiter_answers = false;
            look = self.look(sight, seats, &grounds, strays);
        }
        eyes.tell_unseated(unseated(&look, &sight.confs));
        let again = self.ladder.repeated(&look);
        let judgement = self.judge.judge(&look, settings, &again);
        self.count(&judgement.offences);
        let (ended, told): (Vec<_>, Vec<_>) = (judgement.offences.into_iter()).partition(|it| {
            it.rule.consequence(settings) == Consequence::End && !it.processes.is_empty()
        });
        self.tell(&told, settings, look.at);
        let there: BTreeSet<ProcessId> = (look.tenants.iter())
            .flat_map(|tenant| tenant.processes.iter().map(|process| process.id))
            .collect();
        self.counted.retain(|(_, id)| there.contains(id));
        let steps = self.ladder.climb(&look, &ended);
        if !steps.is_empty() {
            self.take(&steps, &sight.confs, &grounds, eyes);
        }
        if self.ladder.is_waiting() {
            return Some(MOMENT);
        }
        judgement.is_in_doubt.then_some(SECOND_LOOK)
    }

    fn look(&self, sight: &Sight, seats: &Seats, grounds: &Grounds, strays: Vec<Stray>) -> Look {
        let scene = Scene {
            sight,
            seats,
            grounds,
            proc: &self.proc,
            library: &self.library,
            until: Instant::now() + LOOKING_FOR_THE_LIBRARY,
        };
        scene.look(self.start.elapsed(), strays)
    }

    fn strays(&mut self, sight: &Sight) -> Vec<Stray> {
        let now = self.start.elapsed();
        let known = self
            .strays
            .take()
            .filter(|(at, _)| now.saturating_sub(*at) < STRAYS_EVERY);
        let (at, found) = known.unwrap_or_else(|| {
            let found = strays(&self.proc, sight, &mut self.scan, MOST_OF_A_SCAN);
            // The pause begins where the scan ends.
            (self.start.elapsed(), found)
        });
        self.strays = Some((at, found.clone()));
        found
    }

    /// Counts what was not there at the last look.
    fn count(&mut self, offences: &[Offence]) {
        let key = |it: &Offence| (it.rule, it.holder.clone(), it.gpu.clone());
        let found: BTreeSet<_> = offences.iter().map(key).collect();
        for (rule, ..) in found.difference(&self.found) {
            self.tally.found(*rule);
        }
        self.found = found;
    }

    /// Says what was found and is not ended.
    fn tell(&mut self, offences: &[Offence], settings: &Monitor, now: Duration) {
        self.said.retain(|_, at| now.saturating_sub(*at) < SILENCE);
        for offence in offences {
            let would = offence.rule.consequence(settings) == Consequence::WouldEnd;
            let new = offence.processes.iter().map(|&id| (offence.rule, id));
            let new: Vec<_> = new
                .filter(|key| would && !self.counted.contains(key))
                .collect();
            self.tally.would_have_ended(offence.rule, new.len());
            self.counted.extend(new);
            let key = (offence.rule, offence.holder.clone(), offence.gpu.clone());
            if self.said.contains_key(&key) {
                continue;
            }
            self.said.insert(key, now);
            let consequence = match offence.rule.consequence(settings) {
                Consequence::None | Consequence::Report => "only logged".into(),
                _ if offence.processes.is_empty() => "none of these may be ended".into(),
                _ => {
                    let end = settings.end.as_str();
                    format!("would be ended, but [monitor] end = \"{end}\"")
                }
            };
            self.log(offence, &consequence);
        }
    }

    /// Takes these steps: first the files of the processes, then the measurement again, then the signals.
    fn take(&self, steps: &[Step], confs: &Confs, grounds: &Grounds, eyes: &mut impl Eyes) {
        let targets: Vec<Vec<Target>> = (steps.iter())
            .map(|step| self.targets(step.offence(), confs, grounds))
            .collect();
        let (sight, seats) = eyes.see(true);
        let look = self.look(&sight, &seats, grounds, Vec::new());
        for (step, targets) in steps.iter().zip(targets) {
            let confirmed = self.judge.confirmed(step.offence(), &look);
            let targets = targets
                .iter()
                .filter(|target| confirmed.contains(&target.id));
            let offence = step.offence();
            let (ended, how) = match step {
                Step::Ask(_) => (signal(targets, Signal::TERM), "asked to end (SIGTERM)"),
                Step::End(_) => (signal(targets, Signal::KILL), "ended (SIGKILL)"),
                Step::EndJob(_) if targets.count() > 0 => {
                    let whole = Whole {
                        proc: &self.proc,
                        cgroups: &self.cgroups,
                        holder: &offence.holder,
                        confs,
                        enforced_since: grounds.enforced_since,
                    };
                    let ended = whole.end();
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
            self.log(offence, how);
            message::leave(
                &self.node,
                &offence.holder,
                &format!("{}: {how}", offence.rule.what()),
            );
        }
    }

    /// Says it in the log and among the events.
    fn log(&self, offence: &Offence, consequence: &str) {
        let line = line(offence, consequence);
        let job = match offence.holder {
            Holder::Job(job) => Some(job),
            Holder::Sluid(_) | Holder::User(_) => None,
        };
        match job {
            Some(job) => warn!(job, "{line}"),
            None => warn!("{line}"),
        }
        let event = Event {
            job,
            uid: offence.uid,
            gpu: Some(offence.gpu.clone()),
            ..Event::new("finding")
        };
        let event = event.with("rule", offence.rule.as_str());
        // It stays in the log.
        let _ = event.with("consequence", consequence).write(&self.node);
    }

    fn targets(&self, offence: &Offence, confs: &Confs, grounds: &Grounds) -> Vec<Target> {
        let ids = offence.processes.iter();
        let targets = ids.filter_map(|&id| {
            let since = grounds.enforced_since;
            let taken = Target::take(&self.proc, id, &offence.holder, confs, since);
            let refused = |why: &_| warn!("process {} is not ended: {why}", id.pid);
            taken.inspect_err(refused).ok()
        });
        targets.collect()
    }
}

/// A node that does not enforce ends nothing.
fn settings_of_node(settings: &Monitor, grounds: &Grounds) -> Monitor {
    match grounds.enforced_since {
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
fn line(offence: &Offence, consequence: &str) -> String {
    let mut line = match &offence.holder {
        Holder::Job(id) => format!("job={id}"),
        Holder::Sluid(sluid) => format!("sluid={sluid}"),
        Holder::User(_) => "job=none".into(),
    };
    let words = [
        offence.uid.map(|uid| format!("uid={uid}")),
        Some(format!("gpu={}", offence.gpu)),
        Some(format!("rule={}", offence.rule.as_str())),
        offence
            .memory
            .map(|bytes| format!("memory_mib={}", mib(bytes))),
        offence
            .limit
            .map(|bytes| format!("limit_mib={}", mib(bytes))),
    ];
    for word in words.into_iter().flatten() {
        line += &format!(" {word}");
    }
    let pids: Vec<String> = offence.pids.iter().map(u32::to_string).collect();
    line + &format!(
        " pids={}: {}: {consequence}",
        pids.join(","),
        offence.rule.what()
    )
}

#[cfg(test)]
mod tests;
