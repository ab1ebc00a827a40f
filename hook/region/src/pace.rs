//! A job's own cap on the time of one GPU, for nodes and moments without an arbiter.
//!
//! One word, which all processes of the job share: until when the time that they used would have taken, had it been
//! given evenly at the job's share (the "theoretical arrival time" of the generic cell rate algorithm, ITU-T I.371).
//! Ahead of the clock is debt, behind it is credit. Nothing is to be repaired after a death.

use crate::atomic::{AtomicU64, Ordering};
use crate::seat::WHOLE;

/// The number of tries of one call whose change others undo. Each time another process made progress; this many times
/// mean that a process keeps writing garbage into the ledger.
pub(crate) const TRIES: u32 = 1 << 16;

/// The longest debt, on the clock: a job waits no longer, whatever the word contains.
const LONGEST_DEBT: u64 = 10_000_000_000;

/// The cap on one GPU.
#[derive(Clone, Copy)]
pub struct Pace<'a>(pub(crate) &'a AtomicU64);

/// A share of a GPU's time, and how much credit a job that was idle has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Of [`WHOLE`]; not 0.
    pub share: u32,
    /// How long the clock runs for the most credit that there is, in nanoseconds.
    pub burst: u64,
}

impl Rate {
    /// Converts GPU time to time on the clock.
    pub fn on_clock(self, time: u64) -> u64 {
        scaled(time, WHOLE, self.share)
    }

    /// Converts time on the clock to GPU time.
    pub fn on_gpu(self, time: u64) -> u64 {
        scaled(time, self.share, WHOLE)
    }
}

fn scaled(time: u64, by: u32, of: u32) -> u64 {
    let scaled = u128::from(time).saturating_mul(by.into());
    let scaled = scaled.checked_div(of.into()).unwrap_or(u128::MAX);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl Pace<'_> {
    /// How far the job is behind the clock, in nanoseconds of it, at most [`Rate::burst`]: its credit. Negative for a debt.
    pub fn credit(&self, now: u64, rate: Rate) -> i64 {
        let before = self.0.load(Ordering::SeqCst);
        let until = within(before, now, rate);
        if until < before {
            // From here on the debt grows less. If that fails, another thread has just charged, or looked.
            let _ = self
                .0
                .compare_exchange(before, until, Ordering::SeqCst, Ordering::SeqCst);
        }
        now.wrapping_sub(until).cast_signed()
    }

    /// Charges time that the GPU has just worked. The job was not idle in this time.
    pub fn charge(&self, now: u64, rate: Rate, time: u64) {
        let more = rate.on_clock(time);
        let begin = now.saturating_sub(time);
        // Only this job's own user can keep changing the word.
        for _ in 0..TRIES {
            let before = self.0.load(Ordering::SeqCst);
            let after = within(before, begin, rate).saturating_add(more);
            let done = self
                .0
                .compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_ok() {
                return;
            }
        }
    }
}

/// The word as it counts: no older than the burst, and no debt beyond the longest.
fn within(until: u64, now: u64, rate: Rate) -> u64 {
    let oldest = now.saturating_sub(rate.burst);
    until.clamp(oldest, now.saturating_add(LONGEST_DEBT).max(oldest))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const QUARTER: Rate = Rate {
        share: WHOLE / 4,
        burst: 20 * MS,
    };

    #[test]
    fn a_job_that_was_idle_has_the_burst_and_no_more() {
        let word = AtomicU64::new(0);
        let pace = Pace(&word);
        let now = 1_000_000 * MS;
        assert_eq!(pace.credit(now, QUARTER), (20 * MS).cast_signed());
        pace.charge(now + 5 * MS, QUARTER, 5 * MS);
        assert_eq!(pace.credit(now + 5 * MS, QUARTER), (5 * MS).cast_signed());
        pace.charge(now + 10 * MS, QUARTER, 5 * MS);
        assert_eq!(
            pace.credit(now + 10 * MS, QUARTER),
            -(10 * MS).cast_signed()
        );
        assert_eq!(pace.credit(now + 20 * MS, QUARTER), 0);
        assert_eq!(pace.credit(now + 90 * MS, QUARTER), (20 * MS).cast_signed());
    }

    #[test]
    fn a_debt_that_is_far_too_deep_is_over_in_ten_seconds() {
        let word = AtomicU64::new(u64::MAX);
        let pace = Pace(&word);
        let now = 1_000_000 * MS;
        assert!(pace.credit(now, QUARTER) < 0);
        assert!(pace.credit(now + 5_000 * MS, QUARTER) < 0);
        assert!(pace.credit(now + 10_001 * MS, QUARTER) > 0);
    }

    #[test]
    fn a_job_that_works_whenever_it_has_credit_gets_its_share() {
        for (share, kernel) in [(WHOLE / 8, MS), (WHOLE / 4, 20 * MS), (WHOLE / 3, 200 * MS)] {
            let rate = Rate { share, ..QUARTER };
            let word = AtomicU64::new(0);
            let pace = Pace(&word);
            let (mut now, mut used) = (1_000_000 * MS, 0);
            let start = now;
            while now < start + 100_000 * MS {
                if pace.credit(now, rate) > 0 {
                    now += kernel;
                    used += kernel;
                    pace.charge(now, rate, kernel);
                } else {
                    now += MS / 10;
                }
            }
            let got = used as f64 / (now - start) as f64;
            let asked = f64::from(share) / f64::from(WHOLE);
            assert!((got - asked).abs() < 0.004, "{got} of {asked}");
        }
    }

    #[test]
    fn whatever_stands_in_the_word_a_job_waits_ten_seconds_at_most() {
        let word = AtomicU64::new(u64::MAX);
        let pace = Pace(&word);
        assert_eq!(pace.credit(MS, QUARTER), -LONGEST_DEBT.cast_signed());
        pace.charge(MS, QUARTER, u64::MAX);
        assert_eq!(pace.credit(0, QUARTER), -LONGEST_DEBT.cast_signed());
    }
}
