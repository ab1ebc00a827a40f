//! The GPU's clock, by the machine's.
//!
//! The driver sets the GPU's clock to the time of day when it starts or resumes the GPU. From then on the clock runs by itself: that of an
//! H100 fell behind by 24 us in each second, so by 2.1 s a day (research/gpu-time.md).

use rustix::time::{ClockId, clock_gettime};

use crate::switch::Switch;

/// The difference of the clocks is taken to grow by one part in this number: 100 us in a second, four times what was seen. A
/// larger allowance would be a larger error in what jobs are charged.
const DRIFT: u64 = 10_000;

/// How much later than it happens an arrival may be found in the log.
const LATE: i64 = 1_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC`, by which [`Switch::at`] tells the time.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative on a clock that began with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The difference of the two clocks, as far as the log shows it.
///
/// Each reading takes all entries out of the log. So an entry is older than the end of the reading that finds it, and newer than
/// the begin of the reading before. The first bound is the better one: where entries are frequent, the newest is hardly older. The
/// second one shows that a clock was set anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// By how much the GPU's clock is behind, in nanoseconds; `None` before the first entry.
    behind: Option<i64>,
    /// When the last reading began.
    read: u64,
}

impl Clock {
    /// Of a log that begins after this time.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            behind: None,
            read: now,
        }
    }

    /// Brings what a reading from `begin` to `end` found to the machine's clock.
    pub(crate) fn convert(&mut self, found: &mut [Switch], begin: u64, end: u64) {
        let drift = begin.saturating_sub(self.read) / DRIFT;
        let drifted = (self.behind).map(|behind| behind.saturating_add_unsigned(drift));
        let less = |time: u64, at: u64| time.wrapping_sub(at).cast_signed();
        let known = found.iter().filter(|it| it.has_exact_time());
        let newest = known.clone().map(|it| less(end, it.at)).min();
        // The departure before an arrival is written with it, and may have been before the last reading.
        let arrivals = known.filter(|it| it.is_start);
        let oldest = arrivals.map(|it| less(self.read, it.at)).max();
        let is_possible = |it: &i64| oldest.is_none_or(|oldest| oldest <= it.saturating_add(LATE));
        self.read = begin;
        self.behind = drifted.filter(is_possible).into_iter().chain(newest).min();
        for switch in found {
            switch.at = switch.at.saturating_add_signed(self.behind.unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    /// The GPU's clock when the machine's begins.
    const TIME_OF_DAY: u64 = 1_795_644_577 * SECOND;
    const BETWEEN_READINGS: u64 = 10 * MS;

    /// A GPU whose clock is ahead of the machine's by `ahead`.
    struct Gpu {
        ahead: i64,
        clock: Clock,
        now: u64,
    }

    impl Gpu {
        fn new() -> Self {
            Self {
                ahead: 0,
                clock: Clock::new(0),
                now: 0,
            }
        }

        fn at(&self, time: u64) -> u64 {
            (TIME_OF_DAY + time).wrapping_add_signed(self.ahead)
        }

        /// Reads the log after a while, in which there was an arrival `age` before. Tells by how much the arrival's time is too late.
        fn read(&mut self, age: u64) -> i64 {
            self.now += BETWEEN_READINGS;
            let arrived = self.now - age;
            let mut found = [Switch {
                process: 7,
                channel: 6,
                is_start: true,
                at: self.at(arrived),
            }];
            let begin = self.now - 20 * US;
            self.clock.convert(&mut found, begin, self.now);
            found[0].at.wrapping_sub(arrived).cast_signed()
        }

        /// The age of the newest entry is never in step with the readings.
        fn read_often(&mut self, times: u64, each: impl Fn(&mut Self)) -> i64 {
            let mut last = 0;
            for number in 0..times {
                each(self);
                last = self.read(30 * US + number * 37 * US % (2 * MS));
            }
            last
        }
    }

    #[test]
    fn a_clock_that_drifts_either_way_is_followed() {
        for (each_second, most) in [
            (-50_000, 300 * US),
            (0, 300 * US),
            (50_000, 300 * US),
            // Linux corrects the machine's clock as fast as this.
            (-500_000, BETWEEN_READINGS),
            (500_000, MS),
        ] {
            let mut gpu = Gpu::new();
            let error = gpu.read_often(10_000, |gpu| gpu.ahead += each_second / 100);
            assert!(error.unsigned_abs() < most, "{each_second}: {error} ns");
        }
    }

    #[test]
    fn a_clock_that_is_set_anew_is_followed_at_once() {
        for step in [-1_000_000_000, 1_000_000_000] {
            let mut gpu = Gpu::new();
            gpu.read_often(100, |_| {});
            gpu.ahead += step;
            let first = gpu.read(MS);
            assert_eq!(first, MS as i64, "{step}");
            let later = gpu.read_often(100, |_| {});
            assert!((0..2 * MS as i64).contains(&later), "{step}: {later}");
        }
    }

    #[test]
    fn a_first_entry_counts_as_new_until_another_shows_better() {
        let mut gpu = Gpu::new();
        assert_eq!(gpu.read(5 * MS), 5 * MS as i64);
        assert_eq!(gpu.read(30 * US), 30 * US as i64);
        // An older one shows nothing.
        let drift = (BETWEEN_READINGS / DRIFT).cast_signed();
        assert_eq!(gpu.read(MS), 30 * US as i64 + drift);
    }

    #[test]
    fn the_times_of_hidden_processes_show_nothing() {
        let mut gpu = Gpu::new();
        gpu.read_often(100, |_| {});
        let before = gpu.clock.behind;
        for process in [Switch::HIDDEN, Switch::DRIVER] {
            let hidden = Switch {
                process,
                channel: 6,
                is_start: true,
                at: TIME_OF_DAY + 100 * SECOND,
            };
            gpu.clock.convert(&mut [hidden], gpu.now, gpu.now);
        }
        assert_eq!(gpu.clock.behind.unwrap() - before.unwrap(), 2);
    }
}
