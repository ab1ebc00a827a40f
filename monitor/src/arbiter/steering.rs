//! Steers jobs on the GPU's own scheduler, as [`crate::schedule::shares`] decides: what the GPU's log says goes there, and what is to
//! be done comes back.

use softmig_policy::node::limits::{Mode, Share};
use softmig_rm::{Channel, Ended};
use std::collections::{BTreeMap, BTreeSet};

use super::clock::now;
use super::scheduler::{Held, Scheduler};
use super::switch_log::{CHANGING, Stays};
use crate::packs::PackId;
use crate::schedule::excess::{Excess, Use};
use crate::schedule::gangs::{Phase, Standing};
use crate::schedule::interruptions::{Found, Interruptions, Seen};
use crate::schedule::shares::{DEFAULT_SLICE_US, Look, Observed, RECHECK, Sharing};
use crate::schedule::{Book, Job, Nanos};

/// If the end of a stay interrupts a kernel, the GPU saves its state. This much more of the stay is then not work, and no job pays
/// for it (research/gpu-time.md).
const INTERRUPTING: Nanos = 70_000;

/// The state of a process there, as far as its page says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeatState {
    pub(super) job: Job,
    pub(super) process: u32,
    /// Whether it can be held, or is about to tell how.
    pub(super) is_steered: bool,
    /// Whether all of its channels were held since before the last look, and it was off the GPU by then.
    pub(super) is_surely_held: bool,
    /// Whether it keeps its channels from being known.
    pub(super) hides: bool,
    /// Whether its channels are known, run, and can be let run once more.
    pub(super) may_release: bool,
    pub(super) wants_gpu: bool,
    /// For how long it had work since the last time.
    pub(super) pending: Nanos,
    /// The shortest time slice that it had since the last time, in microseconds; 0 for the driver's own.
    pub(super) slice: u64,
    /// Whether that was set since the last time.
    pub(super) has_new_slice: bool,
}

/// The job of a process that has no seat, and what that may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseated {
    /// The job.
    pub job: Job,
    /// Its share.
    pub share: Share,
    /// Cap or share.
    pub mode: Mode,
    /// The pack that the job is in.
    pub pack: Option<PackId>,
}

/// Processes of a job that cannot be held, or ran while they were, and the time that they had.
#[derive(Debug, Default)]
struct Loose {
    had: Nanos,
    processes: BTreeSet<u32>,
}

impl Loose {
    fn add(&mut self, process: u32, stays: &Stays) {
        if stays.resident > 0 {
            self.had += stays.resident;
            self.processes.insert(process);
        }
    }
}

/// The jobs of a GPU.
#[derive(Debug)]
pub(super) struct Steering {
    sharing: Sharing,
    /// The time slice that a group has by itself, in microseconds.
    pub(super) default_slice: u64,
    /// The last look.
    looked: Nanos,
    /// When to look again; `None` until a process wakes the arbiter.
    pub(super) next: Option<Nanos>,
    /// The processes with a seat at the last look: of one that has gone since then, the log tells once more.
    seated: BTreeMap<u32, Job>,
    /// Whether the channels that run changed since the last look.
    has_changed: bool,
    excess: Excess,
    interruptions: Interruptions,
}

impl Steering {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            sharing: Sharing::new(now),
            default_slice: DEFAULT_SLICE_US,
            looked: now,
            next: None,
            seated: BTreeMap::new(),
            has_changed: false,
            excess: Excess::default(),
            interruptions: Interruptions::default(),
        }
    }

    /// Adds a job, or changes its share.
    pub(super) fn add(&mut self, job: Job, share: Share, mode: Mode) {
        self.sharing.add(job, share, mode);
    }

    /// Removes a job that has gone.
    pub(super) fn remove(&mut self, job: Job) {
        self.sharing.remove(job);
    }

    /// Whether a job's channels run, and their time slice; 0 for the driver's own.
    pub(super) fn state(&self, job: Job) -> Option<(bool, u64)> {
        self.sharing.state(job)
    }

    /// Whether a job's channels run; a job's that is not known do.
    pub(super) fn is_on(&self, job: Job) -> bool {
        self.state(job).is_none_or(|(is_on, _)| is_on)
    }

    /// The time that a job may still have; `None` for one that is not known.
    pub(super) fn credit(&self, job: Job) -> Option<Nanos> {
        self.sharing.credit(job)
    }

    /// The time of the last look.
    pub(super) fn looked(&self) -> Nanos {
        self.looked
    }

    /// Takes the sums of all jobs since they were last taken.
    pub(super) fn take_book(&mut self) -> Book {
        self.sharing.take_book()
    }

    /// Decides, by how each process used the GPU and what it says.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        processes: &BTreeMap<u32, Stays>,
        seats: &[SeatState],
        unseated: &BTreeMap<u32, Unseated>,
    ) -> Look {
        let mut observed: BTreeMap<Job, Observed> = BTreeMap::new();
        let mut loose: BTreeMap<Job, Loose> = BTreeMap::new();
        for (process, of) in unseated {
            let has_seat = seats.iter().any(|one| one.process == *process);
            let Some(stays) = processes.get(process).filter(|_| !has_seat) else {
                continue;
            };
            // A job without a seat is here as long as it owes.
            if self.credit(of.job).is_none() {
                self.add(of.job, of.share, of.mode);
                self.remove(of.job);
            }
            observed.entry(of.job).or_default().unseated += stays.resident;
            loose.entry(of.job).or_default().add(*process, stays);
        }
        let seated: BTreeMap<u32, Job> = seats.iter().map(|one| (one.process, one.job)).collect();
        let left = std::mem::replace(&mut self.seated, seated);
        let (mut change, mut unclaimed) = (0, 0);
        for (process, stays) in processes {
            change += CHANGING * stays.lengths.len() as Nanos;
            if self.seated.contains_key(process) || unseated.contains_key(process) {
                continue;
            }
            match left.get(process).filter(|job| self.credit(**job).is_some()) {
                Some(job) => observed.entry(*job).or_default().unseated += stays.resident,
                None => unclaimed += stays.resident,
            }
        }
        let has_changed = std::mem::take(&mut self.has_changed);
        let is_new_round = has_changed || seats.iter().any(|it| it.has_new_slice);
        for one in seats {
            let place = observed.entry(one.job).or_default();
            let stays = processes.get(&one.process);
            if !one.is_steered {
                place.unseated += stays.map_or(0, |it| it.resident);
                if let Some(stays) = stays {
                    loose.entry(one.job).or_default().add(one.process, stays);
                }
                continue;
            }
            place.wants_gpu |= one.wants_gpu;
            place.pending += one.pending;
            let Some(stays) = stays else { continue };
            if one.is_surely_held || one.hides && !self.is_on(one.job) {
                loose.entry(one.job).or_default().add(one.process, stays);
            }
            place.resident += stays.resident;
            let is_on = self.is_on(one.job);
            // A new round ends a stay, which says nothing about the job.
            let mut may_be_ended = is_new_round;
            let slice = match one.slice {
                0 => self.default_slice,
                slice => slice,
            };
            for &length in &stays.lengths {
                // A job that is held was taken out with work left.
                let is_cut = !is_on || length >= nearly(slice);
                let interrupting = if is_cut { INTERRUPTING } else { 0 };
                place.resident -= interrupting;
                place.changing += CHANGING + interrupting;
                change += interrupting;
                place.cut += u32::from(is_cut);
                let has_left = !is_cut && !std::mem::take(&mut may_be_ended);
                place.left += u32::from(has_left);
            }
        }
        self.sharing.note_others(change, unclaimed);
        let now = self.advance(now);
        self.note_excess(now, &observed, loose);
        let look = self.sharing.look(now, &observed);
        self.next = look.next;
        look
    }

    /// Before a look: which processes are to be released, and which of them were interrupted. Those are counted.
    pub(super) fn find_interruptions(
        &mut self,
        now: Nanos,
        processes: &BTreeMap<u32, Stays>,
        seats: &[SeatState],
    ) -> Found {
        let seen = seats.iter().map(|one| {
            let by = Seen {
                job: one.job,
                may_run: one.may_release,
                pending: one.pending,
                resident: processes.get(&one.process).map_or(0, |it| it.resident),
            };
            (one.process, by)
        });
        let found = self
            .interruptions
            .look(now.max(self.looked), &seen.collect());
        for &(process, times) in &found.interrupted {
            if let Some(one) = seats.iter().find(|one| one.process == process) {
                self.sharing.note_interruptions(one.job, times);
            }
        }
        found
    }

    /// See [`Interruptions::note_release`].
    pub(super) fn note_release(&mut self, process: u32, job: Job, took: Nanos, left: usize) {
        self.interruptions.note_release(process, job, took, left);
    }

    fn note_excess(
        &mut self,
        now: Nanos,
        observed: &BTreeMap<Job, Observed>,
        mut loose: BTreeMap<Job, Loose>,
    ) {
        let uses = observed.iter().filter_map(|(&job, by)| {
            let loose = loose.remove(&job).unwrap_or_default();
            let by = Use {
                share: self.sharing.share(job)?,
                had: by.resident + by.unseated,
                wants_gpu: by.wants_gpu,
                loose_time: loose.had,
                loose: loose.processes,
            };
            Some((job, by))
        });
        let uses = uses.collect();
        self.excess.note(now, uses);
    }

    /// See [`Excess::found`].
    pub(super) fn excess(&self) -> BTreeMap<Job, BTreeSet<u32>> {
        self.excess.found()
    }

    /// See [`Sharing::standings`].
    pub(super) fn standings(&self) -> BTreeMap<Job, Standing> {
        self.sharing.standings()
    }

    /// Looks again soon.
    pub(super) fn look_soon(&mut self) {
        let soon = self.looked + RECHECK;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// See [`Sharing::set_phase`].
    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.next = self.sharing.set_phase(phase);
    }

    /// Charges each job for the time in which it had work, as its processes say. No job is held.
    pub(super) fn count(&mut self, now: Nanos, seats: &[SeatState]) {
        self.excess.clear();
        self.interruptions.clear();
        let mut observed: BTreeMap<Job, Observed> = BTreeMap::new();
        for one in seats {
            observed.entry(one.job).or_default().unseated += one.pending;
        }
        let now = self.advance(now);
        self.sharing.look(now, &observed);
        self.next = None;
    }

    /// The time of a look. The log is read a moment before, and time never goes back.
    fn advance(&mut self, now: Nanos) -> Nanos {
        self.looked = self.looked.max(now);
        self.looked
    }

    /// Lets exactly these channels wait, and all others run.
    pub(super) fn hold(
        &mut self,
        scheduler: &mut Scheduler,
        channels: BTreeSet<Channel>,
        ended: Ended<'_>,
    ) -> Held {
        let held = scheduler.hold(&channels, ended);
        self.has_changed |= held.has_changed;
        if scheduler.waiting != channels {
            self.next = Some(now() + RECHECK);
        }
        held
    }
}

/// The shortest time that counts as a slice of `slice` microseconds in which a group was interrupted.
fn nearly(slice: u64) -> Nanos {
    Nanos::try_from(slice * 900).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
