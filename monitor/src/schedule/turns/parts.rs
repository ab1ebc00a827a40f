//! A job's processes, one after the other.
//!
//! Of several processes that have work the driver gives each a slice of the GPU's time, so short that changing from one to
//! the next takes a good part of it. So in a turn that begins while other jobs want the GPU, one of the job's processes after the
//! other has it for a longer part.
//!
//! That is right for processes that keep the GPU busy. Others, which wait for the host or for each other between their kernels,
//! would keep their siblings waiting meanwhile, and be kept waiting by them. So where parts are not used all of the job's
//! processes have its turns together again, for some seconds ([`Record`](super::part::Record)); and so they have while one of
//! them is late.

use super::part::{Ended, Part};
use super::state::Turns;
use super::tenant::Seat;
use super::types::{LONGEST_TAIL, MS, Nanos, Order, SeatId};

/// About how long a part is, if the turn is not shorter. With shorter ones more is lost in changes, some 0.15 ms each; with
/// longer ones it takes more turns until each process had its part.
const PART: Nanos = 8 * MS;
/// With less of the turn left no other part begins.
const REST: Nanos = 3 * MS / 2;
/// The first work of a process says little about it: it has not been measured yet.
const NEW: Nanos = 1000 * MS;
/// A process that gives a part back this long before its end has no more work.
const EARLY: Nanos = MS;

impl Turns {
    /// Gives the turn, or what is left of it, to one of the job's processes; false where they have it together.
    pub(super) fn begin_part(&mut self, now: Nanos, orders: &mut Vec<Order>) -> bool {
        let Some((next, until)) = self.next_part(now) else {
            return false;
        };
        let Some(turn) = &mut self.turn else {
            return false;
        };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return false;
        };
        let from = match turn.part {
            None => turn.from,
            Some(before) => {
                // Time that two of them name is charged once.
                holder.account.bill_from(turn.began);
                let over = holder.seats.get(&before.seat).map_or(0, |it| it.said.over);
                // No process waits longer than that because of another's word.
                Nanos::try_from(over).map_or(now, |over| over.clamp(now, now + LONGEST_TAIL))
            }
        };
        let Some(seat) = holder.seats.get_mut(&next) else {
            return false;
        };
        seat.served = now;
        turn.part = Some(Part {
            seat: next,
            from,
            until,
            used: seat.said.used,
            ended: None,
        });
        self.let_in(|id, _| id == next, orders);
        true
    }

    /// Which process comes next in the turn, if its job's go one after the other, and until when.
    fn next_part(&self, now: Nanos) -> Option<(SeatId, Nanos)> {
        let turn = self.turn.filter(|turn| turn.ended.is_none())?;
        let holder = self.tenants.get(&turn.job)?;
        // A process that does not answer keeps one turn, not one part after the other.
        if turn.met.is_some() || holder.seats.values().any(Seat::is_unreliable) {
            return None;
        }
        let comes = |(_, seat): &(&SeatId, &Seat)| seat.wishes() && !seat.is_in();
        let waiting = || holder.seats.iter().filter(comes);
        let count = Nanos::try_from(waiting().count()).ok()?;
        // A turn that is in parts stays so to its end.
        let is_first = turn.part.is_none();
        if is_first && (count < 2 || now < holder.parts.together_until) {
            return None;
        }
        let (&next, _) = waiting().min_by_key(|(_, seat)| seat.served)?;
        // Others may not have the credit for a turn yet.
        let Some(until) = turn.until else {
            let mut others = self.others(turn.job);
            let is_wished = others.any(|other| other.wishes_since.is_some());
            return is_wished.then_some((next, now + PART));
        };
        let rest = until - now;
        let parts = (rest / PART).clamp(1, count);
        (rest >= REST).then_some((next, now + rest / parts))
    }

    /// Whether the turn goes on with another process than the one that has it.
    pub(super) fn has_next_part(&self, now: Nanos) -> bool {
        let is_in_parts = self.turn.is_some_and(|turn| turn.part.is_some());
        is_in_parts && self.next_part(now).is_some()
    }

    /// Lets all in, once no other job wants the GPU.
    fn let_all_in(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        if let Some(turn) = &mut self.turn
            && turn.until.is_none()
        {
            turn.part = None;
            self.go_on(now, orders);
        }
    }

    /// The turn goes on with the process that has it, or with the next one.
    pub(super) fn go_on_in_parts(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        let patience = self.patience();
        let Some(turn) = &mut self.turn else { return };
        let Some(part) = &mut turn.part else { return };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        let has_it = holder.seats.get_mut(&part.seat);
        let has_it = has_it.filter(|seat| seat.is_in() && !seat.is_late());
        match (has_it, part.ended) {
            (None, _) => {
                self.note_part(now);
                if !self.begin_part(now, orders) {
                    self.let_all_in(now, orders);
                }
            }
            (Some(seat), None) if part.until <= now => {
                part.ended = Some(Ended {
                    at: now,
                    deadline: now + patience,
                });
                seat.end();
                orders.push(Order {
                    seat: part.seat,
                    word: seat.next_word(),
                    terms: None,
                });
            }
            (Some(seat), Some(ended)) if ended.deadline <= now => {
                // The next look ends the turn.
                seat.be_late(ended.at, now);
                holder.overruns += 1;
                self.book.of(turn.job).overruns += 1;
            }
            // It has it, and it is not time.
            (Some(_), _) => {}
        }
    }

    /// A part is over: whether the process used it.
    pub(super) fn note_part(&mut self, now: Nanos) {
        let Some(turn) = self.turn else { return };
        let Some(part) = turn.part else { return };
        let Some(holder) = self.tenants.get_mut(&turn.job) else {
            return;
        };
        // A process that is gone said nothing about it.
        let seat = holder.seats.get(&part.seat);
        let Some(seat) = seat.filter(|seat| part.from - seat.since >= NEW) else {
            return;
        };
        let used = seat.said.used.saturating_sub(part.used);
        let used = Nanos::try_from(used).unwrap_or(Nanos::MAX);
        let is_to_the_end = now >= part.until - EARLY;
        let is_busy = used.saturating_mul(3) >= (now - part.from) * 2;
        holder.parts.note(is_to_the_end && is_busy, now);
    }
}
