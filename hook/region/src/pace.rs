//! A job's own cap on the time of one GPU, for nodes and moments without an arbiter.
//!
//! The processes of the job share two words. The first says until when the time that they used would have taken, had it been
//! given evenly at the job's share (the "theoretical arrival time" of the generic cell rate algorithm, ITU-T I.371).
//! Ahead of the clock is debt, behind it is credit. The second has the last milliseconds in
//! small pieces, and which of them are charged: time in which several processes had work counts once. Nothing is to be repaired after a death.

use crate::atomic::{AtomicU64, Ordering};
use crate::seat::WHOLE;

/// The number of tries of one call whose change others undo. Each time another process made progress; this many times
/// mean that a process keeps writing garbage into the ledger.
pub(crate) const TRIES: u32 = 1 << 16;

/// The longest debt, on the clock: a job waits no longer, whatever the word contains.
const LONGEST_DEBT: u64 = 10_000_000_000;

/// For so long a launch counts as waiting after each look.
const WAITS_FOR: u64 = 1_000_000;

/// The cap on one GPU.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    pub(crate) until: &'a AtomicU64,
    pub(crate) charged: &'a AtomicU64,
    pub(crate) waits: &'a AtomicU64,
    pub(crate) all_waits: &'a [AtomicU64],
}

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
        let before = self.until.load(Ordering::SeqCst);
        let until = within(before, now, rate);
        if until < before {
            // From here on the debt grows less. If that fails, another thread has just charged, or looked.
            let _ = self
                .until
                .compare_exchange(before, until, Ordering::SeqCst, Ordering::SeqCst);
        }
        now.wrapping_sub(until).cast_signed()
    }

    /// A launch waits for credit on this GPU, which is idle. It looks again within a millisecond, or goes on.
    pub fn wait(&self, now: u64) {
        self.waits.store(now, Ordering::SeqCst);
    }

    /// When one last waited on each other GPU of the job; 0 for never.
    fn others(&self) -> impl Iterator<Item = u64> {
        let others = self.all_waits.iter();
        let others = others.filter(|it| !core::ptr::eq(*it, self.waits));
        others.map(|it| it.load(Ordering::SeqCst))
    }

    /// Whether one waits on another GPU of the job. Work on this GPU may wait for that launch.
    pub fn others_wait(&self, now: u64) -> bool {
        self.others().any(|last| now.abs_diff(last) < WAITS_FOR)
    }

    /// Whether one ever did.
    pub fn have_others_waited(&self) -> bool {
        self.others().any(|last| last > 0)
    }

    /// Whether the GPU has worked for the job most of the last milliseconds.
    pub fn is_at_work(&self, now: u64) -> bool {
        let charged = Charged(self.charged.load(Ordering::SeqCst));
        let at_work = charged.at(piece(now)).bits().count_ones();
        at_work >= PIECES / 2
    }

    /// The part of the `time` before `now` that was not charged yet, in whole pieces. On average that is the part itself: where
    /// pieces begin is as good as random to the job. What is older than all pieces was not charged: a thread that samples so
    /// late was kept from running.
    fn uncharged(&self, now: u64, time: u64) -> u64 {
        let end = piece(now);
        let count = end.wrapping_sub(piece(now.saturating_sub(time)));
        let older = PIECE.saturating_mul(count.saturating_sub(PIECES).into());
        let count = count.min(PIECES);
        if count == 0 {
            return 0;
        }
        // Only this job's own user can keep changing the word.
        for _ in 0..TRIES {
            let before = self.charged.load(Ordering::SeqCst);
            let moved = Charged(before).at(end);
            let after = moved.with(end, count);
            let done =
                self.charged
                    .compare_exchange(before, after.0, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_ok() {
                let new = after.bits() & !moved.bits();
                let new = PIECE.saturating_mul(new.count_ones().into());
                return new.saturating_add(older);
            }
        }
        0
    }

    /// Charges the `time` before `now`, in which the GPU worked for a process, unless it was charged for another. The job was
    /// not idle in this time.
    pub fn charge(&self, now: u64, rate: Rate, time: u64) {
        let time = self.uncharged(now, time);
        let begin = now.saturating_sub(time);
        let more = rate.on_clock(time);
        // Only this job's own user can keep changing the word.
        for _ in 0..TRIES {
            let before = self.until.load(Ordering::SeqCst);
            let after = within(before, begin, rate).saturating_add(more);
            let done =
                self.until
                    .compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_ok() {
                return;
            }
        }
    }
}

/// One piece of time, in nanoseconds.
const PIECE: u64 = 125_000;
/// The pieces that are remembered: longer than the longest interval of samples.
const PIECES: u32 = 32;

/// Which of the last pieces of time are charged, in one word: the number of the piece after the last in the upper half, and a bit
/// for each piece in the lower half, the last one first.
#[derive(Clone, Copy)]
struct Charged(u64);

impl Charged {
    fn new(end: u32, bits: u32) -> Self {
        Self(u64::from(end) << PIECES | u64::from(bits))
    }

    fn end(self) -> u32 {
        (self.0 >> PIECES) as u32
    }

    fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The same at a later time; as it is if that is a little earlier. Pieces that are too old are forgotten.
    fn at(self, end: u32) -> Self {
        if self.end().wrapping_sub(end) < PIECES {
            return self;
        }
        let passed = end.wrapping_sub(self.end());
        Self::new(end, self.bits().checked_shl(passed).unwrap_or(0))
    }

    /// With `count` pieces before `end`.
    fn with(self, end: u32, count: u32) -> Self {
        let now = self.at(end);
        let later = now.end().wrapping_sub(end);
        let all = u32::MAX
            .checked_shr(PIECES.saturating_sub(count))
            .unwrap_or(0);
        Self::new(now.end(), now.bits() | all.checked_shl(later).unwrap_or(0))
    }
}

/// The number of a time's piece, as it is counted.
fn piece(time: u64) -> u32 {
    (time / PIECE) as u32
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

    fn pace(words: &[AtomicU64; 2]) -> Pace<'_> {
        let [until, charged] = words;
        Pace {
            until,
            charged,
            waits: until,
            all_waits: &[],
        }
    }

    #[test]
    fn a_gpu_knows_of_launches_that_wait_on_others() {
        let words = [0, 0].map(AtomicU64::new);
        let all_waits = [0, 0, 0].map(AtomicU64::new);
        let gpu = |number: usize| Pace {
            waits: &all_waits[number],
            all_waits: &all_waits,
            ..pace(&words)
        };
        let now = 1_000_000 * MS;
        gpu(1).wait(now);
        let waits = |now| [0, 1, 2].map(|number| gpu(number).others_wait(now));
        assert_eq!(waits(now + MS / 2), [true, false, true]);
        assert_eq!(waits(now + MS), [false; 3]);
        // Whatever stands in the word.
        gpu(1).wait(u64::MAX);
        assert_eq!(waits(now), [false; 3]);
    }

    #[test]
    fn a_job_that_was_idle_has_the_burst_and_no_more() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let pace = pace(&words);
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
        let words = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
        let pace = pace(&words);
        let now = 1_000_000 * MS;
        assert!(pace.credit(now, QUARTER) < 0);
        assert!(pace.credit(now + 5_000 * MS, QUARTER) < 0);
        assert!(pace.credit(now + 10_001 * MS, QUARTER) > 0);
    }

    #[test]
    fn a_job_that_works_whenever_it_has_credit_gets_its_share() {
        for (share, kernel) in [(WHOLE / 8, MS), (WHOLE / 4, 20 * MS), (WHOLE / 3, 200 * MS)] {
            let rate = Rate { share, ..QUARTER };
            let words = [AtomicU64::new(0), AtomicU64::new(0)];
            let pace = pace(&words);
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
        let words = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];
        let pace = pace(&words);
        assert_eq!(pace.credit(MS, QUARTER), -LONGEST_DEBT.cast_signed());
        pace.charge(MS, QUARTER, u64::MAX);
        assert_eq!(pace.credit(0, QUARTER), -LONGEST_DEBT.cast_signed());
    }

    #[test]
    fn time_of_two_processes_at_once_is_charged_once() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let pace = pace(&words);
        let now = 1_000_000 * MS;
        assert_eq!(pace.uncharged(now, 2 * MS), 2 * MS);
        // Another process samples later, and a third one saw what was before.
        assert_eq!(pace.uncharged(now + MS, 2 * MS), MS);
        assert_eq!(pace.uncharged(now + MS / 2, 3 * MS), MS / 2);
        assert_eq!(pace.uncharged(now + MS, 3 * MS), 0);
        assert!(pace.is_at_work(now + MS) && !pace.is_at_work(now + 5 * MS));
        assert_eq!(pace.uncharged(now + 100 * MS, 2 * MS), 2 * MS);
    }

    #[test]
    fn short_work_is_charged_as_long_as_it_was() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let pace = pace(&words);
        let mut sum = 0;
        for number in 1..=100_000 {
            sum += pace.uncharged(number * 1_037_003, 20_000);
        }
        let of_truth = sum as f64 / (100_000.0 * 20_000.0);
        assert!((0.98..1.02).contains(&of_truth), "{of_truth}");
    }
}
