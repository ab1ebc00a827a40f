//! What the arbiter tells of a GPU and its jobs.

use std::time::Duration;

use crate::schedule::turns::Standing;

/// Where a GPU's jobs stand, as [`super::Arbiter::status`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// What the arbiter knows.
    pub standing: Standing,
    /// Since when the job has had processes here, or time to pay for.
    pub known_for: Duration,
    /// Its processes.
    pub members: Vec<Member>,
}

/// A process that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// How often it launched without a turn, as it says.
    pub launches_without_turn: u32,
    /// It did not answer when its turn ended: it gets none for so long, unless it answers.
    pub shut_out_for: Option<Duration>,
}

/// How jobs share a GPU just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By the GPU's own scheduler.
    Scheduler,
    /// By turns, and why; `None` where nothing stands against the scheduler.
    Turns(Option<String>),
}
