//! The work of the thread that looks after turns: it gives back those that the program does not use.

use core::sync::atomic::Ordering;

use softmig_region::seat::{CONTENDED, OPEN, Seat};

use super::{ArbiterClient, IDLE_KEEPS_NS, MAX_SLEEP_NS, WorkInFlight};
use crate::os;

/// Interval at which a turn is looked after that no other job waits for.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// Interval of samples where there are no turns: then no other job waits.
const SAMPLE_EVERY_NS: u64 = 2_000_000;
/// Longest futex wait where there are no turns, and something was launched just before.
const SOON_NS: u64 = 100_000;
/// Longest futex wait while no other work is pending.
const FOR_EVER_NS: u64 = 3_600_000_000_000;

/// The next duty of the thread that looks after turns.
pub(in crate::pacing) enum Duty {
    /// Nothing until the word changes.
    Rest,
    /// Look again, after this number of nanoseconds.
    Look(u64),
    /// The arbiter is gone.
    End,
}

impl ArbiterClient {
    /// Waits until the word changes. Where there is nothing to see to, the next launch ends the wait.
    pub(in crate::pacing) fn rest(&self, turn: u32, is_idle: impl Fn() -> bool) {
        let Some(seat) = self.seat() else { return };
        // SeqCst: a thread that launches now sees this, or is seen.
        self.asleep.store(1, Ordering::SeqCst);
        let is_over = !is_idle() || self.waiting.load(Ordering::SeqCst) > 0;
        let longest = match (is_over, self.is_steered()) {
            (false, _) => FOR_EVER_NS,
            (true, false) => MAX_SLEEP_NS,
            (true, true) => SOON_NS,
        };
        os::wait_until_changed(seat.turn(), turn, longest);
        self.asleep.store(0, Ordering::SeqCst);
    }

    /// There is something to look after again.
    #[inline]
    pub(in crate::pacing) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) != 0
            && let Some(seat) = self.seat()
        {
            os::wake_all(seat.turn());
        }
    }

    /// The next duty of the thread that looks after turns, while others launch, wait or do something else. `is_idle` if
    /// nothing was launched for a while.
    pub(in crate::pacing) fn attend(
        &self,
        now: u64,
        flight: &WorkInFlight<'_>,
        is_idle: bool,
    ) -> Duty {
        let in_flight = flight.time;
        let Some(seat) = self.seat() else {
            return Duty::End;
        };
        let turn = seat.turn().load(Ordering::SeqCst);
        if turn & OPEN == 0 {
            self.close(seat, turn, now);
            return self.finish(seat, now, flight);
        }
        if turn == seat.done().load(Ordering::Relaxed) {
            return self.after_turn(now, in_flight);
        }
        let is_busy = in_flight > 0 || self.waiting.load(Ordering::SeqCst) > 0 || !is_idle;
        if turn & CONTENDED == 0 {
            if !is_busy {
                seat.wants_gpu().store(0, Ordering::SeqCst);
                return Duty::Rest;
            }
            self.want(seat, now);
            if self.is_gone(seat, now) {
                return Duty::End;
            }
            return Duty::Look(if self.is_steered() {
                SAMPLE_EVERY_NS
            } else {
                LOOK_EVERY_NS
            });
        }
        let until = seat.until().load(Ordering::Relaxed);
        if now >= until {
            self.word.store(0, Ordering::SeqCst);
            self.end(turn, now);
            return self.finish(seat, now, flight);
        }
        if is_busy && (in_flight == 0 || !(flight.is_stuck)()) {
            // A thread that waits to launch more looks itself, and leaves enough for that long when it goes on.
            let more = if self.wish() == 0 { 0 } else { 1_000_000 };
            let soon = in_flight
                .clamp(IDLE_KEEPS_NS, 1_000_000)
                .saturating_add(more);
            return Duty::Look(soon.min(until.saturating_sub(now)).max(1_000));
        }
        Duty::Look(IDLE_KEEPS_NS)
    }

    /// The turn is over: answers as soon as its work is.
    fn finish(&self, seat: &Seat, now: u64, flight: &WorkInFlight<'_>) -> Duty {
        if let Some(more) = self.answer(seat, flight, self.wish(), now) {
            // A thread that waits for the next turn looks by itself.
            let shortest = if self.wish() == 0 { 50_000 } else { 500_000 };
            return Duty::Look(more.clamp(shortest, 500_000));
        }
        self.after_turn(now, flight.time)
    }

    /// The turn is given back, but the last work of it may run.
    fn after_turn(&self, now: u64, in_flight: u64) -> Duty {
        if in_flight > 0 && self.wish() == 0 {
            return Duty::Look(self.until_done(now, in_flight));
        }
        Duty::Rest
    }

    /// Gives a turn back in which nothing is done, unless something was launched meanwhile: `idle` looks, and says what this
    /// process wishes for then.
    pub(in crate::pacing) fn give_back(&self, idle: impl Fn() -> Option<u32>) {
        let Some(seat) = self.seat() else { return };
        let turn = seat.turn().load(Ordering::SeqCst);
        if turn & (OPEN | CONTENDED) != OPEN | CONTENDED {
            return;
        }
        let Some(_held) = self.answering.try_hold() else {
            return;
        };
        if self.wish() != 0 {
            return;
        }
        // Launches from here on find that it ends.
        let begun = self
            .ending
            .compare_exchange(0, turn, Ordering::SeqCst, Ordering::SeqCst);
        if begun.is_err() {
            return;
        }
        self.word.store(0, Ordering::SeqCst);
        if let Some(wish) = idle().filter(|_| self.wish() == 0) {
            self.say_done(seat, turn, wish);
        }
        self.has_ended(turn);
    }
}
