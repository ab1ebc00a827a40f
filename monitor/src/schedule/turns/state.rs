//! The state of a GPU and of its turn.

use std::collections::BTreeMap;

use super::book::Book;
use super::part::{Ended, Part};
use super::tenant::Tenant;
use super::types::{Job, Nanos, Rules};

/// The turn that a job has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) job: Job,
    pub(super) began: Nanos,
    /// When the work of the turn before should be over.
    pub(super) from: Nanos,
    /// The time when it ends; `None` while no job waits for that.
    pub(super) until: Option<Nanos>,
    /// Since when the job could have it on all of its GPUs, where it has it on all of them together.
    pub(super) met: Option<Nanos>,
    /// The time when it ends there, whether a job waits or not.
    pub(super) limit: Option<Nanos>,
    pub(super) ended: Option<Ended>,
    /// How long the last work of the turn before ran in this one.
    pub(super) tail: Nanos,
    /// Which of the job's processes has it, where they go one after the other.
    pub(super) part: Option<Part>,
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct Turns {
    pub(super) rules: Rules,
    pub(super) tenants: BTreeMap<Job, Tenant>,
    pub(super) turn: Option<Turn>,
    /// The job that had the last one.
    pub(super) last_holder: Option<Job>,
    /// When the last work of that should be over.
    pub(super) free_at: Nanos,
    /// When time was last accounted for.
    pub(super) settled: Nanos,
    /// Whether there are no turns just now.
    pub(super) is_off: bool,
    pub(super) last_seat: u64,
    pub(super) book: Book,
}
