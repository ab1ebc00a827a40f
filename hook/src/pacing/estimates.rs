//! How long a launch will take, as what was measured of the same work says.

use core::sync::atomic::{AtomicU64, Ordering};

use super::work::Work;
use crate::os::cells::zeroed;

/// A place for each kernel with each size of its grid, found by a hash; another with the same place takes it over.
pub(super) struct Estimates([AtomicU64; PLACES]);

zeroed! { Estimates { 0 } }
zeroed! { Key { place, tag } }

const PLACES: usize = 1024;

/// Estimate of a launch that was not measured yet: little such work is in flight at a time.
pub(crate) const UNKNOWN_NS: u64 = 500_000;

/// The least that a launch takes.
const MIN_NS: u64 = 1_000;

/// Measurements after which a launch is known. Then it is measured from time to time only.
const KNOWN_AFTER: u64 = 4;

/// The estimate of a launch.
#[derive(Clone, Copy)]
pub(super) struct Estimate {
    /// In nanoseconds.
    pub(super) time: u64,
    /// Whether it was measured often.
    pub(super) is_sure: bool,
}

/// The longest launch that is not measured each time: a measurement takes as long.
const LIGHT_NS: u64 = 50_000;

/// One of this many known launches is measured; of shorter ones, fewer: a measurement costs the program as much as two or three
/// launches.
const SAMPLE_ONE_OF: u64 = 64;
/// This holds from 16 us on. Shorter launches are measured half as often for each power of two.
const SAMPLE_LOG_NS: u32 = 14;
const MAX_SAMPLE_HALVINGS: u32 = 2;

impl Estimate {
    /// Whether it is short, and known so well that it needs no event of its own.
    #[inline]
    pub(super) fn is_light(&self) -> bool {
        self.is_sure && self.time <= LIGHT_NS
    }

    /// The number of such launches of which one is measured: a power of two.
    #[inline]
    pub(super) fn one_of(self) -> u64 {
        let log = (self.time | 1).leading_zeros() ^ 63;
        SAMPLE_ONE_OF << SAMPLE_LOG_NS.saturating_sub(log).min(MAX_SAMPLE_HALVINGS)
    }
}

/// A word: a tag of 28 bits, how often it was measured in 4, nanoseconds in 32.
const TIME: u64 = 0xffff_ffff;
const COUNT: u32 = 32;
const TAG: u32 = 36;

/// A launch's place, and what it is known by there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    place: u16,
    tag: u32,
}

impl Key {
    /// The key of a launch.
    pub(super) fn from_work(work: Work) -> Self {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (work.what ^ work.size.wrapping_mul(MIX)).wrapping_mul(MIX);
        Self {
            place: (hash >> 54) as u16,
            // Never that of an empty place.
            tag: hash as u32 & 0x0fff_ffff | 1,
        }
    }

    /// As one number; never 0.
    pub(super) fn number(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.tag)
    }

    /// The key of such a number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let place = number >> 32;
        (number != 0 && place < PLACES as u64).then_some(Self {
            place: place as u16,
            tag: number as u32,
        })
    }
}

impl Estimates {
    /// The estimate of a launch, if it was measured.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Estimate> {
        // Relaxed: tag and time are one word.
        let word = self.0.get(usize::from(key.place))?.load(Ordering::Relaxed);
        ((word >> TAG) as u32 == key.tag).then_some(Estimate {
            time: word & TIME,
            is_sure: word >> COUNT & 15 >= KNOWN_AFTER,
        })
    }

    /// The time to learn from a launch of which only an upper bound is known. It changes the estimate little, and a
    /// short time changes it no more than a long one, or the shortest would be kept for ever.
    pub(super) fn within(&self, key: Key, time: u64) -> u64 {
        let Some(Estimate { time: known, .. }) = self.find(key) else {
            return time;
        };
        let some = known / 8;
        time.clamp(known.saturating_sub(some), known.saturating_add(some))
    }

    /// A launch took this time once. Of the first times the shortest counts, since other work in between only makes
    /// them longer, most of all at the beginning. Later a quarter of a new time counts. A far shorter time counts at
    /// once, but not when it is first seen: another thread may have recorded an event in between.
    pub(super) fn learn(&self, key: Key, time: u64) {
        let Some(place) = self.0.get(usize::from(key.place)) else {
            return;
        };
        let word = place.load(Ordering::Relaxed);
        let is_known = (word >> TAG) as u32 == key.tag;
        let (count, before) = if is_known {
            (word >> COUNT & 15, word & TIME)
        } else {
            (0, time)
        };
        let is_far_less = time < before / 2;
        let (count, new) = match count {
            KNOWN_AFTER.. if is_far_less => (KNOWN_AFTER.saturating_sub(1), before),
            KNOWN_AFTER.. => {
                let sum = before.saturating_mul(3).saturating_add(time);
                (count.saturating_add(1).min(15), sum / 4)
            }
            _ => (count.saturating_add(1), before.min(time)),
        };
        place.store(
            u64::from(key.tag) << TAG | count << COUNT | new.clamp(MIN_NS, TIME),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Estimates {
        Estimates([const { AtomicU64::new(0) }; PLACES])
    }

    fn work(what: u64, size: u64) -> Key {
        Key::from_work(Work {
            what,
            size,
            is_chained: false,
            guess: UNKNOWN_NS,
        })
    }

    fn known(estimates: &Estimates, key: Key) -> Option<(u64, bool)> {
        let known = estimates.find(key)?;
        Some((known.time, known.is_sure))
    }

    /// The time that is known of a launch, and whether it is sure, after it took these times one after the other.
    fn after(times: &[u64]) -> Option<(u64, bool)> {
        let (estimates, key) = (none(), work(0x5000, 1));
        times.iter().for_each(|&time| estimates.learn(key, time));
        known(&estimates, key)
    }

    #[test]
    fn the_shortest_of_the_first_counts() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[90_000]), Some((90_000, false)));
        assert_eq!(after(&[90_000, 20_000, 50_000]), Some((20_000, false)));
        assert_eq!(
            after(&[90_000, 20_000, 50_000, 40_000]),
            Some((20_000, true))
        );
    }

    #[test]
    fn later_a_quarter_of_what_is_new_counts() {
        let first = [40_000; 4];
        let with = |more: &[u64]| after(&[&first, more].concat());
        assert_eq!(with(&[80_000]), Some((50_000, true)));
        assert_eq!(with(&[24_000]), Some((36_000, true)));
        let (time, is_sure) = with(&[100_000; 50]).unwrap();
        assert!(is_sure && (99_990..=100_000).contains(&time), "{time}");
    }

    #[test]
    fn what_is_far_less_is_believed_the_second_time() {
        let first = [40_000; 9];
        let with = |more: &[u64]| after(&[&first, more].concat());
        assert_eq!(with(&[1_500]), Some((40_000, false)));
        assert_eq!(with(&[1_500, 40_000]), Some((40_000, true)));
        assert_eq!(with(&[1_500, 1_600]), Some((1_600, true)));
    }

    #[test]
    fn what_only_bounds_the_time_changes_it_slowly() {
        let (estimates, key) = (none(), work(0x5000, 1));
        assert_eq!(estimates.within(key, 90_000), 90_000);
        (0..4).for_each(|_| estimates.learn(key, 8_000));
        let within = [90_000, 8_500, 7_500, 0].map(|time| estimates.within(key, time));
        assert_eq!(within, [9_000, 8_500, 7_500, 7_000]);
    }

    #[test]
    fn the_shorter_the_fewer_are_measured() {
        let one_of = |time| {
            let is_sure = true;
            Estimate { time, is_sure }.one_of()
        };
        assert_eq!(
            [50_000, 16_384, 8_192, 4_096, 1].map(one_of),
            [64, 64, 128, 256, 256]
        );
    }

    #[test]
    fn no_time_is_too_short_or_too_long_for_its_place() {
        assert_eq!(after(&[0]), Some((MIN_NS, false)));
        assert_eq!(after(&[u64::MAX; 20]), Some((TIME, true)));
    }

    #[test]
    fn the_same_kernel_on_another_grid_is_other_work() {
        let estimates = none();
        let grids: Vec<Key> = (0..8).map(|size| work(0x5000, size)).collect();
        for (&key, time) in grids.iter().zip(10_000..) {
            estimates.learn(key, time);
        }
        for (&key, time) in grids.iter().zip(10_000..) {
            assert_eq!(known(&estimates, key), Some((time, false)));
        }
    }

    #[test]
    fn work_takes_over_a_place_and_is_never_taken_for_the_other() {
        let (estimates, one) = (none(), work(0x5000, 1));
        let other = (1..)
            .map(|at| work(0x5000 + at * 0x100, 1))
            .find(|key| key.place == one.place)
            .unwrap();
        for _ in 0..9 {
            estimates.learn(one, 70_000);
        }
        assert_eq!(known(&estimates, other), None);
        estimates.learn(other, 30_000);
        assert_eq!(known(&estimates, other), Some((30_000, false)));
        assert_eq!(known(&estimates, one), None);
    }

    #[test]
    fn a_key_is_a_number_and_back() {
        for at in 0..10_000 {
            let key = work(0x5000 + at * 64, at % 7);
            assert_ne!(key.number(), 0);
            assert!(Key::from_number(key.number()) == Some(key));
        }
        for none in [0, u64::MAX, (PLACES as u64) << 32 | 1] {
            assert!(Key::from_number(none).is_none());
        }
    }

    /// Kernels lie at regular distances.
    #[test]
    fn neighbours_have_places_of_their_own() {
        for distance in [32, 64, 256, 4096] {
            let places = (0..256).map(|at| work(0x7f00_1234_0000 + at * distance, 108).place);
            let places: std::collections::HashSet<_> = places.collect();
            assert!(places.len() > 200, "{distance}: {}", places.len());
        }
    }
}
