//! The processes on the GPUs by one measurement, as plain values.

use std::time::{Duration, SystemTime};

/// A process, which no other can come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since the machine's start.
    pub began: u64,
}

/// The owner of processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A job, by its number.
    Job(u32),
    /// Those of a job whose number is not known, by its SLUID.
    Sluid(String),
    /// A user's, outside every job.
    User(u32),
}

/// The limits of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A slice.
    Slice {
        /// The memory on each GPU, in bytes.
        memory: u64,
        /// Less than all of a GPU's time, so that its processes have seats.
        has_seats: bool,
    },
    /// Whole GPUs.
    Whole,
    /// Nothing that is known: its conf is missing or cannot be read.
    NoConf,
    /// Nothing: it is in no job.
    OutsideJobs,
}

/// Why a process is never ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Its real user is root.
    Root,
    /// It is a system account's, outside every job.
    SystemAccount,
    /// It is an MPS server of the site's.
    Mps,
    /// It began before the node enforced limits.
    Older,
}

/// A process's seat at the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// The process has one.
    Given,
    /// It has none, and may have tried: it asked in vain of late, it is of a user who gets none, or it began before
    /// this arbiter.
    Excused,
    /// It has none, and root's library is in it, which asks for one once the process's context is made.
    Expected,
    /// It has none, and is an MPS server that its job has started: its clients work by it, and they have seats.
    OfClients,
    /// It has none, and did not ask.
    None,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process.
    pub id: ProcessId,
    /// Whether it computes there, and does not only draw.
    pub computes: bool,
    /// Its memory in bytes; `None` where the driver has no figure.
    pub memory: Option<u64>,
    /// The share of the GPU's time that it had since the last observation, in percent.
    pub busy: u32,
    /// Its seat.
    pub seat: Seat,
    /// Whether it cannot be held, and its job has had more than its share for long.
    pub is_excess: bool,
    /// Why it is not to be ended.
    pub exempt: Option<Exempt>,
}

/// A holder on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The owner of its processes.
    pub holder: Holder,
    /// When its conf was written: that of each run of a job is another. `None` without one.
    pub since: Option<SystemTime>,
    /// Its user, where that is known.
    pub uid: Option<u32>,
    /// The GPU's UUID.
    pub gpu: String,
    /// Its limit.
    pub claim: Claim,
    /// Whether the GPU is one of the job's; `None` where its conf does not say.
    pub is_assigned: Option<bool>,
    /// The memory of its processes together, in bytes; `None` where that was not measured.
    pub memory: Option<u64>,
    /// Its processes there.
    pub processes: Vec<Process>,
}

/// Memory of a GPU that is in no process's figure, and the processes that may hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unattributed {
    /// The GPU's UUID.
    pub gpu: String,
    /// The memory, in bytes.
    pub bytes: u64,
    /// Processes of jobs with slices that have the driver's devices open and no context.
    pub holders: Vec<(Holder, u32)>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// When, on a clock that never goes back.
    pub at: Duration,
    /// The processes on the GPUs.
    pub tenants: Vec<Tenant>,
    /// The memory that is in no process's figure.
    pub unattributed: Vec<Unattributed>,
}

impl Tenant {
    /// Those that cannot be held, of a job that has had more than its share for long.
    pub fn in_excess(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.is_excess)
    }

    /// Those that compute without a seat and without an excuse, where processes are to have one.
    pub fn unseated(&self) -> impl Iterator<Item = &Process> {
        let is_judged = matches!(
            self.claim,
            Claim::Slice {
                has_seats: true,
                ..
            }
        );
        let processes = self.processes.iter().filter(move |_| is_judged);
        processes.filter(|process| {
            process.computes && matches!(process.seat, Seat::Expected | Seat::None)
        })
    }
}
