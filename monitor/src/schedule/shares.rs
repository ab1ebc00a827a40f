//! How jobs share a GPU by the GPU's own scheduler.
//!
//! The GPU takes the channel groups that have work one after the other, each for its time slice; one that has nothing more to
//! do leaves at once. So idle time goes to whoever has work, and no launch is held back. The scheduler remembers nothing, and
//! knows no jobs. What it lacks is decided here, some hundred times a second, from what the GPU's log says:
//!
//! - **Who is ahead waits.** Each job is charged the time for which its groups were on the GPU. One that has had more of its
//!   share than another that wants the GPU is taken out of the list until that one has come up (`LEAD`, `RESUME`).
//! - **The cap of a `hard` job** is a credit that grows by its share of the time. Without credit it is taken out as well, also
//!   where it is alone.
//! - **Time slices.** A job that mostly leaves by itself, since its program waits for the GPU, is not interrupted; beside such
//!   a job the others have short slices, so that its turn comes soon. Where all would go on for ever slices are long, since each
//!   change costs the GPU 0.14 ms.
//!
//! A group stays on the GPU while it has nothing to do, as long as nobody else has either. For that nobody pays: a job is
//! charged no more than the time for which it had work, as its processes say. As long as another job had work, it pays all the
//! same, whatever they say.
//!
//! Nothing here reads a clock or a file: [`Sharing::look`] is told what time it is and what was heard.

#![forbid(unsafe_code)]

#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

use softmig_policy::limits::{Mode, Share};

use crate::schedule::turns::{Job, Nanos};

const MS: Nanos = 1_000_000;

/// How often to look while a job waits for others to come up.
pub const TICK: Nanos = 4 * MS;
/// No look comes sooner after another, and none later while jobs want the GPU.
const SOONEST: Nanos = 2 * MS;
const LATEST: Nanos = 16 * MS;
/// A job that is further ahead of another than this and a slice of its own waits; as time, of which both should have had their
/// shares.
const LEAD: Nanos = 40 * MS;
/// Until it is no further ahead than this.
const RESUME: Nanos = 20 * MS;
/// How much time's share a job can save up, and what it needs of that to begin again.
const SAVINGS: Nanos = 100 * MS;
const ENOUGH: Nanos = 30 * MS;
/// In what time it shows what jobs are like.
const SPAN: Nanos = 100 * MS;
/// A job that had no work for so long claims nothing for the time before.
const REST: Nanos = 5 * MS;
/// A job whose channels do not run is not on the GPU. One that is all the same, for so long of [`SPAN`], cannot be held.
const ESCAPED: Nanos = 30 * MS;
/// Nobody owes more.
const DEEPEST_DEBT: Nanos = 1_000 * MS;

/// Time slices, in microseconds: of a job that leaves by itself, and of the others beside one.
const WHOLE_SLICE: u64 = 16_000;
const SHORT_SLICE: u64 = 2_000;
/// Where there is none, all have their shares of a round, which is so long that the longest slice is [`LONG_SLICE`], but between
/// these two.
const LONG_SLICE: u64 = 8_000;
const ROUNDS: [u64; 2] = [16_000, 40_000];

/// The time slice that the driver gives a group.
pub const DRIVERS_SLICE: u64 = 2048;

/// What was heard of a job since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// For how long its groups were on the GPU, by the GPU's log.
    pub resident: Nanos,
    /// For how long it had work on the GPU or waiting for it, as its processes say.
    pub pending: Nanos,
    /// Whether it has work now, as they say.
    pub wishes: bool,
    /// How often a group of its was interrupted at the end of its slice.
    pub cut: u32,
    /// How often one left before.
    pub left: u32,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// New time slices, in microseconds.
    pub slices: Vec<(Job, u64)>,
    /// Who was on the GPU although its channels were not to run.
    pub escaped: Vec<Job>,
    /// When to look again; `None` while nobody wants the GPU, or nobody could have less of it.
    pub next: Option<Nanos>,
}

/// The jobs of one GPU.
#[derive(Clone, Debug)]
pub struct Sharing {
    members: BTreeMap<Job, Member>,
    looked: Nanos,
    chosen: Nanos,
}

/// A job.
#[derive(Clone, Debug)]
struct Member {
    share: Share,
    mode: Mode,
    /// What it had of the GPU, as time in which it should have had that.
    served: Nanos,
    /// What it may still have; below zero, what it owes.
    credit: Nanos,
    charged: Nanos,
    /// Whether it wants the GPU, and when it last did.
    wishes: bool,
    wished: Option<Nanos>,
    /// When it last had the GPU, or could not have it.
    had: Nanos,
    /// Since when its channels have not been to run, and for how long it was on the GPU all the same, of late.
    held: Nanos,
    escaped: Nanos,
    /// Whether it has processes here.
    is_here: bool,
    /// Since the look before the last: for how long it was on the GPU, and for how long it had work.
    resident: Nanos,
    pending: Nanos,
    /// How often its groups were interrupted of late, and how often they left.
    cut: u32,
    left: u32,
    why: Why,
    leaves: bool,
    slice: u64,
}

/// Whether a job's channels run, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    On,
    /// It is ahead of others.
    Ahead,
    /// It has no credit.
    Capped,
}

impl Sharing {
    /// Nobody is there.
    pub fn new(now: Nanos) -> Self {
        Self {
            members: BTreeMap::new(),
            looked: now,
            chosen: now,
        }
    }

    /// A job comes, or has another share.
    pub fn come(&mut self, job: Job, share: Share, mode: Mode, credit: Nanos) {
        let member = self.members.entry(job).or_insert_with(|| Member {
            share,
            mode,
            served: 0,
            // Where all the GPU's time is used, what all have saved up stays the same. Without any, caps would be reached by chance.
            credit: part(share, SAVINGS) + credit.min(0),
            charged: 0,
            wishes: false,
            wished: None,
            had: self.looked,
            held: 0,
            escaped: 0,
            is_here: true,
            resident: 0,
            pending: 0,
            cut: 0,
            left: 0,
            why: Why::On,
            leaves: false,
            slice: 0,
        });
        (member.share, member.mode, member.is_here) = (share, mode, true);
        // It has a slice soon.
        self.chosen = Nanos::MIN / 2;
    }

    /// A job's last process has gone. What it owes is remembered until that is paid.
    pub fn leave(&mut self, job: Job) {
        if let Some(member) = self.members.get_mut(&job) {
            member.is_here = false;
        }
    }

    /// What a job may still have, and was charged here.
    pub fn standing(&self, job: Job) -> Option<(Nanos, Nanos)> {
        let member = self.members.get(&job)?;
        Some((member.credit, member.charged))
    }

    /// Whether a job's channels are to run, and their time slice in microseconds; 0 for [`DRIVERS_SLICE`].
    pub fn state(&self, job: Job) -> Option<(bool, u64)> {
        let member = self.members.get(&job)?;
        Some((member.is_on(), member.slice))
    }

    /// Decides what is to be done now.
    pub fn look(&mut self, now: Nanos, heard: &BTreeMap<Job, Heard>) -> Look {
        let mut look = Look::default();
        let time = now - self.looked;
        self.looked = now;
        for (job, member) in &mut self.members {
            member.hear(now, time, heard.get(job).copied().unwrap_or_default());
        }
        self.charge(time);
        self.welcome(time);
        if now - self.chosen >= SPAN {
            self.chosen = now;
            self.choose_slices(&mut look);
        }
        let escaped = self.members.iter().filter(|(_, it)| it.escaped >= ESCAPED);
        look.escaped = escaped.map(|(&job, _)| job).collect();
        self.switch();
        self.members
            .retain(|_, it| it.is_here || it.credit < part(it.share, SAVINGS));
        look.next = self.next();
        look
    }

    /// Charges the time since the last look. Nobody pays for a GPU that nobody wanted.
    fn charge(&mut self, time: Nanos) {
        // Whoever has no credit waits for that, and not for others.
        let waited: Vec<(Job, Nanos)> = (self.members.iter())
            .filter(|(_, it)| it.wants(self.looked) && it.why != Why::Capped)
            .map(|(&job, it)| (job, it.pending))
            .collect();
        for (&job, member) in &mut self.members {
            let others = waited.iter().filter(|(other, _)| *other != job);
            let idle = time - others.map(|&(_, waited)| waited).max().unwrap_or(0);
            let due = member.resident.min(member.pending);
            member.charge(due.max(member.resident - idle));
        }
    }

    /// How far the one is that is furthest behind of those that want the GPU, and are not waiting for credit.
    fn least(&self) -> Option<Nanos> {
        let wanting = self.members.values().filter(|it| it.wants(self.looked));
        let wanting = wanting.filter(|it| it.why != Why::Capped);
        wanting.map(|it| it.served).min()
    }

    /// Who was away for a while comes in where the others are.
    fn welcome(&mut self, time: Nanos) {
        let now = self.looked;
        let is_back = |it: &Member| it.wished.is_none_or(|wished| now - wished > time + REST);
        let others = self.members.values().filter(|it| it.wishes && !is_back(it));
        let least = others.map(|it| it.served).min();
        for member in self.members.values_mut().filter(|it| it.wishes) {
            if is_back(member) {
                member.served = member.served.max(least.unwrap_or(member.served));
            }
            member.wished = Some(now);
        }
    }

    /// See the head of the file.
    fn choose_slices(&mut self, look: &mut Look) {
        for member in self.members.values_mut() {
            member.escaped = 0;
            let (cut, left) = (
                std::mem::take(&mut member.cut),
                std::mem::take(&mut member.left),
            );
            if cut + left > 0 {
                member.leaves = left > cut;
            }
        }
        let staying = self.members.values().filter(|it| it.wishes && !it.leaves);
        let rounds = staying.map(|it| it.as_served(LONG_SLICE as Nanos).unsigned_abs());
        let [least, most] = ROUNDS;
        let round = rounds.min().unwrap_or(most).clamp(least, most);
        let wanted = self.members.iter().filter(|(_, it)| it.wishes && it.leaves);
        let leaving: Vec<Job> = wanted.map(|(&job, _)| job).collect();
        for (&job, member) in &mut self.members {
            let is_beside = leaving.iter().any(|&other| other != job);
            let slice = match (member.leaves, is_beside) {
                (true, _) => WHOLE_SLICE,
                (false, true) => SHORT_SLICE,
                (false, false) => part(member.share, round as Nanos).unsigned_abs(),
            };
            if std::mem::replace(&mut member.slice, slice) != slice {
                look.slices.push((job, slice));
            }
        }
    }

    /// Who is ahead waits, and who has no credit.
    fn switch(&mut self) {
        let least = self.least();
        let is_full = self.is_full();
        for member in self.members.values_mut() {
            // Who waited for credit has not waited for others.
            let has_credit = is_full || member.has_credit();
            let is_back = member.why == Why::Capped && has_credit;
            if let Some(least) = least.filter(|_| is_back) {
                member.served = member.served.max(least);
            }
            let lead = member.served - least.unwrap_or(member.served);
            // The log knows who uses the GPU, whatever that one says; and who waits goes on waiting, without saying so.
            let uses = member.wishes || member.resident > 0 || !member.is_on();
            member.why = if uses && !has_credit {
                Why::Capped
            } else if uses && lead > member.most_lead() {
                Why::Ahead
            } else {
                Why::On
            };
        }
    }

    /// Whether jobs want all of the GPU that never leave it by themselves: then nobody gets more than its share, and credit that is
    /// used up by chance is no reason to wait.
    fn is_full(&self) -> bool {
        let busy = self.members.values();
        let busy = busy.filter(|it| it.wants(self.looked) && !it.leaves);
        busy.map(|it| part(it.share, SPAN)).sum::<Nanos>() > SPAN * 99 / 100
    }

    /// When to look again: before anybody could have more than it should.
    fn next(&self) -> Option<Nanos> {
        let now = self.looked;
        let wanting = self.members.values().filter(|it| it.wants(now));
        let is_shared = wanting.count() > 1;
        let least = self.least().filter(|_| is_shared);
        let is_full = self.is_full();
        let times = self.members.values();
        let times = times.filter_map(|it| it.until_next(least, is_full));
        let soonest = times.min()?.clamp(SOONEST, LATEST);
        Some(now + soonest)
    }
}

impl Member {
    /// What was heard of it since the last look.
    fn hear(&mut self, now: Nanos, time: Nanos, new: Heard) {
        // No clock and no page makes more of a stretch of time than it was.
        self.resident = new.resident.clamp(0, time);
        self.pending = new.pending.clamp(0, time);
        self.credit += part(self.share, time);
        if self.is_on() {
            self.held = 0;
        } else {
            // Until the GPU knows.
            let is_known = self.held >= 2 * TICK;
            self.escaped += if is_known { self.resident } else { 0 };
            self.held += time;
        }
        self.cut += new.cut;
        self.left += new.left;
        if self.resident > 0 || !self.is_on() || !self.wishes {
            self.had = now;
        }
        self.wishes = new.wishes;
    }

    /// Pays for so much of the GPU's time; less than nothing is given back.
    fn charge(&mut self, time: Nanos) {
        self.served += self.as_served(time);
        self.charged += time;
        self.credit = (self.credit - time).clamp(-DEEPEST_DEBT, part(self.share, SAVINGS));
    }

    /// Whether it wants the GPU. Who could have it and does not take it waits for something else.
    fn wants(&self, now: Nanos) -> bool {
        self.wishes && now - self.had <= SPAN
    }

    fn is_on(&self) -> bool {
        self.why == Why::On
    }

    fn most_lead(&self) -> Nanos {
        if self.is_on() {
            let slice = self.slice.min(LONG_SLICE) as Nanos * 1000;
            LEAD + self.as_served(slice)
        } else {
            RESUME
        }
    }

    /// The time in which it should have had so much of the GPU.
    fn as_served(&self, time: Nanos) -> Nanos {
        time * Nanos::from(self.share.per_gpu()) / Nanos::from(self.share.shards().max(1))
    }

    fn is_capped(&self) -> bool {
        self.mode == Mode::Hard && self.share.shards() < self.share.per_gpu()
    }

    fn has_credit(&self) -> bool {
        let least = if self.is_on() {
            1
        } else {
            part(self.share, ENOUGH)
        };
        !self.is_capped() || self.credit >= least
    }

    /// In what time it could be to wait, or to go on. `least` is how far the one is that is furthest behind, if several want the
    /// GPU.
    fn until_next(&self, least: Option<Nanos>, is_full: bool) -> Option<Nanos> {
        let [shards, per_gpu] = [self.share.shards(), self.share.per_gpu()].map(Nanos::from);
        match self.why {
            Why::Ahead => Some(TICK),
            Why::Capped => Some(self.as_served(part(self.share, ENOUGH) - self.credit)),
            Why::On if !self.wishes => None,
            Why::On => {
                // Where it has the GPU for itself.
                let can_be_capped = self.is_capped() && !is_full;
                let cap = can_be_capped.then(|| self.credit * per_gpu / (per_gpu - shards));
                let lead = self.served - least.unwrap_or(self.served);
                let lead = least.map(|_| part(self.share, self.most_lead() - lead));
                cap.into_iter().chain(lead).min()
            }
        }
    }
}

/// A share of a stretch of time.
fn part(share: Share, time: Nanos) -> Nanos {
    let part = share.of(u64::try_from(time).unwrap_or(0));
    Nanos::try_from(part).unwrap_or(Nanos::MAX)
}
