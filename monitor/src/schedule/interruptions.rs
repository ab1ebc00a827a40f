//! Processes that have work and may run, and are not on the GPU for longer than the slices of others explain.
//!
//! Such work may wait for something else: for a copy, the host or another process. It may also be that something other than
//! the monitor keeps its channels off the GPU. The log does not tell the two apart. So the channels are *released*: they are let run
//! once more, which changes nothing for channels that run. Work that then comes to the GPU at once was interrupted. From then on
//! its process is released sooner. Each release in vain doubles the time until the next one, and the times that it lets channels
//! run: the driver counts how often they are to wait.
//!
//! What waits for something else may come to the GPU just then. That is seldom so several times in a row.

use std::collections::BTreeMap;

use super::{Job, Nanos};

const MS: Nanos = 1_000_000;
/// A process without service is released after this time, up to half as much longer, so that releases are in no step with anything
/// that it may wait for. The first is for a process that was not interrupted in the last minute.
const PATIENCE: Nanos = 100 * MS;
const SHORT_PATIENCE: Nanos = 12 * MS;
const MINUTE: Nanos = 60_000 * MS;
/// The longest patience.
const LONGEST: Nanos = 3_200 * MS;
/// Released work that comes within this time was interrupted.
const AT_ONCE: Nanos = 8 * MS;
/// All of these are longer by a turn: the time in which all other processes that were on the GPU of late have had their slices.
const LEAST_TURN: Nanos = 40 * MS;
const TURN_EACH: Nanos = 8 * MS;
const LONGEST_TURN: Nanos = 400 * MS;
/// The most times that one release lets channels run.
const MOST_TIMES: u32 = 64;
/// Those of a job take at most one part in this of the time, so that one that claims to have work keeps no other from being released.
const PARTS: Nanos = 50;
/// An interruption is told after so many in a row.
const SURE: u32 = 3;

/// A process since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its job.
    pub job: Job,
    /// Whether its channels were not held in all of this time, and are known.
    pub may_run: bool,
    /// The time for which it had work, as it says.
    pub pending: Nanos,
    /// The time that it was on the GPU, by the GPU's log.
    pub resident: Nanos,
}

/// The decisions of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The processes whose channels are to be let run, and how many times.
    pub releases: Vec<(u32, u32)>,
    /// The processes that were surely interrupted, and how often.
    pub interrupted: Vec<(u32, u32)>,
    /// Whether to look again soon.
    pub is_near: bool,
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
    /// When it was released, until it is known what came of it.
    released: Option<Nanos>,
    /// When it was last interrupted, and how often since a release in vain.
    interrupted: Option<Nanos>,
    in_a_row: u32,
    /// How many releases in a row were in vain.
    in_vain: u32,
    /// The times that the next release lets its channels run, in powers of two.
    times: u32,
}

impl Process {
    /// Takes what it did. Whether it was interrupted until a moment ago.
    fn note(&mut self, now: Nanos, time: Nanos, seen: Seen, turn: Nanos) -> bool {
        let since = self.released.map(|at| now - at);
        let is_late = since.is_some_and(|since| since > AT_ONCE + turn);
        let is_interrupted = seen.may_run && seen.resident > 0 && since.is_some() && !is_late;
        if is_interrupted {
            self.interrupted = Some(now);
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.in_vain = if self.is_again() { 0 } else { self.in_vain / 2 };
        }
        if !seen.may_run || is_interrupted {
            (self.off, self.released) = (0, None);
        } else if is_late {
            (self.off, self.released, self.in_a_row) = (0, None, 0);
            self.in_vain = self.in_vain.saturating_add(1);
            self.times = self.times.saturating_add(1).min(MOST_TIMES.ilog2());
        } else if seen.resident == 0 && seen.pending >= time / 4 * 3 {
            self.off += time;
        } else {
            // It is served, or has no work.
            (self.off, self.released) = (0, None);
            if self.in_a_row == 0 {
                self.times = 0;
            }
        }
        if self.interrupted.is_some_and(|at| now - at > MINUTE) {
            (self.interrupted, self.in_a_row, self.times) = (None, 0, 0);
        }
        is_interrupted
    }

    /// Whether it was interrupted several times of late, and not released in vain since then.
    fn is_again(&self) -> bool {
        self.in_a_row > 1
    }

    fn patience(&self, now: Nanos, turn: Nanos) -> Nanos {
        let least = if self.is_again() {
            SHORT_PATIENCE
        } else {
            PATIENCE
        };
        let patience = least << self.in_vain.min(8);
        let patience = (patience + turn).min(LONGEST);
        // As good as random.
        let random = (now.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).cast_signed();
        patience + ((patience / 2 * random) >> 32)
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
            if seen.get(process).is_some_and(|it| it.resident > 0) {
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
            let was_interrupted = process.note(now, time, one, turn);
            match process.in_a_row {
                // The ones before are sure by this one.
                SURE if was_interrupted => found.interrupted.push((number, SURE)),
                more if was_interrupted && more > SURE => found.interrupted.push((number, 1)),
                _ => {}
            }
            let patience = process.patience(now, turn);
            let next = self.next.entry(one.job).or_insert(now);
            if process.released.is_none() && process.off >= patience && now >= *next {
                // One of a job at a look.
                *next = now + 1;
                process.released = Some(now);
                found.releases.push((number, 1 << process.times));
            }
            let is_near = process.released.is_some() || process.is_again();
            found.is_near |= process.off > 0 && is_near;
        }
        found
    }

    /// The release of a process of this job took so long.
    pub fn note_release(&mut self, job: Job, took: Nanos) {
        self.next.insert(job, self.looked + PARTS * took);
    }

    /// Nobody can tell who is on the GPU.
    pub fn clear(&mut self) {
        self.processes.clear();
    }
}

#[cfg(test)]
#[path = "interruptions_tests.rs"]
mod tests;
