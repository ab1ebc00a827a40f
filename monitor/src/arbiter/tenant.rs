//! The arbiter's report on a GPU and its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use softmig_region::seat::MOST_CHANNELS;

use super::settings::GpuId;
use crate::schedule::{Book, Job, Nanos};

/// A job with processes at a GPU, as [`Account`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The job.
    pub job: Job,
    /// Whether one of its processes wants the GPU.
    pub wants_gpu: bool,
    /// Whether it is held.
    pub is_held: bool,
    /// GPU time that it may still take, or below zero, that it owes.
    pub credit: Nanos,
    /// Its processes.
    pub members: Vec<Member>,
}

/// A process that has a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// Why it is not steered, where the GPU is.
    pub not_steered: Option<NotSteered>,
}

/// Why a process cannot be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSteered {
    /// It uses the GPU, and has told of no channels, or they are not proven yet.
    Silent,
    /// It has more channels than its seat has room for.
    TooMany,
    /// Its job has more channels than [`MOST_CHANNELS`].
    JobHasTooMany,
    /// The driver does not say that its channels are its own.
    NotOwn,
    /// It runs although it is held.
    Runs,
    /// A process of its user's keeps a file waiting that asks the driver.
    Keeps,
}

impl fmt::Display for NotSteered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("none of its channels is known"),
            Self::TooMany => f.write_str("it has too many channels"),
            Self::JobHasTooMany => {
                write!(f, "its job has more than {MOST_CHANNELS} channels")
            }
            Self::NotOwn => f.write_str("its channels are not known to be its own"),
            Self::Runs => f.write_str("it runs although it is held"),
            Self::Keeps => {
                f.write_str("a process of its user's keeps waiting who asks for its channels")
            }
        }
    }
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
    /// The jobs that have more than their share for long, and their processes that cannot be held.
    pub excess: BTreeMap<Job, BTreeSet<u32>>,
}

/// How jobs share a GPU just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By the GPU's own scheduler.
    Scheduler,
    /// By caps that their processes keep themselves, and the reason against the scheduler; `None` while no process wants the GPU.
    Caps(Option<String>),
}

/// The processes with a seat, as [`super::Arbiter::seats`] tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// The processes that have one at each GPU.
    pub given: BTreeSet<(GpuId, u32)>,
    /// The GPUs that are steered.
    pub steered: BTreeSet<GpuId>,
    /// Processes that asked for one in the last minute and got none, through no fault of their user's.
    pub refused: BTreeSet<u32>,
    /// The processes at each GPU that cannot be held, of jobs that have more than their share for long.
    pub excess: BTreeSet<(GpuId, Job, u32)>,
}

impl Seats {
    /// Adds those at a GPU.
    pub fn add(&mut self, id: GpuId, account: Account) {
        for (job, processes) in account.excess {
            self.excess
                .extend(processes.into_iter().map(|pid| (id, job, pid)));
        }
        if account.sharing == Sharing::Scheduler {
            self.steered.insert(id);
        }
        for tenant in account.tenants {
            let members = tenant.members.iter().map(|member| (id, member.pid));
            self.given.extend(members);
        }
    }
}
