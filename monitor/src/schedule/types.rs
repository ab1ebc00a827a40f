//! The words of all decisions.

/// Nanoseconds: of `CLOCK_MONOTONIC`, or of the GPU.
pub type Nanos = i64;

/// A job on this GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u32);

/// One of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId {
    /// The job.
    pub job: Job,
    /// Counted up for each seat at the GPU.
    pub number: u64,
}
