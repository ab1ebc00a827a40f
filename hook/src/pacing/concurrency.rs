//! How much of a process's work runs at the same time, in several streams. The times that its launches take alone then add
//! up to more time than passes.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::os::cells::zeroed;

/// Sums of what was measured of late; all zero at first. Only the thread that settles writes here.
pub(super) struct Concurrency {
    /// The sum of the launches' estimates.
    estimated: AtomicU64,
    /// The GPU time that passed, without time that was charged for other work.
    passed: AtomicU64,
    /// How much more the first is than the second, in [`ONE`]ths of it.
    more: AtomicU64,
}

zeroed! { Concurrency { estimated, passed, more } }

/// The factor 1, in fixed point.
const ONE: u64 = 16;
/// The largest factor by which concurrent streams let a process launch ahead. If the streams wait for each other after
/// all, the work takes this many times as long.
const MAX_TIMES: u64 = 8 * ONE;
/// A new measurement replaces this part of those before it: one divided by this.
const WEIGHT: u64 = 32;

impl Concurrency {
    /// Work that should take `estimated` was over, of which `passed` is new time.
    pub(super) fn note(&self, estimated: u64, passed: u64) {
        let add = |sum: &AtomicU64, new: u64| {
            // Relaxed, as all here: figures for nothing but estimates.
            let before = sum.load(Ordering::Relaxed);
            let after = before.saturating_sub(before / WEIGHT).saturating_add(new);
            sum.store(after, Ordering::Relaxed);
            after
        };
        let estimated = add(&self.estimated, estimated);
        let passed = add(&self.passed, passed);
        let times = estimated.saturating_mul(ONE).checked_div(passed);
        let times = times.unwrap_or(ONE).clamp(ONE, MAX_TIMES);
        self.more
            .store(times.saturating_sub(ONE), Ordering::Relaxed);
    }

    /// In one stream one launch comes after the other, whatever was before. Streams are counted only where that matters.
    fn times(&self, streams: impl FnOnce() -> usize) -> u64 {
        let more = self.more.load(Ordering::Relaxed);
        if more == 0 {
            return ONE;
        }
        let most = u64::try_from(streams()).unwrap_or(u64::MAX).max(1);
        ONE.saturating_add(more).min(ONE.saturating_mul(most))
    }

    /// The time for which launches in this number of streams keep the GPU busy, if they should take `estimated` one after
    /// the other.
    pub(super) fn together(&self, estimated: u64, streams: impl FnOnce() -> usize) -> u64 {
        let time = estimated
            .saturating_mul(ONE)
            .checked_div(self.times(streams));
        time.unwrap_or(estimated)
    }

    /// The reverse: the time that launches in this number of streams take one after the other, if they keep the GPU busy
    /// for `time`.
    pub(super) fn apart(&self, time: u64, streams: impl FnOnce() -> usize) -> u64 {
        let whole = (time / ONE).saturating_mul(self.times(streams));
        whole.max(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Nothing goes on at the same time, however many streams there are.
    fn is_none(concurrency: &Concurrency) -> bool {
        concurrency.times(|| 8) == ONE
    }

    fn nothing() -> Concurrency {
        Concurrency {
            estimated: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            more: AtomicU64::new(0),
        }
    }

    /// Notes the measurements of `count` streams whose work runs at the same time.
    fn streams(concurrency: &Concurrency, count: u64, rounds: u64) {
        for _ in 0..rounds {
            concurrency.note(MS, MS);
            (1..count).for_each(|_| concurrency.note(MS, 0));
        }
    }

    #[test]
    fn one_stream_overlaps_with_nothing() {
        let concurrency = nothing();
        for time in [0, 1, MS, 1000 * MS] {
            assert_eq!(
                (
                    concurrency.together(time, || 8),
                    concurrency.apart(time, || 8)
                ),
                (time, time)
            );
        }
        streams(&concurrency, 1, 100);
        assert!(is_none(&concurrency));
        // Work that took longer than estimated does not make the process launch less.
        (0..100).for_each(|_| concurrency.note(MS, 5 * MS));
        assert!(is_none(&concurrency));
    }

    #[test]
    fn concurrent_streams_keep_the_gpu_busy_for_part_of_their_time() {
        for count in [2, 4, 8] {
            let concurrency = nothing();
            streams(&concurrency, count, 100);
            let near = |time: u64, wanted: u64| time.abs_diff(wanted) <= wanted / 5;
            assert!(near(concurrency.together(count * MS, || 8), MS), "{count}");
            assert!(near(concurrency.apart(MS, || 8), count * MS), "{count}");
            // Now all of it is in one.
            for streams in [0, 1] {
                assert_eq!(concurrency.together(count * MS, || streams), count * MS);
                assert_eq!(concurrency.apart(MS, || streams), MS);
            }
        }
    }

    #[test]
    fn there_is_a_bound_and_it_ends() {
        let concurrency = nothing();
        streams(&concurrency, 64, 100);
        assert_eq!(concurrency.apart(MS, || 64), 8 * MS);
        assert_eq!(concurrency.apart(u64::MAX, || 64), u64::MAX);
        streams(&concurrency, 1, 200);
        assert!(concurrency.apart(MS, || 64) < MS + MS / 8);
    }
}
