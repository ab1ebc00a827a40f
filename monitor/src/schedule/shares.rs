//! How jobs get their shares of a GPU by the GPU's own scheduler.
//!
//! The GPU runs the channel groups that have work one after the other, each for its time slice. A group without work yields at
//! once, so idle time goes to the groups that have work, and launches are never held back. The scheduler keeps no history, and it
//! knows no jobs. This module adds both, from the GPU's log of context switches:
//!
//! - **Fair shares.** Each job has a virtual time: the GPU time that it used, divided by its share. A job whose virtual time is too far
//!   ahead of another's that wants the GPU is held until the other has caught up (`MAX_LEAD`, `RESUME_LEAD`).
//! - **The cap of a `hard` job** is a credit that grows by its share of the time. A job without credit is held, also if it is alone.
//! - **Time slices.** A job that mostly yields by itself, because its program waits for the GPU, keeps a long slice. Beside such a job
//!   the others get short slices, so that it comes back soon. Where no job yields, slices are long and in proportion to the shares,
//!   since each change of groups costs the GPU 0.14 ms.
//!
//! A group stays on the GPU while it has no work, if no other group has any. No job pays for that: a job is charged at most the time
//! for which it had work, as its processes say. For time that another job waited it is charged by the log, whatever they say.
//! Time of its processes without a seat is charged by the log alone. They cannot be held, so its other processes are held for it.
//!
//! Nothing here reads a clock or a file: [`Sharing::look`] is told the time and the observations.

#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

use softmig_policy::node::limits::{Mode, Share};

use super::turns::{Book, Job, Nanos};

const MS: Nanos = 1_000_000;

/// Interval of looks while a job is held until others catch up, and the shortest while one could come to be held.
pub const RECHECK: Nanos = 4 * MS;
/// The longest interval of looks while a job could come to be held.
const MAX_INTERVAL: Nanos = 16 * MS;

/// A job is held when its virtual time leads by more than this and one slice of its own, until it leads by no more than
/// [`RESUME_LEAD`].
const MAX_LEAD: Nanos = 40 * MS;
const RESUME_LEAD: Nanos = 20 * MS;

/// A job saves up its share of this time at most, and goes on with its share of `RESUME_CREDIT`.
pub const MAX_CREDIT: Nanos = 100 * MS;
const RESUME_CREDIT: Nanos = 30 * MS;
/// The largest debt of a job.
const MAX_DEBT: Nanos = 1_000 * MS;

/// Interval in which jobs are classified and slices set.
const CLASSIFY_EVERY: Nanos = 100 * MS;
/// A job that did not want the GPU for longer than this has no claim on the time before.
const IDLE_AFTER: Nanos = 5 * MS;
/// Time from a look until a job that it released can be on the GPU. The driver's call takes 0.27 to 0.39 ms of it
/// (docs/gpu-time.md). Meanwhile it waits for that call, and not for a job that is on the GPU.
const RELEASING: Nanos = 400_000;
/// A held job is not on the GPU. A job that was there for this part of [`CLASSIFY_EVERY`] cannot be held.
const MAX_ESCAPED: Nanos = 30 * MS;

/// Time slices in microseconds: of a job that yields by itself, and of the others beside one.
const YIELDING_SLICE_US: u64 = 16_000;
const SLICE_BESIDE_YIELDING_US: u64 = 2_000;
/// Where no job yields, each slice is the job's share of one round. A longer round has fewer changes of groups, and lets jobs wait
/// for longer.
const ROUND_US: u64 = 32_000;
/// When a lead is judged, a longer slice counts as this long.
const LONGEST_SLICE_US: u64 = 8_000;

/// The time slice that the driver gives a group, in microseconds.
pub const DEFAULT_SLICE_US: u64 = 2048;

/// Observations of a job since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Time that its groups were on the GPU, by the GPU's log.
    pub resident: Nanos,
    /// Time that it had work on the GPU or waiting for it, as its processes say.
    pub pending: Nanos,
    /// Whether it wants the GPU now, as they say.
    pub wishes: bool,
    /// Times that its slice ended with work left.
    pub cut: u32,
    /// Times that it yielded before.
    pub left: u32,
    /// Time that its processes without a seat were on the GPU, by the GPU's log. They cannot be held.
    pub unseated: Nanos,
}

/// Decisions of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// New time slices, in microseconds.
    pub slices: Vec<(Job, u64)>,
    /// Jobs that were on the GPU although they were held.
    pub escaped: Vec<Job>,
    /// Time of the next look; `None` while no job wants the GPU or none could come to be held.
    pub next: Option<Nanos>,
}

/// The jobs of one GPU.
#[derive(Clone, Debug)]
pub struct Sharing {
    jobs: BTreeMap<Job, JobState>,
    looked: Nanos,
    classified: Nanos,
    /// The sums since they were last taken.
    book: Book,
    /// Time of processes of no job since the last look.
    unclaimed: Nanos,
}

#[derive(Clone, Debug)]
struct JobState {
    share: Share,
    mode: Mode,
    /// GPU time charged, divided by the share.
    virtual_time: Nanos,
    /// GPU time that it may still use; negative for a debt.
    credit: Nanos,
    charged: Nanos,
    wishes: bool,
    /// The last look at which it wished.
    wished: Option<Nanos>,
    /// When it last was on the GPU, or could not be.
    served: Nanos,
    held: Option<Held>,
    held_for: Nanos,
    /// Time after the last look in which it could not be on the GPU yet, because that look released it.
    releasing: Nanos,
    /// Time on the GPU while held, since the last classification.
    escaped: Nanos,
    has_processes: bool,
    /// Observed at this look.
    resident: Nanos,
    pending: Nanos,
    unseated: Nanos,
    /// Observed since the last classification.
    cut: u32,
    left: u32,
    /// Whether it mostly yields by itself.
    yields: bool,
    slice_us: u64,
}

/// Why a job is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Its virtual time leads too far.
    Ahead,
    /// It has no credit.
    Capped,
}

impl Sharing {
    /// A GPU without jobs.
    pub fn new(now: Nanos) -> Self {
        Self {
            jobs: BTreeMap::new(),
            looked: now,
            classified: now,
            book: Book::default(),
            unclaimed: 0,
        }
    }

    /// Adds a job, or changes its share. Of `credit` only a debt counts.
    pub fn come(&mut self, job: Job, share: Share, mode: Mode, credit: Nanos) {
        let state = self.jobs.entry(job).or_insert_with(|| JobState {
            share,
            mode,
            virtual_time: 0,
            // Where all of the GPU's time is used the sum of all credits stays as it is. At zero, caps would be reached by chance.
            credit: share_of(share, MAX_CREDIT) + credit.min(0),
            charged: 0,
            wishes: false,
            wished: None,
            served: self.looked,
            held: None,
            held_for: 0,
            releasing: 0,
            escaped: 0,
            has_processes: true,
            resident: 0,
            pending: 0,
            unseated: 0,
            cut: 0,
            left: 0,
            yields: false,
            slice_us: 0,
        });
        (state.share, state.mode, state.has_processes) = (share, mode, true);
        // At the next look it gets a slice.
        self.classified = Nanos::MIN / 2;
    }

    /// The job's last process has gone. The job is forgotten when its debt is paid.
    pub fn leave(&mut self, job: Job) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.has_processes = false;
        }
    }

    /// A job's credit and the time that it was charged.
    pub fn standing(&self, job: Job) -> Option<(Nanos, Nanos)> {
        let state = self.jobs.get(&job)?;
        Some((state.credit, state.charged))
    }

    /// Takes the sums of all jobs that were here since they were last taken.
    pub fn take_book(&mut self) -> Book {
        std::mem::take(&mut self.book)
    }

    /// Before a look: since the last one, the time that changes took, and the time that processes of no job were on the
    /// GPU.
    pub fn note_others(&mut self, change: Nanos, unclaimed: Nanos) {
        self.book.change += change;
        self.book.unclaimed += unclaimed;
        self.unclaimed += unclaimed;
    }

    /// Whether a job's channels are to run, and its time slice in microseconds; 0 for [`DEFAULT_SLICE_US`].
    pub fn state(&self, job: Job) -> Option<(bool, u64)> {
        let state = self.jobs.get(&job)?;
        Some((state.held.is_none(), state.slice_us))
    }

    /// Takes the observations since the last look, and decides.
    pub fn look(&mut self, now: Nanos, observed: &BTreeMap<Job, Observed>) -> Look {
        let mut look = Look::default();
        let time = now - self.looked;
        self.looked = now;
        for (job, state) in &mut self.jobs {
            state.observe(now, time, observed.get(job).copied().unwrap_or_default());
        }
        self.note_waiting();
        self.charge(time);
        self.readmit(time);
        if now - self.classified >= CLASSIFY_EVERY {
            self.classified = now;
            self.set_slices(&mut look);
        }
        let escaped = self.jobs.iter().filter(|(_, it)| it.escaped >= MAX_ESCAPED);
        look.escaped = escaped.map(|(&job, _)| job).collect();
        self.choose_held();
        self.jobs
            .retain(|_, it| it.has_processes || it.credit < share_of(it.share, MAX_CREDIT));
        look.next = self.next();
        look
    }

    /// A job waited while it had work and was not on the GPU: all of that time if it was held, otherwise only while others were there.
    /// Work of other kinds, such as copies, does not wait then.
    fn note_waiting(&mut self) {
        let on_gpu = self.jobs.values().map(|it| it.resident + it.unseated);
        let on_gpu = on_gpu.sum::<Nanos>() + std::mem::take(&mut self.unclaimed);
        for (&job, state) in &self.jobs {
            let off_gpu = state.pending - state.resident;
            let others = on_gpu - state.resident - state.unseated;
            let is_held = state.held.is_some();
            let waited = if is_held {
                off_gpu
            } else {
                off_gpu.min(others)
            };
            self.book.wait(job, waited);
        }
    }

    /// Charges the time since the last look. Idle time on a GPU that no other job wanted is free.
    fn charge(&mut self, time: Nanos) {
        // A job without credit waits for credit, and not for other jobs.
        let waited: Vec<(Job, Nanos)> = (self.jobs.iter())
            .filter(|(_, it)| it.wants(self.looked) && it.held != Some(Held::Capped))
            .map(|(&job, it)| (job, (it.pending - it.releasing).max(0)))
            .collect();
        for (&job, state) in &mut self.jobs {
            let others = waited.iter().filter(|(other, _)| *other != job);
            let unwanted = time - others.map(|&(_, waited)| waited).max().unwrap_or(0);
            let at_work = state.resident.min(state.pending);
            let beside = at_work.max(state.resident - unwanted);
            // All their time is charged, since no process says for how long they had work.
            let due = (beside + state.unseated).min(time);
            state.charge(due);
            state.releasing = (state.releasing - time).max(0);
            self.book.charge(job, due);
        }
        self.charge_idle(time);
    }

    /// A job for which others are held, and which leaves the GPU idle, has no claim on that time.
    fn charge_idle(&mut self, time: Nanos) {
        let on_gpu = self.jobs.values().map(|it| it.resident + it.unseated);
        let resident = on_gpu.sum::<Nanos>();
        let idle = (time - resident).max(0);
        // Changes of groups are idle time too, for which no waiting job is responsible.
        let is_left_idle = idle > time / 2;
        if !is_left_idle || !self.jobs.values().any(|it| it.held == Some(Held::Ahead)) {
            return;
        }
        for state in self.jobs.values_mut() {
            if state.held.is_none() && state.wishes && state.resident == 0 {
                state.virtual_time += state.to_virtual(idle);
            }
        }
    }

    /// The least virtual time of the jobs that want the GPU and have credit.
    fn least_virtual_time(&self) -> Option<Nanos> {
        let wanting = self.jobs.values().filter(|it| it.wants(self.looked));
        let wanting = wanting.filter(|it| it.held != Some(Held::Capped));
        wanting.map(|it| it.virtual_time).min()
    }

    /// A job that was idle for a while starts at the least virtual time of the others: it has no claim on the time that it missed.
    fn readmit(&mut self, time: Nanos) {
        let now = self.looked;
        let was_idle = |it: &JobState| {
            it.wished
                .is_none_or(|wished| now - wished > time + IDLE_AFTER)
        };
        let others = self.jobs.values().filter(|it| it.wishes && !was_idle(it));
        let least = others.map(|it| it.virtual_time).min();
        for state in self.jobs.values_mut().filter(|it| it.wishes) {
            if was_idle(state) {
                state.virtual_time = state.virtual_time.max(least.unwrap_or(state.virtual_time));
            }
            state.wished = Some(now);
        }
    }

    /// Classifies jobs and sets their slices, as the head of this file says.
    fn set_slices(&mut self, look: &mut Look) {
        for state in self.jobs.values_mut() {
            state.classify();
        }
        // A program that wants the GPU for a moment now and then is there, also while it wants nothing.
        let since = self.looked - CLASSIFY_EVERY;
        let is_there = |it: &JobState| it.wished.is_some_and(|wished| wished >= since);
        let jobs = self.jobs.iter();
        let yielding: Vec<Job> = jobs
            .filter(|(_, it)| it.yields && is_there(it))
            .map(|(&job, _)| job)
            .collect();
        for (&job, state) in &mut self.jobs {
            let is_beside_yielding = yielding.iter().any(|&other| other != job);
            let slice_us = match (state.yields, is_beside_yielding) {
                (true, _) => YIELDING_SLICE_US,
                (false, true) => SLICE_BESIDE_YIELDING_US,
                (false, false) => state.share.of(ROUND_US),
            };
            if std::mem::replace(&mut state.slice_us, slice_us) != slice_us {
                look.slices.push((job, slice_us));
            }
        }
    }

    fn choose_held(&mut self) {
        let least = self.least_virtual_time();
        let is_full = self.is_full();
        for state in self.jobs.values_mut() {
            let has_credit = is_full || state.has_credit();
            // While it waited for credit it did not wait for other jobs.
            if let Some(least) = least.filter(|_| state.held == Some(Held::Capped) && has_credit) {
                state.virtual_time = state.virtual_time.max(least);
            }
            let lead = state.virtual_time - least.unwrap_or(state.virtual_time);
            // The log shows use whatever a job says, and a held job stays held although it says nothing.
            let uses = state.wishes || state.resident > 0 || state.held.is_some();
            let was_held = state.held.is_some();
            state.held = if uses && !has_credit {
                Some(Held::Capped)
            } else if uses && lead > state.max_lead() {
                Some(Held::Ahead)
            } else {
                None
            };
            if was_held && state.held.is_none() {
                state.releasing = RELEASING;
            }
        }
    }

    /// Whether jobs that do not yield want all of the GPU. Then no job can get more than its share, and a job whose
    /// credit runs out by chance is not held.
    fn is_full(&self) -> bool {
        let busy = self.jobs.values();
        let busy = busy.filter(|it| it.wants(self.looked) && !it.yields);
        let shares = busy.map(|it| share_of(it.share, CLASSIFY_EVERY));
        shares.sum::<Nanos>() > CLASSIFY_EVERY * 99 / 100
    }

    /// The time of the next look: before any job could exceed a bound.
    fn next(&self) -> Option<Nanos> {
        let now = self.looked;
        let is_shared = self.jobs.values().filter(|it| it.wants(now)).count() > 1;
        let least = self.least_virtual_time().filter(|_| is_shared);
        let is_full = self.is_full();
        let times = self.jobs.values();
        let times = times.filter_map(|it| it.until_next(least, is_full));
        let soonest = times.min()?.clamp(RECHECK, MAX_INTERVAL);
        Some(now + soonest)
    }
}

impl JobState {
    fn observe(&mut self, now: Nanos, time: Nanos, new: Observed) {
        // A faulty clock or page cannot make an interval longer than it was.
        self.resident = new.resident.clamp(0, time);
        self.pending = new.pending.clamp(0, time);
        self.unseated = new.unseated.clamp(0, time);
        self.credit += share_of(self.share, time);
        if self.held.is_some() {
            // The GPU needs a moment to take it off.
            let is_in_effect = self.held_for >= 2 * RECHECK;
            self.escaped += if is_in_effect { self.resident } else { 0 };
            self.held_for += time;
        } else {
            self.held_for = 0;
        }
        self.cut += new.cut;
        self.left += new.left;
        if self.resident > 0 || self.held.is_some() || !self.wishes {
            self.served = now;
        }
        self.wishes = new.wishes;
    }

    fn classify(&mut self) {
        self.escaped = 0;
        let (cut, left) = (
            std::mem::take(&mut self.cut),
            std::mem::take(&mut self.left),
        );
        if cut + left > 0 {
            self.yields = left > cut;
        }
    }

    fn charge(&mut self, time: Nanos) {
        self.virtual_time += self.to_virtual(time);
        self.charged += time;
        let most = share_of(self.share, MAX_CREDIT);
        self.credit = (self.credit - time).clamp(-MAX_DEBT, most);
    }

    /// Whether it wants the GPU. A job that says so, could be on the GPU and is not, waits for something else.
    fn wants(&self, now: Nanos) -> bool {
        self.wishes && now - self.served <= CLASSIFY_EVERY
    }

    fn max_lead(&self) -> Nanos {
        if self.held.is_some() {
            return RESUME_LEAD;
        }
        let slice = self.slice_us.min(LONGEST_SLICE_US) as Nanos * 1000;
        MAX_LEAD + self.to_virtual(slice)
    }

    /// GPU time as virtual time.
    fn to_virtual(&self, time: Nanos) -> Nanos {
        time * Nanos::from(self.share.per_gpu()) / Nanos::from(self.share.shards().max(1))
    }

    fn is_capped(&self) -> bool {
        self.mode == Mode::Hard && self.share.shards() < self.share.per_gpu()
    }

    fn has_credit(&self) -> bool {
        let least = match self.held {
            None => 1,
            Some(_) => share_of(self.share, RESUME_CREDIT),
        };
        !self.is_capped() || self.credit >= least
    }

    /// Time until it could come to be held, or go on. `least` is the least virtual time, if several jobs want the GPU.
    fn until_next(&self, least: Option<Nanos>, is_full: bool) -> Option<Nanos> {
        let [shards, per_gpu] = [self.share.shards(), self.share.per_gpu()].map(Nanos::from);
        match self.held {
            Some(Held::Ahead) => Some(RECHECK),
            Some(Held::Capped) => {
                Some(self.to_virtual(share_of(self.share, RESUME_CREDIT) - self.credit))
            }
            None if !self.wishes => None,
            None => {
                // If it has the GPU for itself.
                let can_be_capped = self.is_capped() && !is_full;
                let cap = can_be_capped.then(|| self.credit * per_gpu / (per_gpu - shards));
                let lead = least.map(|least| self.max_lead() - (self.virtual_time - least));
                let lead = lead.map(|left| share_of(self.share, left));
                cap.into_iter().chain(lead).min()
            }
        }
    }
}

/// A share of some time.
pub fn share_of(share: Share, time: Nanos) -> Nanos {
    let part = share.of(u64::try_from(time).unwrap_or(0));
    Nanos::try_from(part).unwrap_or(Nanos::MAX)
}
