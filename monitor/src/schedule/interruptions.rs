//! Processes that have work and may run, and are not on the GPU for longer than the slices of others explain.
//!
//! Such work may wait for something else: for a copy, the host or another process. It may also be that something other than
//! the monitor keeps it off the GPU. The log does not tell the two apart. So the channels are *released*: they are let run once more.
//! Work that then comes to the GPU at once was interrupted. From then on its process is released sooner. Each release in vain doubles
//! the time until the next one, and the number of its calls.
//!
//! What waits for something else may come to the GPU just then, by chance. So after two releases with effect, half of them are left
//! out, as a control: work that comes all the same was not interrupted. An interruption is told after eight releases with effect
//! and eight controls without, none of them otherwise in between. For work that comes by chance, however often, that is hardly so.

use std::collections::BTreeMap;

use super::{Job, Nanos};

const MS: Nanos = 1_000_000;
/// A process without service is released after this time, up to half as much longer, so that releases are in no step with anything
/// that it may wait for. The first is for a process that was not interrupted in the last minute.
const PATIENCE: Nanos = 100 * MS;
const SHORT_PATIENCE: Nanos = 6 * MS;
const MINUTE: Nanos = 60_000 * MS;
/// The longest patience.
const LONGEST: Nanos = 3_200 * MS;
/// Released work that comes within this time was interrupted.
const AT_ONCE: Nanos = 8 * MS;
/// All of these are longer by a turn: the time in which all other processes that were on the GPU of late have had their slices.
const LEAST_TURN: Nanos = 34 * MS;
const TURN_EACH: Nanos = 8 * MS;
const LONGEST_TURN: Nanos = 400 * MS;
/// Less than this at a look is no service: a slice is longer, but may end or begin between two looks.
const SERVED: Nanos = MS / 2;
/// The most times that one release lets channels run.
const MOST_TIMES: u32 = 64;
/// Those of a job take at most one part in this of the time, so that one that claims to have work keeps no other from being released.
const PARTS: Nanos = 50;
/// After so many releases with effect there are controls, and the patience is short.
const AGAIN: u32 = 2;
/// After so many, and as many controls, interruptions are told. More are not counted.
const SURE: u32 = 8;
/// What is sure has one control for so many releases.
const SELDOM: u64 = 8;

/// A process since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its job.
    pub job: Job,
    /// Whether its channels are known and run, and may be let run once more.
    pub may_run: bool,
    /// The time for which it had work, as it says.
    pub pending: Nanos,
    /// The time that it was on the GPU, by the GPU's log.
    pub resident: Nanos,
}

/// The decisions of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The process whose channels are to be let run, and how often. One at a look: meanwhile nobody is held or let run.
    pub release: Option<(u32, Amount)>,
    /// The processes that were surely interrupted, and how often.
    pub interrupted: Vec<(u32, u32)>,
    /// Whether to look again soon.
    pub is_near: bool,
}

/// How often channels are to be let run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// All of them, so many times.
    Times(u32),
    /// By so many calls, which an earlier release had no time for.
    Left(usize),
}

/// The processes of a GPU.
#[derive(Clone, Debug, Default)]
pub struct Interruptions {
    looked: Nanos,
    /// No release of a job before.
    next: BTreeMap<Job, Nanos>,
    processes: BTreeMap<u32, Process>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// When it was last on the GPU.
    served: Option<Nanos>,
    /// For how long it has had work and no service.
    off: Nanos,
    /// What was done about that, and when, until it is known what came of it.
    trial: Option<(Trial, Nanos)>,
    /// Whether it is to be released after a control.
    is_due: bool,
    /// When it was last interrupted.
    interrupted: Option<Nanos>,
    /// Releases with effect and controls without, since something else came of one.
    effects: u32,
    controls: u32,
    /// How many releases in a row were in vain.
    in_vain: u32,
    /// The times that the next release lets its channels run, and those that ended the last interruption, in powers of two.
    times: u32,
    needed: u32,
    /// The calls that are left of the release that is under way.
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    Release,
    Control,
    /// A release that comes later than others, or takes longer, and says less.
    Late,
}

impl Process {
    /// Takes what it did. Whether it was interrupted until a moment ago.
    fn note(&mut self, now: Nanos, time: Nanos, seen: Seen, turn: Nanos) -> bool {
        if self.interrupted.is_some_and(|at| now - at > MINUTE) {
            (self.interrupted, self.needed) = (None, 0);
            (self.effects, self.controls) = (0, 0);
        }
        let is_served = seen.resident >= SERVED;
        let is_off = !is_served && seen.pending >= time / 4 * 3;
        if is_off && !seen.may_run {
            // It goes on when it may run again.
            if let Some((_, at)) = &mut self.trial {
                *at += time;
            }
            return false;
        }
        if is_off {
            self.off += time;
            let is_late = |(_, at): &(_, Nanos)| self.left == 0 && now - at > AT_ONCE + turn;
            if let Some((trial, _)) = self.trial.filter(is_late) {
                self.stays_off(trial);
            }
            return false;
        }
        (self.off, self.is_due) = (0, false);
        let is_whole = std::mem::take(&mut self.left) == 0;
        let trial = self.trial.take().filter(|_| is_served && seen.may_run);
        match trial {
            Some((Trial::Control, _)) => {
                (self.effects, self.controls) = (0, 0);
                self.in_vain = self.in_vain.saturating_add(2);
            }
            Some((trial, _)) => {
                self.interrupted = Some(now);
                self.needed = self.times;
                if trial == Trial::Release && is_whole {
                    self.effects = self.effects.saturating_add(1).min(SURE);
                }
                self.in_vain = if self.is_again() { 0 } else { self.in_vain / 2 };
                return true;
            }
            None => self.times = self.needed,
        }
        false
    }

    /// It was not on the GPU for long after that.
    fn stays_off(&mut self, trial: Trial) {
        self.trial = None;
        if trial == Trial::Control {
            self.controls = self.controls.saturating_add(1).min(SURE);
            self.is_due = true;
            return;
        }
        self.off = 0;
        (self.effects, self.controls) = (self.effects / 2, self.controls / 2);
        self.in_vain = self.in_vain.saturating_add(1);
        self.times = self.times.saturating_add(1).min(MOST_TIMES.ilog2());
    }

    /// Whether it was interrupted several times of late.
    fn is_again(&self) -> bool {
        self.effects >= AGAIN
    }

    fn is_sure(&self) -> bool {
        self.effects >= SURE && self.controls >= SURE
    }

    /// Gives how often its channels are to be let run now, if they are.
    fn release(&mut self, now: Nanos, turn: Nanos) -> Option<Amount> {
        let trial = match self.trial {
            Some(_) if self.left > 0 => {
                self.trial = Some((Trial::Late, now));
                return Some(Amount::Left(self.left));
            }
            Some(_) => return None,
            None if std::mem::take(&mut self.is_due) => Trial::Late,
            None if self.off < self.patience(now, turn) => return None,
            None => {
                let parts = if self.is_sure() { SELDOM } else { 2 };
                match self.is_again() && random(now).is_multiple_of(parts) {
                    true => Trial::Control,
                    false => Trial::Release,
                }
            }
        };
        self.trial = Some((trial, now));
        (trial != Trial::Control).then(|| Amount::Times(1 << self.times))
    }

    fn patience(&self, now: Nanos, turn: Nanos) -> Nanos {
        let least = if self.is_again() {
            SHORT_PATIENCE
        } else {
            PATIENCE
        };
        let patience = least << self.in_vain.min(8);
        let patience = (patience + turn).min(LONGEST);
        patience + ((patience / 2 * random(now).cast_signed()) >> 32)
    }
}

impl Interruptions {
    /// Takes what all processes that are known did since the last look.
    pub fn look(&mut self, now: Nanos, seen: &BTreeMap<u32, Seen>) -> Found {
        let time = now - std::mem::replace(&mut self.looked, now);
        self.processes
            .retain(|process, _| seen.contains_key(process));
        self.next.retain(|_, next| *next > now);
        for (process, state) in &mut self.processes {
            if seen.get(process).is_some_and(|it| it.resident >= SERVED) {
                state.served = Some(now);
            }
        }
        let was_there = |it: &Process| it.served.is_some_and(|at| now - at <= LONGEST_TURN);
        let there = self.processes.values().filter(|it| was_there(it)).count() as Nanos;
        let mut found = Found::default();
        for (&number, &one) in seen {
            // What one did before it was known says nothing.
            let Some(process) = self.processes.get_mut(&number) else {
                self.processes.insert(number, Process::default());
                continue;
            };
            let turn = match there - Nanos::from(was_there(process)) {
                0 => 0,
                others => (TURN_EACH * others).clamp(LEAST_TURN, LONGEST_TURN),
            };
            let was_sure = process.is_sure();
            if process.note(now, time, one, turn) && process.is_sure() {
                // Those before are sure by this one.
                let count = if was_sure { 1 } else { SURE };
                found.interrupted.push((number, count));
            }
            let is_due = self.next.get(&one.job).is_none_or(|next| now >= *next);
            if is_due && one.may_run && found.release.is_none() {
                let amount = process.release(now, turn);
                found.release = amount.map(|amount| (number, amount));
            }
            let is_near = process.trial.is_some() || process.is_again();
            found.is_near |= process.off > 0 && is_near;
        }
        found
    }

    /// The release of a process of this job took so long. So many calls are left, for when the job may be released again.
    pub fn note_release(&mut self, process: u32, job: Job, took: Nanos, left: usize) {
        self.next.insert(job, self.looked + PARTS * took);
        if let Some(process) = self.processes.get_mut(&process) {
            process.left = left;
        }
    }

    /// Nobody can tell who is on the GPU.
    pub fn clear(&mut self) {
        self.processes.clear();
    }
}

/// A number below 2^32 that is as good as random.
fn random(now: Nanos) -> u64 {
    now.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[cfg(test)]
#[path = "interruptions_tests.rs"]
mod tests;
