//! An entry of the GPU's log of context switches.

/// A group came to the GPU, or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The process whose group it is, by its number on the node; 0xffff_ffff for the driver's own.
    pub process: u32,
    /// The group's number on the GPU.
    pub channel: u32,
    /// Whether it came.
    pub is_start: bool,
    /// When, in nanoseconds of `CLOCK_MONOTONIC` ([`crate::now`]).
    pub at: u64,
}

impl Switch {
    /// Whether the driver tells its exact time. It tells that of a process that it does not name only roughly.
    pub(crate) fn has_exact_time(&self) -> bool {
        /// Other users' processes, if this user may not see them, and the driver's own.
        const UNNAMED: [u32; 2] = [0, u32::MAX];
        !UNNAMED.contains(&self.process)
    }
}
