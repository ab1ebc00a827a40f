//! An entry of the GPU's log of context switches.

/// A group came to the GPU, or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The process whose group it is, by its number on the node, [`Switch::HIDDEN`] or [`Switch::DRIVER`].
    pub process: u32,
    /// The group's number on the GPU.
    pub channel: u32,
    /// Whether it came.
    pub is_start: bool,
    /// When, in nanoseconds of `CLOCK_MONOTONIC` ([`crate::now`]).
    pub at: u64,
}

/// A reading of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Until when it has what the GPU logged, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// Whether something was lost before or between these entries.
    pub has_lost: bool,
    /// Whether something was lost after them.
    pub lacks_last: bool,
}

impl Switch {
    /// Any process that the driver does not name, because this process may not see it
    /// (`NV_EVENT_BUFFER_HIDDEN_PID`).
    pub const HIDDEN: u32 = 0;
    /// The driver itself (`NV_EVENT_BUFFER_KERNEL_PID`).
    pub const DRIVER: u32 = u32::MAX;

    /// Whether the driver tells its exact time. It tells that of a process that it does not name only roughly.
    pub(crate) fn has_exact_time(&self) -> bool {
        ![Self::HIDDEN, Self::DRIVER].contains(&self.process)
    }
}
