//! The node's clock: the machine's, or one that the test drives.

use rustix::time::{ClockId, clock_gettime};

use crate::description::Clock;
use crate::layout::get;
use crate::mapped::Mapped;
use crate::process::Process;

impl Process {
    /// Nanoseconds on the node's clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        now(&self.mapped)
    }
}

/// Nanoseconds on the node's clock, the same for all of its processes.
pub(crate) fn now(mapped: &Mapped) -> u64 {
    match mapped.description.clock {
        Clock::Driven => get(&mapped.shared().clock),
        Clock::Real => {
            let now = clock_gettime(ClockId::Monotonic);
            // Neither is negative on a clock that began with the machine.
            now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
        }
    }
}
