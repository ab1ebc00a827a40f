//! What is launched, and whether it may be.

/// What a launch does, as far as its time is known by it: the same work takes about the same time.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// A kernel, or a graph that can be launched.
    pub(crate) what: u64,
    /// How much of it.
    pub(crate) size: u64,
    /// It may begin before what was launched before it has ended.
    pub(crate) is_chained: bool,
    /// So long it may take, in nanoseconds, as long as it was not measured.
    pub(crate) guess: u64,
}

/// What may be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// So much may be in flight, in nanoseconds.
    Have(u64),
    /// Nothing, for so many nanoseconds at least.
    Nothing(u64),
    /// Launches for which work on another GPU of the job waits, while less than this is in flight.
    Needed(u64),
    /// Nothing, as long as the arbiter's word is this.
    Turn(u32),
}
