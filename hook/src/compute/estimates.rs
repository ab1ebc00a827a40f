//! How long a launch will take, as what was measured of the same work says.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Work;

/// A place for each kernel with each size of its grid, found by a hash; another with the same place takes it over.
pub(super) struct Estimates([AtomicU64; PLACES]);

const PLACES: usize = 1024;

/// What was not measured yet counts as this, in nanoseconds: so little of it is in flight at a time.
pub(crate) const UNKNOWN: u64 = 500_000;

/// No work takes less than this.
const LEAST: u64 = 1_000;

/// What was measured so often is known: then it is measured again from time to time only.
const OFTEN: u64 = 4;

/// What is known of a launch.
#[derive(Clone, Copy)]
pub(super) struct Estimate {
    /// In nanoseconds.
    pub(super) time: u64,
    /// Whether it was measured often.
    pub(super) is_sure: bool,
}

/// A word: a tag of 28 bits, how often it was measured in 4, nanoseconds in 32.
const TIME: u64 = 0xffff_ffff;
const COUNT: u32 = 32;
const TAG: u32 = 36;

/// A launch's place, and what it is known by there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    place: usize,
    tag: u32,
}

impl Key {
    /// The key of a launch.
    pub(super) fn of(work: Work) -> Self {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (work.what ^ work.size.wrapping_mul(MIX)).wrapping_mul(MIX);
        Self {
            place: (hash >> 54) as usize,
            // Never that of an empty place.
            tag: hash as u32 & 0x0fff_ffff | 1,
        }
    }

    /// As one number; never 0.
    pub(super) fn number(self) -> u64 {
        (self.place as u64) << 32 | u64::from(self.tag)
    }

    /// The key of such a number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let place = (number >> 32) as usize;
        (number != 0 && place < PLACES).then_some(Self {
            place,
            tag: number as u32,
        })
    }
}

impl Estimates {
    /// What is known of a launch, if it was measured.
    #[inline]
    pub(super) fn of(&self, key: Key) -> Option<Estimate> {
        // Relaxed: tag and time are one word.
        let word = self.0.get(key.place)?.load(Ordering::Relaxed);
        ((word >> TAG) as u32 == key.tag).then_some(Estimate {
            time: word & TIME,
            is_sure: word >> COUNT & 15 >= OFTEN,
        })
    }

    /// It took so long, once. The shortest of the first counts: others' work in between only makes it longer, most of all at
    /// the beginning. Later a quarter of what is new counts; what is far less counts at once, but not the first time: an
    /// event that another thread recorded may stand between.
    pub(super) fn learn(&self, key: Key, time: u64) {
        let Some(place) = self.0.get(key.place) else {
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
            OFTEN.. if is_far_less => (OFTEN.saturating_sub(1), before),
            OFTEN.. => {
                let sum = before.saturating_mul(3).saturating_add(time);
                (count.saturating_add(1).min(15), sum / 4)
            }
            _ => (count.saturating_add(1), before.min(time)),
        };
        place.store(
            u64::from(key.tag) << TAG | count << COUNT | new.clamp(LEAST, TIME),
            Ordering::Relaxed,
        );
    }
}
