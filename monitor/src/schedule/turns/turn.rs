//! One turn, from its beginning to the end of its last work.

use softmig_region::seat::{CONTENDED, OPEN};

use super::part::Ended;
use super::state::{Turn, Turns};
use super::tenant::{Seat, Tenant};
use super::types::{HANDOVER, Job, LONGEST_TAIL, Nanos, Order, SeatId, Terms};

impl Turns {
    /// Whether the turn is to end now.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
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

    /// The end that a turn without an end gets when another job begins to wait for it: the rest of a turn.
    fn end_now_that_others_wait(&self, now: Nanos) -> Option<Nanos> {
        let job = self.turn?.job;
        let account = &self.tenants.get(&job)?.account;
        let is_waited_for = self.others_waited_since(job, now)? <= now;
        let rest = account.credit.clamp(0, self.turn_length(account.share));
        is_waited_for.then(|| self.turn.and_then(|turn| turn.limit).unwrap_or(now + rest))
    }

    /// The turn goes on.
    pub(super) fn go_on(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let Some(turn) = &self.turn else { return };
        if turn.until.is_some() {
            return self.let_in(|_, seat| seat.is_left_out(), orders);
        }
        let holder = self.tenants.get(&turn.job);
        let has_credit = holder.is_some_and(|holder| self.missing(holder) <= 0);
        if self.note_that_others_wait(now) {
            return self.let_in(|_, seat| seat.is_in() || seat.is_left_out(), orders);
        }
        // Others of the job may rest in the turn, or be busy with what waits for this one.
        let comes = |seat: &Seat| seat.is_left_out() || has_credit && seat.wants_more();
        self.let_in(|_, seat| comes(seat), orders);
    }

    /// Gives the turn an end if another job has begun to wait. True if the turn has an end only since now.
    pub(super) fn note_that_others_wait(&mut self, now: Nanos) -> bool {
        let end = self.end_now_that_others_wait(now);
        let Some(turn) = &mut self.turn else {
            return false;
        };
        if turn.until.is_some() || end.is_none() {
            return false;
        }
        turn.until = end;
        if let Some(holder) = self.tenants.get_mut(&turn.job) {
            holder.account.begin_bill();
        }
        true
    }

    /// True if a job woke that has used so little of late that the holder is to make way.
    fn must_yield(&self, holder: &Tenant, turn: &Turn) -> bool {
        if turn.met.is_some() {
            return false;
        }
        let mut others = self.others(turn.job).filter(|it| it.elsewhere.is_none());
        others.any(|other| {
            let woke = other.wishes_since.is_some_and(|since| since >= turn.began);
            let length = self.turn_length(other.account.share);
            let half = length / 2;
            let ahead = holder.account.lag() + other.account.time_for(half);
            woke && other.account.credit >= length + half && other.account.lag() >= ahead
        })
    }

    /// Gives the holder's seats a word that opens the turn, or tells them that another job waits.
    pub(super) fn let_in(
        &mut self,
        which: impl Fn(SeatId, &Seat) -> bool,
        orders: &mut Vec<Order>,
    ) {
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
        // A process that was alone in the turn must learn that it no longer is.
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
    pub(super) fn patience(&self) -> Nanos {
        let epoch = self.epoch();
        let holder = self.turn.and_then(|turn| self.tenants.get(&turn.job));
        let Some(holder) = holder else { return epoch };
        // A process that spins for other GPUs does not end sooner if one waits.
        let longest = match holder.is_together() {
            true => 2 * epoch,
            false => self.rules.patience,
        };
        epoch.saturating_add(holder.drain).min(longest)
    }

    /// Ends the turn. It is another's when the last work of it has ended.
    pub(super) fn close(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let patience = self.patience();
        let Some(turn) = &mut self.turn else { return };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        if turn.until.is_none() {
            // From here on another job waits.
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
    pub(super) fn wait_for_the_last_work(&mut self, now: Nanos) {
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
            self.book.of(turn.job).overruns += 1;
            self.free_at = now;
        } else {
            holder.account.close_bill(now);
            let over = holder.present().map(|seat| seat.said.over).max();
            let over = Nanos::try_from(over.unwrap_or(0)).unwrap_or(Nanos::MAX);
            // No job waits longer than that because of another's word.
            self.free_at = over.clamp(now, now + LONGEST_TAIL);
        }
        holder.close(ended.at, now);
        self.turn = None;
        // A process that is late does not wish any more.
        self.note_wishes(now);
    }

    /// Gives the turn, which no job has, to the next job.
    pub(super) fn give_turn(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let Some(job) = self.comes_next(now) else {
            return;
        };
        self.forgive_what_no_job_could_have();
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
            self.book.change += HANDOVER;
        }
        tenant.served = now;
        tenant.turns += 1;
        self.book.of(job).turns += 1;
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
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        let pardon = self.tenants.values().flat_map(|it| it.seats.values());
        let pardon = pardon.filter_map(Seat::is_pardoned_at).min();
        let for_the_turn = match &self.turn {
            None => {
                let tenants = self.tenants.values().filter(|it| it.elsewhere.is_none());
                let ready = tenants.filter_map(|it| self.ready_at(it, now));
                // Time that is kept free is not theirs.
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

/// True if no process of the holder has anything more to do in this turn. A holder may also rest if no job waits for
/// it.
fn is_given_back(holder: &Tenant, is_waited_for: bool) -> bool {
    let is_there = holder.present().next().is_some();
    let is_kept = is_there && !is_waited_for && !holder.present().any(Seat::has_given_back);
    holder.is_quiet() && !is_kept
}
