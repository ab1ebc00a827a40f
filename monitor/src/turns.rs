//! Who has the turn on one GPU.
//!
//! Jobs take turns: while one launches, no other's work is on the GPU. Each job has a credit, which grows by its share of
//! the time that passes and pays for its turns (`account`); the job that is furthest behind its share comes next.
//!
//! - A turn is the job's share of an epoch. While nobody waits for its end it has none: it goes on as long as there is
//!   credit (`hard`), or as long as the job likes (`soft`). As soon as somebody waits, it ends after what is left of it.
//! - A job needs the credit for a whole turn to get one, so that turns do not crumble. Time that goes by meanwhile makes
//!   everybody's credit grow, so where the shares are all that there is, soon somebody always has enough.
//! - If nobody has, the idle time is dealt out to the `soft` jobs that want it, by their shares, until one has enough.
//! - A job that wakes and has used little of late does not wait for the whole turn of a busy one.
//! - A turn is over when each process that was let into it has said that it is done; the last of its work may run for a
//!   moment, which the next one is told ([`Terms::from`]) and does not pay for. Who does not answer in time
//!   is late: others go on without it, and it gets no more turns until it answers, or for some seconds.
//! - In a turn that begins while others want one, a job's processes have the GPU one after the other (`parts`).
//! - A job whose work on one GPU waits for that on another has its turns on both together (`gangs`).
//!
//! Nothing here reads a clock, a page or a file: [`Turns::hear`] is told what the seats say, [`Turns::look`] what time it
//! is, and what that leads to comes back as [`Order`]s. So whole days can be tried in a second (see `simulation`).

#![forbid(unsafe_code)]

mod account;
mod gangs;
mod order;
mod parts;
#[cfg(test)]
mod simulation;
mod tenant;

use std::collections::BTreeMap;

use softmig_policy::limits::{Mode, Share};
use softmig_region::seat::{CONTENDED, OPEN};

use account::Bounds;
pub use gangs::{Gangs, Stand};
use parts::Part;
use tenant::{Seat, Tenant};

/// Nanoseconds: of `CLOCK_MONOTONIC`, or of the GPU.
pub type Nanos = i64;

const MS: Nanos = 1_000_000;

/// From the end of one job's work to the beginning of the next one's: that is nobody's time.
const HANDOVER: Nanos = MS / 4;
/// Who gives a turn back has no more work than this on the GPU.
const LONGEST_TAIL: Nanos = MS;

/// A job on this GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u32);

/// One of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId {
    /// The job.
    pub job: Job,
    number: u64,
}

/// What a process says on its page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// It wants to launch, or has work under way.
    pub wishes: bool,
    /// The word of the last turn that it is done with.
    pub done: u32,
    /// How long it has kept the GPU busy in all.
    pub used: u64,
    /// When its last work should be over.
    pub over: u64,
    /// Work of its job waits for that of another of its GPUs.
    pub together: bool,
}

/// What is to be written on a process's page: first the terms, then the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose page.
    pub seat: SeatId,
    /// The new word.
    pub word: u32,
    /// `None` where the word closes the turn.
    pub terms: Option<Terms>,
}

/// What a process may do in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// When it begins.
    pub from: u64,
    /// How much of its work may be left when it is done.
    pub ahead: u64,
    /// When it ends; [`u64::MAX`] for never.
    pub until: u64,
    /// What its use may come to in all; [`u64::MAX`] for anything.
    pub budget: u64,
}

/// What a look led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// What is to be written.
    pub orders: Vec<Order>,
    /// When to look again if no seat says anything before. If that is now: after the orders are written, and after each
    /// seat was heard again.
    pub next: Option<Nanos>,
}

/// How long turns are.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// In what time everybody comes to have a turn, where there are few.
    pub epoch: Nanos,
    /// Where there are many, the epoch is so much for each: each change of turns costs some time.
    pub mean_turn: Nanos,
    /// The longest epoch.
    pub longest_epoch: Nanos,
    /// The shortest turn; jobs with small shares have it less often.
    pub shortest_turn: Nanos,
    /// How long after the end of a turn an answer is waited for at most.
    pub patience: Nanos,
    /// How much time's share a job that waits can save up.
    pub savings: Nanos,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            epoch: 50 * MS,
            mean_turn: 6 * MS,
            longest_epoch: 100 * MS,
            shortest_turn: 2 * MS,
            patience: 1000 * MS,
            savings: 1000 * MS,
        }
    }
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct Turns {
    rules: Rules,
    tenants: BTreeMap<Job, Tenant>,
    turn: Option<Turn>,
    /// Who had the last one.
    last_holder: Option<Job>,
    /// When the last work of that should be over.
    free_at: Nanos,
    /// When time was last accounted for.
    settled: Nanos,
    last_seat: u64,
}

/// A turn that somebody has.
#[derive(Clone, Copy, Debug)]
struct Turn {
    job: Job,
    began: Nanos,
    /// When the work of the turn before should be over.
    from: Nanos,
    /// When it ends; `None` while nobody waits for that.
    until: Option<Nanos>,
    /// Since when the job could have it on all of its GPUs, where it has it on all of them together.
    met: Option<Nanos>,
    /// When it ends there, whether anybody waits or not.
    limit: Option<Nanos>,
    ended: Option<Ended>,
    /// How long the last work of the turn before ran in this one.
    tail: Nanos,
    /// Which of the job's processes has it, where they go one after the other.
    part: Option<Part>,
}

/// A turn that is over, while the last work of it runs.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at: Nanos,
    /// When it is not waited for any longer.
    deadline: Nanos,
}

/// A job as it stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
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
    /// A GPU that nobody uses.
    pub fn new(now: Nanos, rules: Rules) -> Self {
        Self {
            rules,
            tenants: BTreeMap::new(),
            turn: None,
            last_holder: None,
            free_at: now,
            settled: now,
            last_seat: 0,
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

    /// A process has gone, and its work with it. What it did in its turn and did not tell of its job pays as if it had been
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
        // Whoever says more pays for more, but that is no reason for others to pay less.
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
    pub fn standings(&self) -> impl Iterator<Item = Standing> {
        let here = self.tenants.iter().filter(|(_, it)| !it.seats.is_empty());
        here.map(|(&job, tenant)| Standing {
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
            account.settle(from, now, Bounds { most, is_borrowed });
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
        let turn = Nanos::try_from(share.of(epoch)).unwrap_or(Nanos::MAX);
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

    // --- The turn ---

    /// Whether the turn is to end now.
    fn is_over(&self, now: Nanos) -> bool {
        let Some(turn) = &self.turn else { return false };
        let Some(holder) = self.tenants.get(&turn.job) else {
            return true;
        };
        let until = turn.until.or_else(|| self.end_now_that_others_wait(now));
        until.is_some_and(|until| until <= now)
            || (is_given_back(holder, until.is_some()) && !self.has_next_part(now))
            || turn.limit.is_some_and(|limit| limit <= now)
            || (turn.limit.is_none() && holder.account.is_capped() && holder.account.credit <= 0)
            || self.must_yield(holder, turn)
            || self.makes_way(now)
    }

    /// The end that a turn without end gets when somebody begins to wait for it: what is left of a turn.
    fn end_now_that_others_wait(&self, now: Nanos) -> Option<Nanos> {
        let job = self.turn?.job;
        let account = &self.tenants.get(&job)?.account;
        let is_waited_for = self.others_waited_since(job, now)? <= now;
        let rest = account.credit.clamp(0, self.turn_length(account.share));
        is_waited_for.then(|| self.turn.and_then(|turn| turn.limit).unwrap_or(now + rest))
    }

    /// The turn goes on.
    fn go_on(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let end = self.end_now_that_others_wait(now);
        let job = self.turn.map(|turn| turn.job);
        let holder = job.and_then(|job| self.tenants.get(&job));
        let has_credit = holder.is_some_and(|holder| self.missing(holder) <= 0);
        let Some(turn) = &self.turn else { return };
        if turn.until.is_some() {
            return self.let_in(|_, seat| seat.is_left_out(), orders);
        }
        if end.is_none() {
            // Others of the job may rest in the turn, or be busy with what waits for this one.
            let comes = |seat: &Seat| seat.is_left_out() || has_credit && seat.wants_more();
            return self.let_in(|_, seat| comes(seat), orders);
        }
        self.note_that_others_wait(now);
        self.let_in(|_, seat| seat.is_in() || seat.is_left_out(), orders);
    }

    /// The turn has an end if somebody began to wait for that.
    fn note_that_others_wait(&mut self, now: Nanos) {
        let end = self.end_now_that_others_wait(now);
        let Some(turn) = &mut self.turn else { return };
        if turn.until.is_some() || end.is_none() {
            return;
        }
        turn.until = end;
        if let Some(holder) = self.tenants.get_mut(&turn.job) {
            holder.account.begin_bill();
        }
    }

    /// Whether somebody woke who has used so little of late that the holder is to make way.
    fn must_yield(&self, holder: &Tenant, turn: &Turn) -> bool {
        if turn.met.is_some() {
            return false;
        }
        let others = self.tenants.iter().filter(|&(&job, _)| job != turn.job);
        let mut others = others.filter(|(_, other)| other.elsewhere.is_none());
        others.any(|(_, other)| {
            let woke = other.wishes_since.is_some_and(|since| since >= turn.began);
            let length = self.turn_length(other.account.share);
            let half = length / 2;
            let ahead = holder.account.lag() + other.account.time_for(half);
            woke && other.account.credit >= length + half && other.account.lag() >= ahead
        })
    }

    /// Gives the holder's seats a word that opens the turn, or tells them that somebody waits.
    fn let_in(&mut self, which: impl Fn(SeatId, &Seat) -> bool, orders: &mut Vec<Order>) {
        let Some(turn) = self.turn else { return };
        let end_of_part = turn.part.map(|part| part.until);
        let ends = turn.until.into_iter().chain(turn.limit).chain(end_of_part);
        let until = (ends.min()).map_or(u64::MAX, |until| until.try_into().unwrap_or(0));
        let from = turn.part.map_or(turn.from, |part| part.from);
        let from = from.try_into().unwrap_or(0);
        let flags = if turn.until.is_some() || turn.part.is_some() {
            OPEN | CONTENDED
        } else {
            OPEN
        };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        let rest = u64::try_from(holder.account.credit).unwrap_or(0);
        let is_capped = holder.account.is_capped();
        let comes =
            |&(&id, seat): &(&SeatId, &Seat)| !seat.is_late() && !seat.is_in() && which(id, seat);
        let newcomers = holder.seats.iter().filter(comes).count();
        let here = holder.present().filter(|seat| seat.is_in()).count();
        let is_alone = here + newcomers <= 1;
        if !is_alone {
            holder.account.bill_from(turn.began);
        }
        // Who was alone in the turn is to know that it no longer is.
        let is_joined = here == 1 && newcomers > 0;
        for (&id, seat) in &mut holder.seats {
            let is_meant = which(id, seat) || is_joined && seat.is_in();
            if seat.is_late() || !is_meant {
                continue;
            }
            let budget = match is_capped && turn.limit.is_none() {
                true => seat.said.used.saturating_add(rest),
                false => u64::MAX,
            };
            orders.push(Order {
                seat: id,
                word: seat.open() | flags,
                terms: Some(Terms {
                    from,
                    ahead: if is_alone {
                        LONGEST_TAIL.unsigned_abs()
                    } else {
                        0
                    },
                    until,
                    budget,
                }),
            });
        }
    }

    /// How long an answer of the holder's processes is waited for.
    fn patience(&self) -> Nanos {
        let epoch = self.epoch();
        let holder = self.turn.and_then(|turn| self.tenants.get(&turn.job));
        let Some(holder) = holder else { return epoch };
        // What spins for other GPUs does not end sooner if one waits.
        let longest = match holder.is_together() {
            true => 2 * epoch,
            false => self.rules.patience,
        };
        epoch.saturating_add(holder.drain).min(longest)
    }

    /// Ends the turn. It is another's when the last work of it has ended.
    fn close(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let patience = self.patience();
        let Some(turn) = &mut self.turn else { return };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        if turn.until.is_none() {
            // From here on somebody waits.
            holder.account.begin_bill();
        }
        turn.ended = Some(Ended {
            at: now,
            deadline: now + patience,
        });
        for (&id, seat) in &mut holder.seats {
            if !seat.end() {
                continue;
            }
            orders.push(Order {
                seat: id,
                word: seat.next_word(),
                terms: None,
            });
        }
    }

    /// The turn is over: it can be another's when all work of it has ended, or the patience has.
    fn wait_for_the_last_work(&mut self, now: Nanos) {
        let Some(turn) = self.turn else { return };
        let Some(ended) = turn.ended else { return };
        let is_quiet = self.tenants.get(&turn.job).is_none_or(Tenant::is_quiet);
        if is_quiet {
            self.note_part(now);
        }
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            self.turn = None;
            return;
        };
        if !is_quiet {
            if now < ended.deadline {
                return;
            }
            holder.overruns += 1;
            self.free_at = now;
        } else {
            holder.account.close_bill(now);
            let over = holder.present().map(|seat| seat.said.over).max();
            let over = Nanos::try_from(over.unwrap_or(0)).unwrap_or(Nanos::MAX);
            // Nobody waits longer than that for what another says.
            self.free_at = over.clamp(now, now + LONGEST_TAIL);
        }
        holder.close(ended.at, now);
        self.turn = None;
        // What is late does not wish any more.
        self.note_wishes(now);
    }

    /// Nobody has the turn.
    fn give_turn(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let Some(job) = self.comes_next(now) else {
            return;
        };
        self.forgive_what_nobody_could_have();
        let met = self.met(job, now);
        let is_gang = met.is_some();
        let correction = if is_gang { 0 } else { self.correction(job) };
        let is_handed_over = self.last_holder.replace(job) != Some(job);
        let Some(tenant) = self.tenants.get_mut(&job) else {
            return;
        };
        tenant.lag_before = Some(tenant.account.lag());
        tenant.account.begin_turn();
        if is_handed_over && !is_gang {
            // Each loses the same part of its share by that, not the same time.
            tenant.account.note_blocked(-HANDOVER);
        }
        tenant.served = now;
        tenant.turns += 1;
        let (share, is_capped) = (tenant.account.share, tenant.account.is_capped());
        let drain = if is_gang { 0 } else { tenant.drain };
        let elsewhere = tenant.elsewhere.filter(|_| is_gang);
        // With the last work, which runs on for a while, it is as long as it should be.
        let length = self.turn_length(share) + correction;
        let from = if is_handed_over {
            self.free_at.max(now)
        } else {
            now
        };
        let end = now + length - drain.min(length / 2);
        let end = elsewhere.map_or(end, |there| there.common_end(now, length));
        let waits = self.others_waited_since(job, now);
        self.turn = Some(Turn {
            job,
            began: now,
            from,
            until: waits.is_some_and(|since| since < end).then_some(end),
            met,
            limit: (is_gang && is_capped).then_some(end),
            ended: None,
            tail: 0,
            part: None,
        });
        if !self.begin_part(now, orders) {
            self.let_in(|_, seat| seat.is_left_out(), orders);
        }
    }

    /// When there is something to do, if no seat says anything before.
    fn next(&self, now: Nanos) -> Option<Nanos> {
        let pardon = self.tenants.values().flat_map(|it| it.seats.values());
        let pardon = pardon.filter_map(Seat::is_pardoned_at).min();
        let for_the_turn = match &self.turn {
            None => {
                let tenants = self.tenants.values().filter(|it| it.elsewhere.is_none());
                let ready = tenants.filter_map(|it| self.ready_at(it, now));
                // What is kept free is not theirs.
                ready.filter(|&at| at > now).min()
            }
            Some(turn) => match (turn.ended, turn.until) {
                (Some(ended), _) => Some(ended.deadline),
                (None, Some(until)) => Some(until),
                (None, None) if turn.part.is_some() => self.others_waited_since(turn.job, now),
                (None, None) => self.end_of_rest(now, turn.job),
            },
        };
        let part = self.turn.filter(|turn| turn.ended.is_none());
        let part = part.and_then(|turn| Some(turn.part?.next()));
        let limit = self.turn.and_then(|turn| turn.limit);
        let gang = self.next_of_gangs(now).into_iter();
        let limit = limit.filter(|_| self.turn.is_some_and(|turn| turn.ended.is_none()));
        for_the_turn
            .into_iter()
            .chain(pardon)
            .chain(limit)
            .chain(part)
            .chain(gang)
            .min()
    }

    /// When a turn without end may come to have one.
    fn end_of_rest(&self, now: Nanos, job: Job) -> Option<Nanos> {
        let waited_for = self.others_waited_since(job, now);
        let holder = self.tenants.get(&job)?;
        // Each process keeps to the credit by itself; all together have to be watched.
        let is_shared = holder.present().filter(|seat| seat.wishes()).count() > 1;
        let used_up = (is_shared && holder.account.is_capped())
            .then(|| now + holder.account.credit.max(self.rules.shortest_turn / 4));
        let more = holder.present().any(Seat::wants_more);
        let more = more.then(|| now + holder.account.time_for(self.missing(holder)));
        waited_for.into_iter().chain(used_up).chain(more).min()
    }
}

/// Whether no process of the holder has anything more to do in this turn. One that nobody waits for may also rest.
fn is_given_back(holder: &Tenant, is_waited_for: bool) -> bool {
    let is_there = holder.present().next().is_some();
    let is_kept = is_there && !is_waited_for && !holder.present().any(Seat::has_given_back);
    holder.is_quiet() && !is_kept
}
