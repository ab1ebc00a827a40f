//! The GPU's clock, by the machine's.
//!
//! The driver sets the GPU's clock to the time of day when it starts the GPU, and never again. From then on it runs by itself: that
//! of an H100 fell behind by 22 us in each second, so by 1.9 s a day (docs/gpu-time.md).

use rustix::time::{ClockId, clock_gettime};

/// How fast the difference of the clocks may change, as 1 in so many: 100 us in a second, four times what was seen.
const DRIFT: i64 = 10_000;

/// Nanoseconds of `CLOCK_MONOTONIC`, by which [`crate::Switch::at`] tells the time.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative on a clock that began with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The difference of the two clocks, as far as the log shows it.
///
/// An entry is always older than the reading that finds it. So the difference is at least the time of the newest entry less that of
/// the reading, and where entries are frequent it is hardly more. The largest of all readings counts. It fades, so that newer ones
/// count when the clocks drift.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// By how much the GPU's clock is ahead, in nanoseconds, and the time of the reading that shows it.
    ahead: Option<(i64, u64)>,
}

impl Clock {
    /// A reading at `now` found this time in its newest entry.
    pub(crate) fn note(&mut self, newest: u64, now: u64) {
        let seen = newest.wrapping_sub(now).cast_signed();
        let ahead = self.ahead.map_or(seen, |(ahead, then)| {
            seen.max(ahead - now.saturating_sub(then).cast_signed() / DRIFT)
        });
        self.ahead = Some((ahead, now));
    }

    /// The machine's time at a time of the GPU's clock.
    pub(crate) fn on_machine(&self, at: u64) -> u64 {
        at.saturating_sub_signed(self.ahead.map_or(0, |(ahead, _)| ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    const NEWEST: u64 = 1_795_644_577 * SECOND;

    /// By how much times are wrong at last, of a GPU whose clock runs at a pace of its own: in a million parts.
    fn error(parts: i64, seconds: u64, between_entries: u64) -> i64 {
        let mut clock = Clock::default();
        let gpu =
            |now: u64| (NEWEST + now).wrapping_add_signed(now.cast_signed() / 1_000_000 * parts);
        let mut error = 0;
        for reading in 1..=seconds * 100 {
            let now = reading * 10 * MS;
            // Readings are never in step with the entries.
            let newest = now - (now + reading * 37 * US) % between_entries;
            clock.note(gpu(newest), now);
            error = clock.on_machine(gpu(now)).wrapping_sub(now).cast_signed();
        }
        error
    }

    #[test]
    fn a_clock_that_drifts_either_way_is_followed() {
        for parts in [-50, -22, 0, 22, 50] {
            let error = error(parts, 100, 2 * MS);
            assert!((0..200 * US as i64).contains(&error), "{parts}: {error} ns");
        }
    }

    #[test]
    fn a_first_entry_counts_as_new_until_another_shows_better() {
        let mut clock = Clock::default();
        clock.note(NEWEST, 9 * SECOND);
        assert_eq!(clock.on_machine(NEWEST), 9 * SECOND);
        // It was five seconds old.
        clock.note(NEWEST + 6 * SECOND, 10 * SECOND);
        assert_eq!(clock.on_machine(NEWEST), 4 * SECOND);
        // An older one shows nothing.
        clock.note(NEWEST + 6 * SECOND, 11 * SECOND);
        let later = clock.on_machine(NEWEST) - 4 * SECOND;
        assert_eq!(later, SECOND / DRIFT.unsigned_abs());
    }
}
