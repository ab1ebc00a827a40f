//! The bounds of the rules.

use std::time::Duration;

/// The bounds that no administrator sets.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The bytes that a job may have beyond its slice: this many, or the next field if that is more.
    pub margin: u64,
    /// The same as a part of the slice: one divided by this.
    pub margin_part: u64,
    /// The time for which a process that has the library may work without a seat: the most that a context takes beside others.
    pub making_context: Duration,
    /// Work without a seat, or too much memory, in two observations is a violation if no more than this is between them; for memory,
    /// or three intervals. NVML does not show each process in each of its samples, and memory can be given back between two looks.
    pub remembered: Duration,
    /// The time for which it has to be seen, apart from the grace that an administrator gives.
    pub seen_for: Duration,
    /// In how many observations in a row.
    pub observations: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            margin: 64 << 20,
            margin_part: 50,
            making_context: Duration::from_secs(10),
            remembered: Duration::from_secs(5),
            seen_for: Duration::from_millis(300),
            observations: 2,
        }
    }
}

impl Bounds {
    /// The most that a slice of these bytes may have.
    pub(super) fn most(&self, slice: u64) -> u64 {
        slice.saturating_add(self.margin.max(slice / self.margin_part))
    }
}
