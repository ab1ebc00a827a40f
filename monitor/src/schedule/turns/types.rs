//! The words about turns: those of processes, of the arbiter, and of the decisions.

/// Nanoseconds: of `CLOCK_MONOTONIC`, or of the GPU.
pub type Nanos = i64;

pub(super) const MS: Nanos = 1_000_000;

/// The time from the end of one job's work to the beginning of the next one's. It is charged to no job.
pub(super) const HANDOVER: Nanos = MS / 4;
/// A job that gives a turn back has no more work than this on the GPU.
pub(super) const LONGEST_TAIL: Nanos = MS;

/// A job on this GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job(pub u32);

/// One of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId {
    /// The job.
    pub job: Job,
    pub(super) number: u64,
}

/// The words of a process on its page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// It wants to launch, or has work under way.
    pub wishes: bool,
    /// The word of the last turn that it is done with.
    pub done: u32,
    /// How long it has kept the GPU busy in all.
    pub used: u64,
    /// When its last work should be over.
    pub over: u64,
    /// Work of its job waits for that of another of its GPUs.
    pub together: bool,
}

/// The values to write on a process's page: first the terms, then the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The seat whose page gets the word.
    pub seat: SeatId,
    /// The new word.
    pub word: u32,
    /// `None` where the word closes the turn.
    pub terms: Option<Terms>,
}

/// The terms of a process in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// When it begins.
    pub from: u64,
    /// How much of its work may be left when it is done.
    pub ahead: u64,
    /// When it ends; [`u64::MAX`] for never.
    pub until: u64,
    /// The limit of its use in all; [`u64::MAX`] for none.
    pub budget: u64,
}

/// The outcome of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The values to write.
    pub orders: Vec<Order>,
    /// When to look again if no seat says anything before. If that is now: after the orders are written, and after each
    /// seat was heard again.
    pub next: Option<Nanos>,
}

/// The lengths of turns.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The time in which every job gets a turn, if there are few.
    pub epoch: Nanos,
    /// The part of the epoch for each job, if there are many: each change of turns costs some time.
    pub mean_turn: Nanos,
    /// The longest epoch.
    pub longest_epoch: Nanos,
    /// The shortest turn; jobs with small shares have it less often.
    pub shortest_turn: Nanos,
    /// How long after the end of a turn an answer is waited for at most.
    pub patience: Nanos,
    /// How much time's share a job that waits can save up.
    pub savings: Nanos,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            epoch: 50 * MS,
            mean_turn: 6 * MS,
            longest_epoch: 100 * MS,
            shortest_turn: 2 * MS,
            patience: 1000 * MS,
            savings: 1000 * MS,
        }
    }
}
