//! A job's processes, one after the other.
//!
//! Of several processes that have work the driver gives each a slice of the GPU's time, so short that changing from one to
//! the next takes a good part of it. So where other jobs wait, a job's turn goes from one of its processes to the next in
//! parts that are longer.
//!
//! Processes that do not keep the GPU busy by themselves, because they wait for the host or for each other, would waste the
//! job's time so. Where parts are not used the job's processes have its turns together again, for some seconds: at most as
//! many parts are lost as [`MOST_UNUSED`].

use super::tenant::Seat;
use super::{Ended, LONGEST_TAIL, MS, Nanos, Order, SeatId, Turns};

/// The shortest part, where the turn is not shorter: each change takes some 0.15 ms, and each process has its part the later.
const SHORTEST: Nanos = 8 * MS;
/// So little is left to whom has it.
const LITTLE: Nanos = 3 * MS / 2;
/// What was shorter says nothing.
const TELLING: Nanos = MS / 2;
/// After so many parts in a row that were not used, all are let in together.
const MOST_UNUSED: u32 = 3;
/// For how long; doubled each time.
const RETREAT: Nanos = 1000 * MS;
/// How often it is doubled at most.
const MOST_DOUBLINGS: u32 = 4;

/// A part of a turn: one process has the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) seat: SeatId,
    /// When the work before it should be over.
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    /// What the process had used before.
    used: u64,
    /// It is over, and waits for the process's answer.
    ended: Option<Ended>,
}

impl Part {
    /// When there is something to do.
    pub(super) fn next(&self) -> Nanos {
        self.ended.map_or(self.until, |ended| ended.deadline)
    }
}

/// How a job got on with parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    unused: u32,
    retreats: u32,
    together_until: Nanos,
}

impl Record {
    fn note(&mut self, is_used: bool, now: Nanos) {
        if is_used {
            if self.unused == 0 {
                self.retreats = 0;
            }
            self.unused = 0;
            return;
        }
        self.unused += 1;
        if self.unused >= MOST_UNUSED {
            self.unused = 0;
            self.together_until = now + (RETREAT << self.retreats.min(MOST_DOUBLINGS));
            self.retreats += 1;
        }
    }
}

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
        let before = turn.part.and_then(|part| holder.seats.get(&part.seat));
        // Nobody waits longer than that for what another says.
        let over = before.map(|seat| Nanos::try_from(seat.said.over).unwrap_or(Nanos::MAX));
        let from = over.map_or(turn.from, |over| over.clamp(now, now + LONGEST_TAIL));
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
        let until = turn.until.filter(|_| turn.met.is_none())?;
        let is_first = turn.part.is_none();
        let rest = until - now;
        if rest < LITTLE || now < holder.parts.together_until && is_first {
            return None;
        }
        let comes = |(_, seat): &(&SeatId, &Seat)| seat.wishes() && !seat.is_in();
        let waiting = || holder.seats.iter().filter(comes);
        let count = Nanos::try_from(waiting().count()).ok()?;
        if count < if is_first { 2 } else { 1 } {
            return None;
        }
        let (&next, _) = waiting().min_by_key(|(_, seat)| seat.served)?;
        let parts = (rest / SHORTEST).clamp(1, count);
        Some((next, now + rest / parts))
    }

    /// Whether the turn goes on with another process than the one that has it.
    pub(super) fn has_next_part(&self, now: Nanos) -> bool {
        let is_in_parts = self.turn.is_some_and(|turn| turn.part.is_some());
        is_in_parts && self.next_part(now).is_some()
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
                self.begin_part(now, orders);
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
                seat.be_late(ended.at, now);
                holder.overruns += 1;
            }
            _ => {}
        }
    }

    /// A part is over: whether the process used it.
    pub(super) fn note_part(&mut self, now: Nanos) {
        let turn = self.turn.as_mut();
        let Some((turn, part)) = turn.and_then(|turn| Some((turn.job, turn.part?))) else {
            return;
        };
        let Some(holder) = self.tenants.get_mut(&turn) else {
            return;
        };
        let seat = holder.seats.get(&part.seat);
        let used = seat.map(|seat| seat.said.used.saturating_sub(part.used));
        let (Some(used), time) = (used, now - part.from) else {
            return;
        };
        if time >= TELLING {
            let used = Nanos::try_from(used).unwrap_or(Nanos::MAX);
            holder.parts.note(used.saturating_mul(3) >= time * 2, now);
        }
    }
}
