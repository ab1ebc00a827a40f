//! The time, by the kernel or the processor.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::{processor, sys};

/// The most that a timer of the kernel may be late, in nanoseconds, if a thread asks for that. Otherwise it is 50 us.
const FINE: u64 = 1_000;

/// The nanoseconds of `CLOCK_MONOTONIC`, to some hundred: by the processor's counter where the kernel was asked lately. A
/// system call would take as long as all else that a launch costs.
pub(crate) fn nanoseconds() -> u64 {
    CLOCK.now().unwrap_or_else(|| CLOCK.ask())
}

/// A time of the kernel's clock, and when it was read by the processor's counter.
struct Clock {
    /// Odd while a thread writes.
    version: AtomicU32,
    ticks: AtomicU64,
    time: AtomicU64,
    /// Nanoseconds a tick, times 2^32; 0 for unknown.
    rate: AtomicU64,
}

static CLOCK: Clock = Clock {
    version: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    time: AtomicU64::new(0),
    rate: AtomicU64::new(0),
};

impl Clock {
    /// The time until the kernel is asked again, in nanoseconds.
    const SPAN: u64 = 2_000_000;
    /// The shortest time from which a rate is computed.
    const LEAST: u64 = 100_000;
    /// The longest: the machine may have slept.
    const MOST: u64 = 1_000_000_000;

    #[inline]
    fn now(&self) -> Option<u64> {
        self.at(processor::ticks())
    }

    #[inline]
    fn at(&self, now: u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let ticks = self.ticks.load(Ordering::Relaxed);
        let time = self.time.load(Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        // The values that were read belong together if no thread has written since.
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        // Far too much where another processor's counter is behind.
        let since = now.wrapping_sub(ticks).checked_mul(rate)? >> 32;
        (is_whole && rate > 0 && since < Self::SPAN).then(|| time.wrapping_add(since))
    }

    #[cold]
    fn ask(&self) -> u64 {
        let before = processor::ticks();
        let time = read(libc::CLOCK_MONOTONIC);
        let ticks = processor::ticks();
        if ticks.wrapping_sub(before) > processor::SOME_TICKS {
            // Something came between: what the counter was when the clock was read is unknown.
            return time;
        }
        let version = self.version.load(Ordering::Relaxed);
        let mine = version & 1 == 0
            && self
                .version
                .compare_exchange(
                    version,
                    version.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !mine {
            return time;
        }
        fence(Ordering::Release);
        let before = self.time.load(Ordering::Relaxed);
        let passed = time.saturating_sub(before);
        let counted = ticks.wrapping_sub(self.ticks.load(Ordering::Relaxed));
        let is_known = (Self::LEAST..Self::MOST).contains(&passed);
        let rate = (passed << 32).checked_div(counted).filter(|_| is_known);
        if before == 0 || passed >= Self::LEAST {
            self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
            self.time.store(time, Ordering::Relaxed);
            self.ticks.store(ticks, Ordering::Relaxed);
        }
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
        time
    }
}

/// The seconds since 1970.
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_REALTIME) / 1_000_000_000
}

/// The milliseconds since the machine was started.
pub(crate) fn milliseconds() -> u64 {
    read(libc::CLOCK_MONOTONIC) / 1_000_000
}

fn read(clock: c_int) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let _ = sys::clock_gettime(clock, &mut time);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// A number of nanoseconds, as the kernel takes it.
pub(super) fn span(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    }
}

/// Waits for this number of nanoseconds.
pub(crate) fn nap(nanoseconds: u64) {
    let _ = sys::nanosleep(&span(nanoseconds));
}

/// Waits a millisecond.
pub(crate) fn pause() {
    nap(1_000_000);
}

/// This thread's timers are exact until it is dropped.
pub(crate) struct Exact(u64);

impl Exact {
    /// Makes them so.
    pub(crate) fn timers() -> Self {
        let before = sys::timer_slack();
        let _ = sys::set_timer_slack(FINE);
        Self(before.map_or(50_000, i64::cast_unsigned))
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        let _ = sys::set_timer_slack(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn time_passes_as_by_the_kernels_clock() {
        let end = Instant::now() + Duration::from_millis(50);
        let mut furthest = 0;
        while Instant::now() < end {
            let before = read(libc::CLOCK_MONOTONIC);
            let time = nanoseconds();
            let after = read(libc::CLOCK_MONOTONIC);
            furthest = furthest
                .max(before.saturating_sub(time))
                .max(time.saturating_sub(after));
        }
        // A thread that is interrupted between two looks sees the counter and the clock at different times.
        assert!(furthest < 1_000_000, "{furthest} ns");
    }

    #[test]
    fn no_thread_reads_half_of_what_another_writes() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let end = Instant::now() + Duration::from_millis(50);
                    while Instant::now() < end {
                        let apart = nanoseconds().abs_diff(read(libc::CLOCK_MONOTONIC));
                        assert!(apart < 1_000_000_000, "{apart} ns");
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
