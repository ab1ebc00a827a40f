//! The turns on one GPU: which job has one, and when.
//!
//! Jobs take turns: while one launches, no other's work is on the GPU. Each job has a credit, which grows by its share of
//! the time that passes and pays for its turns (`credit`); the job that is furthest behind its share comes next.
//!
//! - A turn is the job's share of an epoch. While no other job waits, the turn has no end: it goes on as long as there
//!   is credit (`hard`), or as long as the job likes (`soft`). As soon as another job waits, the turn ends after the
//!   rest of its time.
//! - A job needs the credit for a whole turn to get one, so that turns do not crumble. Time that goes by meanwhile
//!   makes the credit of all jobs grow, so if the shares use the whole GPU, one of the jobs soon has enough.
//! - If no job has enough, the idle time is dealt out to the `soft` jobs that want it, by their shares, until one has
//!   enough.
//! - A job that wakes and has used little of late does not wait for the whole turn of a busy one.
//! - A turn is over when each process that was let into it has said that it is done; the last of its work may run for a
//!   moment, which the next one is told ([`Terms::from`]) and does not pay for. A process with no answer in time
//!   is late: others go on without it, and it gets no turns until it answers, or for some seconds.
//! - In a turn that begins while others want one, a job's processes have the GPU one after the other (`parts`).
//! - A job whose work on one GPU waits for that on another has its turns on both together (`gangs`).
//!
//! Nothing here reads a clock, a page or a file: [`Turns::hear`] is told what the seats say, [`Turns::look`] what time it
//! is, and what that leads to comes back as [`Order`]s. So whole days can be tried in a second (see `simulation`).

#![forbid(unsafe_code)]

mod book;
mod credit;
mod gangs;
mod off;
mod order;
mod part;
mod parts;
#[cfg(test)]
mod simulation;
mod stand;
mod state;
mod tenant;
mod turn;
mod types;

use std::collections::BTreeMap;

use softmig_policy::node::limits::{Mode, Share};

pub use book::{Book, Totals};
use credit::Bounds;
pub use stand::{Gangs, Stand};
pub use state::Turns;
use tenant::{Seat, Tenant};
use types::LONGEST_TAIL;
pub use types::{Job, Look, Nanos, Order, Rules, Said, SeatId, Terms};

/// The state of a job, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The job.
    pub job: Job,
    /// Its share of the GPU.
    pub share: Share,
    /// Cap or share.
    pub mode: Mode,
    /// Since when the job is known here.
    pub since: Nanos,
    /// How many of its processes use the GPU.
    pub seats: usize,
    /// Whether it has the turn.
    pub holds: bool,
    /// Whether it wants to launch, or has work under way.
    pub wishes: bool,
    /// GPU time that it may still take, or below zero, that it owes.
    pub credit: Nanos,
    /// GPU time that it was charged in all.
    pub charged: Nanos,
    /// How many turns it had.
    pub turns: u64,
    /// How many of them it did not give back in time.
    pub overruns: u64,
}

impl Turns {
    /// A GPU that no job uses.
    pub fn new(now: Nanos, rules: Rules) -> Self {
        Self {
            rules,
            tenants: BTreeMap::new(),
            turn: None,
            last_holder: None,
            free_at: now,
            settled: now,
            is_off: false,
            last_seat: 0,
            book: Book::default(),
        }
    }

    /// A process of a job comes.
    pub fn sit(&mut self, now: Nanos, job: Job, share: Share, mode: Mode) -> SeatId {
        self.settle(now);
        let turn = self.turn_length(share);
        let tenant = self.tenants.entry(job).or_insert_with(|| {
            let mut tenant = Tenant::new(now, share, mode);
            tenant.account.credit = turn;
            tenant
        });
        tenant.account.share = share;
        tenant.account.mode = mode;
        self.last_seat += 1;
        let seat = SeatId {
            job,
            number: self.last_seat,
        };
        tenant.seats.insert(seat, Seat::new(now));
        seat
    }

    /// A process has gone, and its work with it. Use in its turn that it did not tell of is charged as if it had been
    /// busy all the time.
    pub fn leave(&mut self, now: Nanos, seat: SeatId) {
        let began = self.turn.filter(|turn| turn.job == seat.job);
        let Some(tenant) = self.tenants.get_mut(&seat.job) else {
            return;
        };
        let gone = tenant.seats.remove(&seat);
        if let Some(turn) = began
            && gone.is_some_and(|gone| gone.is_in() && gone.wishes())
        {
            let began = turn.part.map_or(turn.began, |part| part.from);
            tenant.account.note_used((now - began).max(0));
        }
    }

    /// A process says something.
    pub fn hear(&mut self, seat: SeatId, said: Said) {
        let Some(tenant) = self.tenants.get_mut(&seat.job) else {
            return;
        };
        let Some(place) = tenant.seats.get_mut(&seat) else {
            return;
        };
        let used = place.hear(said);
        tenant.account.note_used(used);
        if used > 0 {
            self.note_tail(seat.job, used);
        }
    }

    /// A job used the GPU while another had the turn: its last work, which the other does not pay for.
    fn note_tail(&mut self, job: Job, used: Nanos) {
        let turn = self.turn.as_mut().filter(|turn| turn.job != job);
        let Some(turn) = turn else { return };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        // A job that says more pays for more, but others do not pay less for that.
        let time = used.min(LONGEST_TAIL - turn.tail);
        turn.tail += time;
        holder.account.note_blocked(-time);
    }

    /// Decides what is to be done now.
    pub fn look(&mut self, now: Nanos) -> Look {
        self.settle(now);
        for tenant in self.tenants.values_mut() {
            tenant.note_answers(now);
        }
        self.note_wishes(now);
        self.forget_the_gone();
        let mut orders = Vec::new();
        if self.turn.is_some_and(|turn| turn.ended.is_none()) {
            if self.is_over(now) {
                self.close(now, &mut orders);
                // A process that wished at the same moment may have seen the turn open.
                let next = Some(now);
                return Look { orders, next };
            }
            if self.turn.is_some_and(|turn| turn.part.is_some()) {
                self.note_that_others_wait(now);
                self.go_on_in_parts(now, &mut orders);
            } else {
                self.go_on(now, &mut orders);
            }
        } else {
            self.wait_for_the_last_work(now);
            if self.turn.is_none() {
                self.give_turn(now, &mut orders);
            }
        }
        let next = self.next(now);
        Look { orders, next }
    }

    /// All jobs with processes here.
    pub fn standings(&self) -> impl Iterator<Item = JobStatus> {
        self.known().filter(|it| it.seats > 0)
    }

    /// The same, and those that are remembered for what they owe.
    pub fn known(&self) -> impl Iterator<Item = JobStatus> {
        self.tenants.iter().map(|(&job, tenant)| JobStatus {
            job,
            share: tenant.account.share,
            mode: tenant.account.mode,
            since: tenant.since,
            seats: tenant.seats.len(),
            holds: self.turn.is_some_and(|turn| turn.job == job),
            wishes: tenant.wishes(),
            credit: tenant.account.credit,
            charged: tenant.account.charged,
            turns: tenant.turns,
            overruns: tenant.overruns,
        })
    }

    /// The sums of all jobs that had turns here.
    pub fn book(&mut self) -> &mut Book {
        &mut self.book
    }

    /// Until when a process gets no turn because it did not answer, unless it does; `None` for one that is in time.
    pub fn is_late_until(&self, seat: SeatId) -> Option<Nanos> {
        let seat = self.tenants.get(&seat.job)?.seats.get(&seat)?;
        seat.is_late_until()
    }

    // --- Time ---

    /// Accounts for the time until now, in which everything was as it was left by the last look.
    fn settle(&mut self, now: Nanos) {
        let from = self.settled;
        self.settled = now;
        if self.is_off {
            // Time is accounted for elsewhere.
            return;
        }
        let holder = self.turn.map(|turn| turn.job);
        let is_alone = self.turn.is_some_and(|turn| turn.until.is_none());
        if let Some(job) = holder {
            let blocked = self
                .others_waited_since(job, from)
                .map_or(0, |since| now - since.min(now));
            if let Some(tenant) = self.tenants.get_mut(&job) {
                tenant.account.note_blocked(blocked);
            }
        }
        let epoch = self.epoch();
        let rules = self.rules;
        for (&job, tenant) in &mut self.tenants {
            let account = &mut tenant.account;
            let holds = holder == Some(job);
            let waits = tenant.wishes_since.is_some() && !holds;
            // Others do not keep it waiting as long as it could not begin elsewhere.
            let could = tenant.elsewhere.is_none_or(|there| there.from() <= from);
            let savings = if could {
                rules.savings
            } else {
                rules.savings / 4
            };
            let idle_most = 2 * account.part_of(epoch).max(rules.shortest_turn);
            let most = if waits {
                idle_most.max(account.part_of(savings))
            } else {
                idle_most
            };
            let is_borrowed = holds && is_alone && account.mode == Mode::Soft;
            let before = account.charged;
            account.settle(from, now, Bounds { most, is_borrowed });
            self.book.charge(job, account.charged - before);
            if waits {
                self.book.wait(job, now - from);
            }
        }
    }

    /// The credit that it lacks for a turn.
    fn missing(&self, tenant: &Tenant) -> Nanos {
        self.turn_length(tenant.account.share) - tenant.account.credit
    }

    fn epoch(&self) -> Nanos {
        let busy = self.tenants.values().filter(|it| it.wishes_since.is_some());
        let many = Nanos::try_from(busy.count()).unwrap_or(Nanos::MAX);
        many.saturating_mul(self.rules.mean_turn)
            .clamp(self.rules.epoch, self.rules.longest_epoch)
    }

    fn turn_length(&self, share: Share) -> Nanos {
        let epoch = u64::try_from(self.epoch()).unwrap_or(0);
        let turn = Nanos::try_from(share.part_of(epoch)).unwrap_or(Nanos::MAX);
        turn.max(self.rules.shortest_turn)
    }

    // --- What was heard ---

    fn note_wishes(&mut self, now: Nanos) {
        for tenant in self.tenants.values_mut() {
            tenant.wishes_since = match tenant.wishes() {
                true => tenant.wishes_since.or(Some(now)),
                false => None,
            };
        }
    }

    /// A job without processes is remembered until it could come anew without gaining by that.
    fn forget_the_gone(&mut self) {
        let holder = self.turn.map(|turn| turn.job);
        let is_gone = |&(&job, tenant): &(&Job, &Tenant)| {
            tenant.seats.is_empty() && self.missing(tenant) <= 0 && holder != Some(job)
        };
        let gone = self.tenants.iter().filter(is_gone);
        let gone: Vec<Job> = gone.map(|(&job, _)| job).collect();
        self.tenants.retain(|job, _| !gone.contains(job));
    }
}
