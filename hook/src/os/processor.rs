//! The processor's clock.

pub(crate) use super::sys::ticks;

/// Some 20 us: the clocks of servers run at 2 to 3 GHz.
pub(crate) const SOME_TICKS: u64 = 50_000;
