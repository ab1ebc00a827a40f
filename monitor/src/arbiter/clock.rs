//! The time.

use rustix::time::{ClockId, clock_gettime};

use crate::schedule::turns::Nanos;

pub(super) fn now() -> Nanos {
    time(ClockId::Monotonic)
}

/// The time by a clock.
pub(super) fn time(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
