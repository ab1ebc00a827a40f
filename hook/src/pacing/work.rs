//! The work that is launched, and the decision whether a launch may go on.

/// The work of a launch, by which its time is known: the same work takes about the same time.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// A kernel, or a graph that can be launched.
    pub(crate) what: u64,
    /// The size of the work.
    pub(crate) size: u64,
    /// It may begin before what was launched before it has ended.
    pub(crate) is_chained: bool,
    /// Its estimate in nanoseconds until it was measured.
    pub(crate) guess: u64,
}

/// Whether a launch may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A launch may go on while less than this is in flight, in nanoseconds.
    InFlight(u64),
    /// No launch may go on for this many nanoseconds at least.
    RetryAfter(u64),
    /// A launch may go on if work on another GPU of the job waits for it, while less than this is in flight, in nanoseconds.
    OnlyAwaited(u64),
    /// No launch may go on while the arbiter's word is this.
    WaitForTurn(u32),
}

/// Whether an event is recorded behind a launch.
#[derive(Clone, Copy)]
pub(super) enum RecordEvent {
    /// No event, and nothing is counted.
    Never,
    /// An event from time to time.
    Periodic,
    /// An event seldom: launches that may overlap do not if there is an event between them.
    Rare,
    /// No event if it is alone: it is known how long it takes.
    UnlessAlone,
    /// An event.
    Always,
    /// An event. Time began at this one of the host's clock, of which these are the last digits (tickets are small), or when
    /// the work before it has ended, if there is any.
    AlwaysFrom {
        begun: u32,
        is_behind: bool,
        has_rested: bool,
    },
}
