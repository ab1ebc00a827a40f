//! The limits to how often a job may wake the arbiter, and to the channels that it may have proven.
//!
//! Each wake-up has a thread of the arbiter read the job's page. A job that wakes it without need would take a core,
//! and keep the arbiter from other jobs. So each job has a limited part of the arbiter's time. The thread sleeps until the
//! wake-ups so far are paid for, and then reads all that came meanwhile at once. The same holds of the time in which the driver is asked
//! whose channels are that a process tells of anew. What is proven again
//! because it was held costs a job nothing.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use crate::schedule::Nanos;

/// The cost of a wake-up, and the part that each seat of the job adds: not measured, but of the right size.
const WAKE: Nanos = 5_000;
const SEAT: Nanos = 50;
/// A job has one part of the arbiter's time: the whole divided by this.
const PARTS: Nanos = 20;
/// The most that a job can save: it may wake the arbiter at once as often as it may in this time.
const SAVINGS: Nanos = 10_000_000;
/// The shortest wait: to sleep and wake each time would cost more than to look.
const REST: Nanos = 1_000_000;

/// The most that it can save for channels: a second of the time, in which thousands of processes can have their first ones proven.
const SAVINGS_FOR_CHANNELS: Nanos = PARTS * 1_000_000_000;
/// The cost of a proof, and of each group or handle that the driver is asked for: it takes 5 to 40 us, however long others keep it.
const PROOF: Nanos = 100_000;
const ASKED: Nanos = 40_000;
/// No job owes more for them, whatever its processes told of at once.
const MOST_OWED: Nanos = 5_000_000_000;

/// The account that the seats of one job at a GPU share.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// When all of their wake-ups are paid for.
    wakes: AtomicI64,
    /// When all that they told of anew is.
    proofs: AtomicI64,
}

impl RateLimit {
    /// One of the job's `seats` seats wakes its thread. Tells for how long no thread listens there.
    pub(super) fn wake(&self, now: Nanos, seats: usize) -> Duration {
        let seats = Nanos::try_from(seats).unwrap_or(Nanos::MAX);
        let cost = SEAT.saturating_mul(seats).saturating_add(WAKE);
        let begins = |paid: Nanos| paid.max(now - SAVINGS);
        let next = |paid| Some(begins(paid).saturating_add(cost.saturating_mul(PARTS)));
        // It is a sum and nothing else depends on it; and it always has a next.
        let paid = self.wakes.fetch_update(Relaxed, Relaxed, next);
        let wait = begins(paid.unwrap_or_else(|paid| paid)) - now;
        let wait = if wait > 0 { wait.max(REST) } else { 0 };
        Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
    }

    /// The driver was asked for so many groups or handles that a process told of anew.
    pub(super) fn pay_for_proof(&self, now: Nanos, asked: usize) {
        let asked = Nanos::try_from(asked).unwrap_or(Nanos::MAX);
        let cost = ASKED
            .saturating_mul(asked)
            .saturating_add(PROOF)
            .saturating_mul(PARTS);
        let next = |paid: Nanos| {
            let paid = paid.max(now - SAVINGS_FOR_CHANNELS);
            Some(paid.saturating_add(cost).min(now + MOST_OWED))
        };
        let _ = self.proofs.fetch_update(Relaxed, Relaxed, next);
    }

    /// For how long no more of these are to be proven.
    pub(super) fn until_proof(&self, now: Nanos) -> Nanos {
        (self.proofs.load(Relaxed) - now).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// How many wake-ups of seats that wake anew as soon as they were polled there are until `end`.
    fn heard(limit: &RateLimit, seats: usize, from: Nanos, end: Nanos) -> usize {
        let mut next = vec![from; seats];
        let mut heard = 0;
        while let Some(wake) = next.iter_mut().min().filter(|wake| **wake < end) {
            let now = *wake;
            *wake += 1000 + Nanos::try_from(limit.wake(now, seats).as_nanos()).unwrap();
            heard += usize::from(*wake < end);
        }
        heard
    }

    #[test]
    fn a_job_that_wakes_without_pause_takes_a_twentieth_of_the_time() {
        for seats in [1, 8, 64, 512] {
            let limit = RateLimit::default();
            let cost = WAKE + SEAT * seats as Nanos;
            let heard = heard(&limit, seats, 1000 * MS, 3000 * MS) as Nanos;
            let most = (2000 * MS + SAVINGS) / 20;
            assert!(heard * cost <= most + cost, "{seats}: {heard}");
            assert!(heard * cost >= most - most / 100 - cost, "{seats}: {heard}");
        }
    }

    #[test]
    fn a_job_that_wakes_now_and_then_is_polled_at_once() {
        // Eight processes, each of which rests and wants the GPU again each 2 ms; or one that does so each 250 us.
        for (seats, time) in [(8, 2 * MS), (1, MS / 4)] {
            let limit = RateLimit::default();
            for round in 1..10_000 {
                for _ in 0..2 * seats {
                    assert_eq!(limit.wake(round * time, seats), Duration::ZERO);
                }
            }
        }
    }

    #[test]
    fn a_job_that_woke_too_often_is_polled_at_once_after_a_rest() {
        let limit = RateLimit::default();
        let now = 1000 * MS;
        let last = (0..512).map(|_| limit.wake(now, 512)).last().unwrap();
        assert!(last > Duration::from_millis(100) && last < Duration::from_millis(400));
        let rested = now + Nanos::try_from(last.as_nanos()).unwrap() + SAVINGS;
        assert_eq!(limit.wake(rested, 512), Duration::ZERO);
    }

    #[test]
    fn who_tells_anew_without_pause_has_a_twentieth() {
        const COST: Nanos = 240 * ASKED + PROOF;
        for seats in [1, 16, 64] {
            let limit = RateLimit::default();
            let mut next = vec![1_000_000 * MS; seats];
            let (end, mut busy) = (next[0] + 60_000 * MS, 0);
            while let Some(tells) = next.iter_mut().min().filter(|it| **it < end) {
                let wait = limit.until_proof(*tells);
                *tells += wait.max(20 * MS);
                if wait == 0 {
                    limit.pay_for_proof(*tells, 240);
                    busy += COST;
                }
            }
            // A second that was saved, and what all ask for in the same moment, of which no more is owed than for five seconds.
            let at_once = seats as Nanos * COST;
            let rounds = if PARTS * at_once > MOST_OWED {
                60_000 * MS / MOST_OWED + 1
            } else {
                1
            };
            let most = 1000 * MS + (3000 * MS).max((rounds - 1) * at_once) + at_once;
            assert!(busy <= most, "{seats}: {busy}");
            // An honest job pays nothing that it would notice: 64 processes tell of ten sets of channels each when they begin.
            let limit = RateLimit::default();
            (0..640).for_each(|_| limit.pay_for_proof(1_000_000 * MS, 20));
            assert_eq!(limit.until_proof(1_000_000 * MS), 0);
        }
    }
}
