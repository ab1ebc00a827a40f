//! The arbiter's report on a GPU and its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::settings::GpuId;
use crate::schedule::turns::{Book, Job, JobStatus, Nanos};

/// The state of a GPU's jobs, as [`Account`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The arbiter's knowledge.
    pub standing: JobStatus,
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
    /// The time for which it gets no turn, because it did not answer when its turn ended. An answer ends that.
    pub shut_out_for: Option<Duration>,
}

/// The use of a GPU by jobs, as [`super::Arbiter::accounts`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// For how long it was counted.
    pub known_for: Duration,
    /// How jobs share the GPU just now.
    pub sharing: Sharing,
    /// The sums of the GPU and of all jobs, also of those without processes.
    pub book: Book,
    /// The jobs with processes.
    pub tenants: Vec<Tenant>,
}

/// How jobs share a GPU just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By the GPU's own scheduler.
    Scheduler,
    /// By turns, and the reason against the scheduler; `None` without one.
    Turns(Option<String>),
}

/// The processes with a seat, as [`super::Arbiter::seats`] tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// The processes that have one at each GPU.
    pub given: BTreeSet<(GpuId, u32)>,
    /// Processes that asked for one in the last minute and got none.
    pub refused: BTreeSet<u32>,
    /// Whether too many ask, or asked a moment ago, for all to be heard.
    pub is_crowded: bool,
    /// The time that each job was charged at each GPU.
    pub charged: BTreeMap<(GpuId, Job), Nanos>,
}

impl Seats {
    /// Adds those at a GPU.
    pub fn add(&mut self, id: GpuId, mut account: Account) {
        for tenant in account.tenants {
            let job = tenant.standing.job;
            // Its standing begins anew when its last process has gone, and its book does not.
            let charged = account.book.of(job).charged;
            self.charged.insert((id, job), charged);
            let members = tenant.members.iter().map(|member| (id, member.pid));
            self.given.extend(members);
        }
    }
}
