//! How jobs get their shares of a GPU by the GPU's own scheduler.
//!
//! The GPU runs the channel groups that have work one after the other, each for its time slice. A group without work yields at
//! once, so idle time goes to the groups that have work, and launches are never held back. The scheduler keeps no history, and it
//! knows no jobs. This module adds both, from the GPU's log of context switches:
//!
//! - **Fair shares** by the virtual time of WF2Q+ (J. C. R. Bennett and H. Zhang, "Hierarchical Packet Fair Queueing
//!   Algorithms", IEEE/ACM Transactions on Networking 5(5), 1997), which BFQ uses for disks. A job's weight is its share.
//!   - A job's virtual time is the GPU time that it used, divided by its weight. While slices are short because a job yields, the
//!     changes of groups for it count too: otherwise a job whose kernels are short would have the others pay for its changes.
//!   - A job is backlogged while it wants the GPU and has credit. The GPU's virtual time is the least one of backlogged jobs. It
//!     goes on by at least `LEAST_PACE` of the time, and never goes back. When no job is backlogged, it is the greatest one of all
//!     jobs.
//!   - A job that comes or wakes begins at the GPU's virtual time at least. The lag of a job behind the GPU, and its lead, are
//!     bounded (`MAX_LAG`, `JobState::kept_lead`).
//!   - A job is eligible while its virtual time leads the least one by no more than `JobState::max_lead`. A job that is not
//!     eligible is held. Among eligible jobs the GPU chooses by itself.
//! - **The cap of a job** is a credit that grows by its ceiling's part of the time: its share, or more, as the policy says. What it
//!   saves up is at most its burst, so a job that rests gets the whole GPU for a while, as far as no other job wants it. A job
//!   without credit is held, also if it is alone. A debt is at most its ceiling's part of `DEBT`.
//! - **Time slices.** A job that mostly yields by itself, because its program waits for the GPU, keeps a long slice. Beside such a job
//!   the others get short slices, so that it comes back soon. Where no job yields, slices are long and in proportion to the shares,
//!   since each change of groups costs the GPU 0.14 ms.
//!
//! So of all that a job ever did, a lead of 36 ms and 16 ms divided by its share counts later, and its credit. A job that wants the
//! GPU and has credit is held for 72 ms and 32 ms divided by its share at most, whatever other jobs do or say: 200 ms for a
//! quarter. `simulation::properties` checks these bounds, and the shares, with random jobs and pasts.
//!
//! A group stays on the GPU while it has no work, if no other group has any. No job pays for that: a job is charged at most the time
//! for which it had work, as its processes say. For time that another job waited it is charged by the log, whatever they say.
//! Some of its processes may not be steered: those without a seat, and those whose channels are not known. Their time is charged by
//! the log alone. They cannot be held, so the job's other processes are held for it.
//!
//! Nothing here reads a clock or a file: [`Sharing::look`] is told the time and the observations.

mod idling;
#[cfg(test)]
mod simulation;
mod slices;

use std::collections::BTreeMap;

use softmig_policy::node::limits::{Mode, Share};

use super::gangs::{Phase, Standing};
use super::{Book, Job, Nanos};

const MS: Nanos = 1_000_000;

/// Interval of looks while a job is held until others catch up, and the shortest while one could come to be held.
pub const RECHECK: Nanos = 4 * MS;
/// The longest interval of looks while a job could come to be held.
const MAX_INTERVAL: Nanos = 16 * MS;

/// A job is eligible until its virtual time leads by more than this and one slice of its own, and again when it leads by no more
/// than [`RESUME_LEAD`].
const MAX_LEAD: Nanos = 36 * MS;
const RESUME_LEAD: Nanos = 18 * MS;
/// Beside a job that yields by itself, a gang's phase ends at this lead, and the next begins without one. Each phase costs two calls
/// on all of its GPUs.
const SHORT_PHASE_LEAD: Nanos = 8 * MS;
/// A backlogged job is behind the GPU's virtual time by this at most.
const MAX_LAG: Nanos = 18 * MS;
/// The GPU's virtual time goes on by at least this part of the time, in hundredths. More would take from jobs that wait for each
/// short kernel, as they get less than their share of the time while others have the GPU in between.
const LEAST_PACE: Nanos = 50;

/// A debt is a job's ceiling's part of this time, and at least `LEAST_DEBT`, so that a small share meets its cap by no look that is
/// late.
const DEBT: Nanos = 100 * MS;
const LEAST_DEBT: Nanos = 20 * MS;

/// Interval in which jobs are classified and slices set.
const CLASSIFY_EVERY: Nanos = 100 * MS;
/// The time on the GPU and the time with work are measured one after the other, and the end of work is seen late. A smaller
/// difference between them says nothing.
const INEXACT: Nanos = MS;
/// Time from a look until a job that it released can be on the GPU. The driver's call takes 0.27 to 0.39 ms of it
/// (research/gpu-time.md). Meanwhile it waits for that call, and not for a job that is on the GPU.
const RELEASING: Nanos = 400_000;

/// When a lead is judged, a longer slice counts as this long.
const LONGEST_SLICE_US: u64 = 8_000;

/// The time slice that the driver gives a group, in microseconds.
pub const DEFAULT_SLICE_US: u64 = 2048;

/// Observations of a job since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Time that its groups were on the GPU, by the GPU's log.
    pub resident: Nanos,
    /// Time that the changes of groups took by which it came to the GPU and left it.
    pub changing: Nanos,
    /// Time that it had work on the GPU or waiting for it, as its processes say.
    pub pending: Nanos,
    /// Whether it wants the GPU now, as they say.
    pub wants_gpu: bool,
    /// Times that its slice ended with work left.
    pub cut: u32,
    /// Times that it yielded before.
    pub left: u32,
    /// Time that its processes that cannot be held were on the GPU, by the GPU's log.
    pub unseated: Nanos,
}

/// Decisions of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// New time slices, in microseconds.
    pub slices: Vec<(Job, u64)>,
    /// Time of the next look; `None` while no job wants the GPU or none could come to be held.
    pub next: Option<Nanos>,
}

/// The jobs of one GPU.
#[derive(Clone, Debug)]
pub struct Sharing {
    jobs: BTreeMap<Job, JobState>,
    /// That of the GPU.
    virtual_time: Nanos,
    looked: Nanos,
    classified: Nanos,
    /// Whether a job came that has no slice.
    has_new: bool,
    /// The sums since they were last taken.
    book: Book,
    /// Time of processes of no job since the last look.
    unclaimed: Nanos,
    /// Time in which jobs were held for others, since it was judged whether these use it.
    waited: Nanos,
    /// Whether a job yields by itself, so that slices are short.
    has_yielding: bool,
    /// Which jobs have the GPU, if some of them use several GPUs.
    phase: Phase,
}

#[derive(Clone, Debug)]
struct JobState {
    share: Share,
    mode: Mode,
    /// GPU time charged, with the changes of groups, divided by the share.
    virtual_time: Nanos,
    /// GPU time that it may still use if it is capped; negative for a debt.
    credit: Nanos,
    wants_gpu: bool,
    /// The last look at which it wanted the GPU.
    wanted_gpu: Option<Nanos>,
    /// Whether it wanted the GPU and had credit at the last look.
    is_backlogged: bool,
    /// When it last was on the GPU, or could not be.
    served: Nanos,
    /// When it last was on the GPU, or was held.
    used: Nanos,
    /// No other job waits for it before.
    waited_for_from: Nanos,
    /// Time in which it left the GPU idle of that in which jobs were held for others.
    idle: Nanos,
    held: Option<Held>,
    /// Whether it is held for a gang's phase, or until its own.
    waits_for_phase: bool,
    /// Whether it is a gang whose phases are short.
    has_short_phases: bool,
    /// Whether it was held since the look before.
    was_held: bool,
    /// Time after the last look in which it could not be on the GPU yet, because that look released it.
    releasing: Nanos,
    has_processes: bool,
    /// Observed at this look.
    resident: Nanos,
    changing: Nanos,
    pending: Nanos,
    unseated: Nanos,
    /// Observed since the last classification.
    cut: u32,
    left: u32,
    /// Whether it was on the GPU without work since it came there.
    stays_idle: bool,
    /// Whether it mostly yields by itself.
    yields: bool,
    slice_us: u64,
}

/// Why a job is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Its virtual time leads too far: it is not eligible.
    Ahead,
    /// It has no credit.
    Capped,
}

impl Sharing {
    /// A GPU without jobs.
    pub fn new(now: Nanos) -> Self {
        Self {
            jobs: BTreeMap::new(),
            virtual_time: 0,
            looked: now,
            classified: now,
            has_new: false,
            book: Book::default(),
            unclaimed: 0,
            waited: 0,
            has_yielding: false,
            phase: Phase::default(),
        }
    }

    /// Adds a job, or changes its share. A new job has no credit.
    pub fn add(&mut self, job: Job, share: Share, mode: Mode) {
        let state = self.jobs.entry(job).or_insert_with(|| JobState {
            share,
            mode,
            virtual_time: self.virtual_time,
            credit: 0,
            wants_gpu: false,
            wanted_gpu: None,
            is_backlogged: false,
            served: self.looked,
            used: Nanos::MIN / 2,
            waited_for_from: self.looked,
            idle: 0,
            held: None,
            waits_for_phase: false,
            has_short_phases: false,
            was_held: false,
            releasing: 0,
            has_processes: true,
            resident: 0,
            changing: 0,
            pending: 0,
            unseated: 0,
            cut: 0,
            left: 0,
            stays_idle: false,
            yields: false,
            slice_us: 0,
        });
        (state.share, state.mode, state.has_processes) = (share, mode, true);
        // At the next look it gets a slice.
        self.has_new = true;
    }

    /// The job's last process has gone. The job is forgotten when its debt is paid, and its lead is gone.
    pub fn remove(&mut self, job: Job) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.has_processes = false;
        }
    }

    /// The GPU time that a job may still use; negative for a debt. `None` for a job that is not known.
    pub fn credit(&self, job: Job) -> Option<Nanos> {
        self.jobs.get(&job).map(|state| state.credit)
    }

    /// The share of a job that is known.
    pub fn share(&self, job: Job) -> Option<Share> {
        self.jobs.get(&job).map(|state| state.share)
    }

    /// Something else kept a job's work off the GPU so many times.
    pub fn note_interruptions(&mut self, job: Job, times: u32) {
        self.book.of(job).interruptions += u64::from(times);
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
        Some((!state.is_held(), state.slice_us))
    }

    /// All jobs, without regard to phases.
    pub fn standings(&self) -> BTreeMap<Job, Standing> {
        let least = self.least_virtual_time();
        let standing = |state: &JobState| Standing {
            wants_gpu: state.wants(self.looked),
            may_run: state.held.is_none(),
            lead: state.virtual_time - least.unwrap_or(state.virtual_time),
        };
        let jobs = self.jobs.iter();
        jobs.map(|(&job, state)| (job, standing(state))).collect()
    }

    /// After a look: these jobs have the GPU from now on. Returns the time of the next look.
    pub fn set_phase(&mut self, phase: Phase) -> Option<Nanos> {
        self.phase = phase;
        self.hold_for_phase();
        self.next()
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
        self.advance(time);
        let is_over = now - self.classified >= CLASSIFY_EVERY;
        if is_over {
            self.classified = now;
            self.jobs.values_mut().for_each(JobState::classify);
        }
        if std::mem::take(&mut self.has_new) || is_over {
            self.set_slices(&mut look);
        }
        self.choose_held();
        self.hold_for_phase();
        let virtual_time = self.virtual_time;
        self.jobs
            .retain(|_, it| it.has_processes || it.credit < 0 || it.virtual_time > virtual_time);
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
            let is_held = state.is_held();
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
            let wanted = others.map(|&(_, waited)| waited).max().unwrap_or(0);
            let unwanted = time - wanted;
            let at_work = state.resident.min(state.pending);
            let beside = if self.phase.running == Some(job) {
                // Nobody else may be there, whether it works or not.
                at_work.max(wanted - state.releasing)
            } else {
                at_work.max(state.resident - unwanted)
            };
            // All their time is charged, since no process says for how long they had work.
            let due = (beside + state.unseated).min(time);
            let changing = if self.has_yielding { state.changing } else { 0 };
            state.charge(due, changing);
            state.releasing = (state.releasing - time).max(0);
            self.book.charge(job, due);
        }
        self.note_idle(time);
    }

    /// Lets the GPU's virtual time go on, and keeps the jobs' near it.
    fn advance(&mut self, time: Nanos) {
        let now = self.looked;
        let mut reached: Option<Nanos> = None;
        for state in self.jobs.values_mut() {
            if state.wants_gpu {
                state.wanted_gpu = Some(now);
            }
            let was_backlogged = state.is_backlogged;
            state.is_backlogged = state.wants(now) && state.held != Some(Held::Capped);
            // A job that comes, or wakes, begins where the others are.
            if was_backlogged && state.is_backlogged {
                let least = reached.map_or(state.virtual_time, |it| it.min(state.virtual_time));
                reached = Some(least);
            }
        }
        if !self.jobs.values().any(|it| it.is_backlogged) {
            // At the end of a busy period all jobs are equal again.
            reached = self.jobs.values().map(|it| it.virtual_time).max();
        }
        let paced = self.virtual_time + time * LEAST_PACE / 100;
        self.virtual_time = paced.max(reached.unwrap_or(paced));
        for state in self.jobs.values_mut() {
            let lag = if state.is_backlogged { MAX_LAG } else { 0 };
            let most = self.virtual_time + state.kept_lead();
            state.virtual_time = state.virtual_time.clamp(self.virtual_time - lag, most);
        }
    }

    /// The least virtual time of the jobs that want the GPU and have credit.
    fn least_virtual_time(&self) -> Option<Nanos> {
        let backlogged = self.jobs.values().filter(|it| it.is_backlogged);
        backlogged.map(|it| it.virtual_time).min()
    }

    fn choose_held(&mut self) {
        let least = self.least_virtual_time();
        for state in self.jobs.values_mut() {
            let has_credit = state.has_credit();
            let lead = state.virtual_time - least.unwrap_or(state.virtual_time);
            // The log shows use whatever a job says, and a held job stays held although it says nothing.
            let uses = state.wants_gpu || state.resident > 0 || state.held.is_some();
            state.was_held = state.is_held();
            state.held = if uses && !has_credit {
                Some(Held::Capped)
            } else if uses && lead > state.max_lead() {
                Some(Held::Ahead)
            } else {
                None
            };
        }
    }

    fn hold_for_phase(&mut self) {
        for (&job, state) in &mut self.jobs {
            state.waits_for_phase = self.phase.holds(job);
            if state.was_held {
                state.releasing = if state.is_held() { 0 } else { RELEASING };
            }
        }
    }

    /// The time of the next look: before any job could exceed a bound.
    fn next(&self) -> Option<Nanos> {
        // Also a job that is not waited for any more: it may be served again, and nothing wakes the arbiter.
        let is_shared = self
            .jobs
            .values()
            .filter(|it| it.may_use(self.looked))
            .count()
            > 1;
        let least = self.least_virtual_time().filter(|_| is_shared);
        let until = self
            .jobs
            .values()
            .filter_map(|it| it.until_next(self.looked, least));
        let waits = self.jobs.values().any(|it| it.waits_for_phase);
        let phase = waits.then_some(RECHECK);
        let until = until.chain(phase);
        let soonest = until.chain(is_shared.then_some(MAX_INTERVAL)).min()?;
        // A job that rests may begin at any time: a wake-up does not change that before the next look.
        let free = self.jobs.values().filter(|it| !it.is_held());
        let soonest = free
            .filter_map(JobState::until_capped)
            .fold(soonest, Nanos::min);
        Some(self.looked + soonest.clamp(RECHECK, MAX_INTERVAL))
    }
}

impl JobState {
    fn observe(&mut self, now: Nanos, time: Nanos, new: Observed) {
        // A faulty clock or page cannot make an interval longer than it was.
        self.resident = new.resident.clamp(0, time);
        self.changing = new.changing.clamp(0, time);
        self.pending = new.pending.clamp(0, time);
        self.unseated = new.unseated.clamp(0, time);
        self.credit += share_of(self.ceiling(), time);
        // While other jobs are held it stays there without work, for longer than its slice.
        self.stays_idle |= self.resident - self.pending > INEXACT;
        if self.stays_idle {
            self.left += new.left + new.cut;
        } else {
            (self.left, self.cut) = (self.left + new.left, self.cut + new.cut);
        }
        self.stays_idle &= new.left + new.cut == 0;
        if self.resident > 0 || self.is_held() || !self.wants_gpu {
            self.served = now;
        }
        if self.resident > 0 || self.is_held() {
            self.used = now;
        }
        self.wants_gpu = new.wants_gpu;
    }

    fn charge(&mut self, time: Nanos, changing: Nanos) {
        self.virtual_time += self.to_virtual(time + changing);
        let debt = most_debt(self.ceiling());
        // A busy job that could save up less would lose its share's part of the time for which it is held for others.
        let most = (Nanos::from(self.mode.burst_ms) * MS).max(debt);
        self.credit = (self.credit - time).clamp(-debt, most);
    }

    fn is_held(&self) -> bool {
        self.held.is_some() || self.waits_for_phase
    }

    /// Whether it wants the GPU. A job that says so, could be on the GPU and is not, waits for something else.
    fn wants(&self, now: Nanos) -> bool {
        let is_served = now - self.served <= CLASSIFY_EVERY;
        self.wants_gpu && is_served && (now >= self.waited_for_from || self.waits_for_phase)
    }

    /// Whether it may be on the GPU until the next look. The log shows use whatever a job says.
    fn may_use(&self, now: Nanos) -> bool {
        self.wants_gpu || now - self.used < CLASSIFY_EVERY
    }

    /// The lead over the GPU's virtual time that counts later: that of a job which has used the GPU alone until the next look.
    fn kept_lead(&self) -> Nanos {
        MAX_LEAD + self.to_virtual(MAX_INTERVAL)
    }

    fn max_lead(&self) -> Nanos {
        if self.has_short_phases {
            return if self.held.is_some() {
                0
            } else {
                SHORT_PHASE_LEAD
            };
        }
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

    /// The part of the time that it may have in the long run.
    fn ceiling(&self) -> Share {
        self.mode.ceiling_of(self.share)
    }

    fn is_capped(&self) -> bool {
        let [shards, per_gpu] = parts(self.ceiling());
        shards < per_gpu
    }

    fn has_credit(&self) -> bool {
        let least = match self.held {
            None => 1,
            Some(_) => resume_credit(self.ceiling()),
        };
        !self.is_capped() || self.credit >= least
    }

    /// Time until it could come to be held, or go on. `least` is the least virtual time, if several jobs want the GPU.
    fn until_next(&self, now: Nanos, least: Option<Nanos>) -> Option<Nanos> {
        match self.held {
            Some(Held::Ahead) => Some(RECHECK),
            Some(Held::Capped) => {
                let missing = resume_credit(self.ceiling()) - self.credit;
                let [shards, per_gpu] = parts(self.ceiling());
                Some(missing * per_gpu / shards)
            }
            None if !self.may_use(now) => None,
            None => {
                let lead = least.map(|least| {
                    let left = self.max_lead() - (self.virtual_time - least);
                    share_of(self.share, left)
                });
                self.until_capped().into_iter().chain(lead).min()
            }
        }
    }

    /// Time until its credit is used, if it has the GPU for itself.
    fn until_capped(&self) -> Option<Nanos> {
        let [shards, per_gpu] = parts(self.ceiling());
        self.is_capped()
            .then(|| self.credit * per_gpu / (per_gpu - shards))
    }
}

/// The most GPU time that a job with this ceiling can owe, in nanoseconds.
fn most_debt(ceiling: Share) -> Nanos {
    share_of(ceiling, DEBT).max(LEAST_DEBT)
}

/// With this credit a job goes on that had none.
fn resume_credit(ceiling: Share) -> Nanos {
    share_of(ceiling, 30 * MS)
}

fn parts(share: Share) -> [Nanos; 2] {
    [share.shards(), share.per_gpu()].map(Nanos::from)
}

/// A share of some time.
pub fn share_of(share: Share, time: Nanos) -> Nanos {
    let part = share.part_of(u64::try_from(time).unwrap_or(0));
    Nanos::try_from(part).unwrap_or(Nanos::MAX)
}
