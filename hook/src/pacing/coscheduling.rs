//! Launches that go on although they had to wait, since work on another GPU of the job waits for them.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softmig_region::{Gang, Other};

use super::work::Admission;

/// GPU time for such launches between one turn and the next. It is charged.
const MAX_OVERDRAFT_NS: u64 = 100_000_000;
/// The same in turns of other jobs.
const MAX_OVERDRAFT_IN_TURNS_NS: u64 = 20_000_000;
/// Work that is overdue by this much may wait for work on another GPU. With turns it may also wait for the end of another job's.
const STUCK_AFTER_NS: u64 = 2_000_000;
const STUCK_IN_TURNS_AFTER_NS: u64 = 4_000_000;
/// Interval at which a GPU checks whether work on another waits for its own. It is shorter where the GPUs begin together.
const CHECK_EVERY_NS: u64 = 1_000_000;
const CHECK_TOGETHER_EVERY_NS: u64 = 250_000;
/// More is launched while less than this is in flight: not much more than the work that is waited for.
const IN_FLIGHT_NS: u64 = 200_000;
/// The same once it has kept up for a while.
const IN_FLIGHT_LATER_NS: u64 = 1_000_000;
/// Time for the other GPU to show that it goes on, after its own work.
const ANSWER_AFTER_NS: u64 = 300_000;

/// The state of a wait in which such launches may go on, for one GPU.
pub(super) struct Coscheduling {
    /// It, among the GPUs of its job.
    pub(super) gang: Gang<'static>,
    /// The GPU time used when the wait began.
    used: AtomicU64,
    /// Whether it had a turn that an arbiter gave since the last wait for one began.
    had_turn: AtomicBool,
    /// Whether launches went on since then.
    is_used: AtomicBool,
    /// Whether they went too far: then they waited for the other GPU in their turn.
    is_careful: AtomicBool,
    /// When work of this process should be over, as it said last.
    over: AtomicU64,
    /// When any of it ended last.
    moved: AtomicU64,
}

impl Coscheduling {
    pub(super) fn new(gang: Gang<'static>) -> Self {
        Self {
            gang,
            used: AtomicU64::new(0),
            had_turn: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            is_careful: AtomicBool::new(false),
            over: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// Whether the job uses other GPUs too.
    pub(super) fn is_several(&self) -> bool {
        self.gang.is_several()
    }

    /// The wait for a turn begins.
    pub(super) fn begin(&self, used: u64) {
        // Relaxed, as in all that follows: if threads mix up these values, a launch more or less goes on.
        self.used.store(used, Ordering::Relaxed);
        self.is_used.store(false, Ordering::Relaxed);
        self.is_careful.store(false, Ordering::Relaxed);
    }

    /// How often a thread that waits looks here; `None` if it need not.
    pub(super) fn look_in(&self, now: u64) -> Option<u64> {
        self.is_several().then(|| {
            if self.gang.is_together(now) {
                CHECK_TOGETHER_EVERY_NS
            } else {
                CHECK_EVERY_NS
            }
        })
    }

    /// Whether launches may go on if an arbiter gives turns and allows `may`.
    pub(super) fn in_turns(&self, may: Admission, now: u64, used: u64) -> Admission {
        if !self.is_several() {
            return may;
        }
        match may {
            Admission::WaitForTurn(_) => {
                if self.had_turn.swap(false, Ordering::Relaxed) {
                    self.begin(used);
                }
                self.gang.wait(Some(now));
                let ahead = self.ahead(
                    now,
                    used,
                    MAX_OVERDRAFT_IN_TURNS_NS,
                    STUCK_IN_TURNS_AFTER_NS,
                );
                ahead.map_or(may, Admission::OnlyAwaited)
            }
            Admission::InFlight(_) => {
                self.had_turn.store(true, Ordering::Relaxed);
                self.gang.wait(None);
                may
            }
            Admission::RetryAfter(_) | Admission::OnlyAwaited(_) => may,
        }
    }

    /// The time in flight below which launches go on although they would have to wait; `None` if they wait.
    pub(super) fn may(&self, now: u64, used: u64) -> Option<u64> {
        self.ahead(now, used, MAX_OVERDRAFT_NS, STUCK_AFTER_NS)
    }

    fn ahead(&self, now: u64, used: u64, most: u64, stuck: u64) -> Option<u64> {
        if !self.gang.is_several() {
            return None;
        }
        let spent = used.saturating_sub(self.used.load(Ordering::Relaxed));
        let mut others = self.gang.others(now, stuck);
        let is_careful = self.is_careful.load(Ordering::Relaxed);
        // A GPU that went on once keeps up with the others, until they have to wait too.
        let keeps_up = !is_careful && self.is_used.load(Ordering::Relaxed);
        let is_for =
            |other: Other<'_>| other.is_stuck || keeps_up && other.is_busy && !other.is_waited_for;
        if spent > most || !others.any(is_for) {
            return None;
        }
        self.gang.come_together(now);
        self.is_used.store(true, Ordering::Relaxed);
        if !is_careful {
            return Some(if keeps_up {
                IN_FLIGHT_LATER_NS
            } else {
                IN_FLIGHT_NS
            });
        }
        let rested = now.saturating_sub(self.moved.load(Ordering::Relaxed));
        (rested > ANSWER_AFTER_NS).then_some(0)
    }

    /// Some work has ended. `next` is the time that the next should take, if any is under way.
    pub(super) fn moved(&self, now: u64, next: Option<u64>) {
        if self.gang.is_several() {
            let over = next.map_or(0, |time| now.saturating_add(time));
            let before = self.over.load(Ordering::Relaxed);
            let late = now.saturating_sub(before);
            if before != 0 && late > STUCK_AFTER_NS && self.is_used.load(Ordering::Relaxed) {
                self.is_careful.store(true, Ordering::Relaxed);
            }
            self.moved.store(now, Ordering::Relaxed);
            self.over
                .store(self.gang.expect(before, over), Ordering::Relaxed);
        }
    }

    /// Something was launched that should take `time`.
    pub(super) fn launched(&self, now: u64, time: u64) {
        if self.gang.is_several() && !self.gang.is_expected(now) {
            self.moved(now, Some(time));
        }
    }
}

#[cfg(test)]
#[path = "coscheduling_tests.rs"]
mod tests;
