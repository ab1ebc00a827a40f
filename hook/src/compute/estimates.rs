//! How long a launch will take, as what was measured of the same work says.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Work;

/// A place for each kernel with each size of its grid, found by a hash; another with the same place takes it over.
pub(super) struct Estimates([AtomicU64; PLACES]);

const PLACES: usize = 1024;

/// What was not measured yet counts as this, in nanoseconds: so little of it is in flight at a time.
pub(super) const UNKNOWN: u64 = 500_000;

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
            tag: hash as u32 | 1,
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
    /// In nanoseconds, if it was measured.
    #[inline]
    pub(super) fn of(&self, key: Key) -> Option<u64> {
        // Relaxed: tag and time are one word.
        let word = self.0.get(key.place)?.load(Ordering::Relaxed);
        ((word >> 32) as u32 == key.tag).then_some(word & u64::from(u32::MAX))
    }

    /// It took so long, once: a quarter of what is new counts.
    pub(super) fn learn(&self, key: Key, time: u64) {
        let known = self.of(key);
        let new = known.map_or(time, |known| {
            (known.saturating_mul(3)).saturating_add(time) / 4
        });
        let new = new.clamp(1, u32::MAX.into());
        if let Some(place) = self.0.get(key.place) {
            place.store(u64::from(key.tag) << 32 | new, Ordering::Relaxed);
        }
    }
}
