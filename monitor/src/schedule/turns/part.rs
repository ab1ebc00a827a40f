//! A part of a turn, and how a job gets on with parts.

use super::types::{MS, Nanos, SeatId};

/// A part that was not used weighs as much as this number of used parts.
const UNUSED: u32 = 8;
/// The processes have turns together once the unused parts weigh this much.
const TOO_MANY: u32 = 2 * UNUSED + UNUSED / 2;
/// After this number of used parts in a row, the unused ones before are forgotten.
const GOOD: u32 = 64;
/// The time for which they have turns together; doubled each time.
const RETREAT: Nanos = 1000 * MS;
/// The most times that it is doubled.
const MOST_DOUBLINGS: u32 = 4;

/// A turn that is over, while the last work of it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at: Nanos,
    /// When it is not waited for any longer.
    pub(super) deadline: Nanos,
}

/// A part of a turn: one process has the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) seat: SeatId,
    /// When the work before it should be over.
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    /// The use of the process before.
    pub(super) used: u64,
    /// It is over, and waits for the process's answer.
    pub(super) ended: Option<Ended>,
}

impl Part {
    /// When there is something to do.
    pub(super) fn next(&self) -> Nanos {
        self.ended.map_or(self.until, |ended| ended.deadline)
    }
}

/// How a job got on with parts: a few unused ones do not end them.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// Grows by [`UNUSED`] with a part that was not used, and falls by one with each that was.
    pub(super) weight: u32,
    /// Used parts since that was nothing.
    pub(super) good: u32,
    pub(super) retreats: u32,
    pub(super) together_until: Nanos,
}

impl Record {
    pub(super) fn note(&mut self, is_used: bool, now: Nanos) {
        if is_used {
            self.weight = self.weight.saturating_sub(1);
            self.good = if self.weight == 0 { self.good + 1 } else { 0 };
            if self.good >= GOOD {
                (self.good, self.retreats) = (0, 0);
            }
            return;
        }
        self.good = 0;
        self.weight += UNUSED;
        if self.weight >= TOO_MANY {
            self.weight = 0;
            self.together_until = now + (RETREAT << self.retreats.min(MOST_DOUBLINGS));
            self.retreats += 1;
        }
    }
}
