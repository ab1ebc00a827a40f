//! The bounds of the rules.

use std::time::Duration;

/// The bounds that no administrator sets.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A job may have so much more than its slice, in bytes: at least this,
    pub margin: u64,
    /// or this part of the slice.
    pub margin_part: u64,
    /// For how long a process that has the library may work without a seat: a context takes so long beside others at most.
    pub making_context: Duration,
    /// Work without a seat in two looks is an offence if no more than this is between them. NVML does not show each process in
    /// each of its samples.
    pub remembered: Duration,
    /// The time for which it has to be seen, apart from the grace that an administrator gives.
    pub seen_for: Duration,
    /// In how many looks in a row.
    pub looks: u32,
    /// Time on a GPU is compared with what was charged over so long.
    pub window: Duration,
    /// Far more than charged: so many times that, and this percentage of the window.
    pub times_charged: u32,
    /// See above.
    pub percent_beyond: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            margin: 64 << 20,
            margin_part: 50,
            making_context: Duration::from_secs(10),
            remembered: Duration::from_secs(5),
            seen_for: Duration::from_millis(300),
            looks: 2,
            window: Duration::from_secs(60),
            times_charged: 2,
            percent_beyond: 10,
        }
    }
}

impl Bounds {
    /// The most that a slice of so many bytes may have.
    pub(super) fn most(&self, slice: u64) -> u64 {
        slice.saturating_add(self.margin.max(slice / self.margin_part))
    }
}
