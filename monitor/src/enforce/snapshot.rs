//! Makes an observation of a measurement: adds the processes that have seats, and those that are never ended.

use crate::arbiter::{Seats, Unseated, uuid};
use crate::enforce::observation::{
    Claim, Exempt, Holder, Observation, Process, ProcessId, Seat, Tenant, Unattributed,
};
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Owner, status_line, user_and_place};
use crate::jobs::patience::within_a_moment;
use crate::jobs::pidfd::state_and_beginning;
use crate::measure::Sample;
use crate::measure::reading::Kind;
use crate::measure::report::{Conf, Job, JobGpu, User};
use crate::packs::PackId;
use crate::schedule;
use softmig_gate::Library;
use softmig_policy::node::job_conf::JobConf;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Users below this are accounts of the system's.
const FIRST_USER: u32 = 1000;

/// The control daemon's path in NVIDIA's package. The daemon starts MPS servers, each as the user whom it serves.
const MPS_CONTROL: &str = "/usr/bin/nvidia-cuda-mps-control";
/// The server's own.
const MPS_SERVER: &str = "/usr/bin/nvidia-cuda-mps-server";
/// The beginning of a server's name, as the kernel cuts it.
const MPS_NAME: &str = "nvidia-cuda-mps";

/// The settings of the node. Times are clock ticks since the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Processes that began later have the library and are held to limits; `None` where the node does not enforce.
    pub enforced_since: Option<u64>,
    /// Processes that began later can have asked the arbiter that is here now.
    pub arbiter_since: u64,
    /// Whether every process that asks the arbiter gets an answer.
    pub arbiter_answers: bool,
}

/// All that an observation is made of.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The measurement.
    pub sample: &'a Sample,
    /// The processes that had a seat after NVML was asked, and before it was seen which processes are alive.
    pub seats: &'a Seats,
    /// The settings.
    pub evidence: &'a Evidence,
    /// Where processes are told.
    pub proc: &'a Path,
    /// Root's library.
    pub library: &'a Arc<Library>,
    /// Until when it is looked for in processes.
    pub until: Instant,
}

impl Snapshot<'_> {
    /// The observation at this time.
    pub fn observe(&self, at: Duration, unattributed: Vec<Unattributed>) -> Observation {
        let report = &self.sample.report;
        let given = self.seats.given.iter();
        let given: BTreeSet<(String, u32)> = given.map(|&(id, pid)| (uuid(id), pid)).collect();
        let excess = self.seats.excess.iter();
        let excess = excess.map(|&(id, job, pid)| (uuid(id), job, pid)).collect();
        let steered = self.seats.steered.iter().map(|&id| uuid(id)).collect();
        let known = Known {
            given,
            steered,
            excess,
        };
        let jobs = report.jobs.iter().flat_map(|job| {
            let gpus = job.gpus.iter();
            let known = &known;
            gpus.filter_map(move |gpu| self.of_job(job, gpu, known))
        });
        let users = report.users.iter().flat_map(|user| self.of_user(user));
        Observation {
            at,
            tenants: jobs.chain(users).collect(),
            unattributed,
        }
    }

    fn of_job(&self, job: &Job, gpu: &JobGpu, known: &Known) -> Option<Tenant> {
        let holder = match (job.job, &job.sluid) {
            (Some(id), _) => Holder::Job(id),
            (None, Some(sluid)) => Holder::Sluid(sluid.clone()),
            (None, None) => return None,
        };
        let conf = job
            .job
            .and_then(|id| self.sample.confs.jobs.get(&id))
            .and_then(|conf| conf.as_ref().ok());
        let uuid = gpu.holding.uuid.clone()?;
        let (index, is_mig) = self.gpu(&uuid)?;
        // softmig has no limits on it.
        if is_mig {
            return None;
        }
        let claim = claim(job.conf, conf);
        // Its clients are where the time is counted and held.
        let has_seat = |pid: &u32| known.given.contains(&(uuid.clone(), *pid));
        let may_have_server =
            known.steered.contains(&uuid) && gpu.holding.pids.iter().any(has_seat);
        // Also those that have another user than the job, as in containers: the kernel says whose job they are.
        let mut processes = self.processes(index, &gpu.holding.pids, |pid, uid, began| {
            let is_judged = matches!(
                claim,
                Claim::Slice {
                    has_seats: true,
                    ..
                }
            );
            let is_late = began > self.evidence.arbiter_since && self.evidence.arbiter_answers;
            if known.given.contains(&(uuid.clone(), pid)) {
                Seat::Given
            } else if !is_judged || !is_late {
                Seat::Excused
            } else if may_have_server && self.is_mps_server(uid, pid) {
                Seat::OfClients
            } else if !self.has_library(uid, pid) {
                Seat::None
            } else if self.seats.refused.contains(&pid) {
                Seat::Excused
            } else {
                Seat::Expected
            }
        });
        for process in &mut processes {
            // A process from before this arbiter may have an older library. One with an excuse has no seat through no fault of its own.
            let may_be_judged =
                process.id.began > self.evidence.arbiter_since && process.seat != Seat::Excused;
            let is_in_excess =
                |job| (known.excess).contains(&(uuid.clone(), schedule::Job(job), process.id.pid));
            process.is_excess = may_be_judged && job.job.is_some_and(is_in_excess);
        }
        let about = job.job.and_then(|id| self.sample.confs.about.get(&id));
        Some(Tenant {
            holder,
            since: about.map(|about| about.since),
            uid: job.uid,
            is_assigned: gpu.assigned,
            memory: gpu.holding.memory_bytes,
            claim,
            processes,
            gpu: uuid,
        })
    }

    fn of_user(&self, user: &User) -> Vec<Tenant> {
        // The owner of a process that is gone is not known.
        let Some(uid) = user.uid else {
            return Vec::new();
        };
        let tenants = user.gpus.iter().filter_map(|holding| {
            let gpu = holding.uuid.clone()?;
            let (index, _) = self.gpu(&gpu)?;
            let mut processes = self.processes(index, &holding.pids, |_, _, _| Seat::Excused);
            for process in &mut processes {
                let is_systems = uid < FIRST_USER && process.exempt.is_none();
                process.exempt = is_systems
                    .then_some(Exempt::SystemAccount)
                    .or(process.exempt);
            }
            Some(Tenant {
                holder: Holder::User(uid),
                since: None,
                uid: Some(uid),
                gpu,
                claim: Claim::OutsideJobs,
                is_assigned: None,
                memory: holding.memory_bytes,
                processes,
            })
        });
        tenants.collect()
    }

    /// NVML's index of a GPU, and whether it is divided.
    fn gpu(&self, uuid: &str) -> Option<(u32, bool)> {
        let mut gpus = self.sample.report.gpus.iter();
        let gpu = gpus.find(|gpu| gpu.uuid.as_deref() == Some(uuid))?;
        Some((gpu.index, gpu.mig))
    }

    /// A process whose mappings cannot be read, or for which there was no time, counts as one that has it.
    fn has_library(&self, uid: u32, pid: u32) -> bool {
        if Instant::now() >= self.until {
            return true;
        }
        let library = Arc::clone(self.library);
        let is_in = within_a_moment(uid, pid, move || library.is_in(pid));
        is_in.and_then(Result::ok).unwrap_or(true)
    }

    /// Whether a process runs NVIDIA's server. What else a user may have put into it is left to the rules of time and memory.
    fn is_mps_server(&self, uid: u32, pid: u32) -> bool {
        let is_named = |name: &str| name.starts_with(MPS_NAME);
        let owner = self.sample.owners.get(&pid);
        let has_name = matches!(owner, Some(Owner::Process { name, .. }) if is_named(name));
        let own = self.proc.join(pid.to_string()).join("exe");
        has_name && Instant::now() < self.until && {
            // The file may be of a user's own file system.
            let is_one = within_a_moment(uid, pid, move || {
                let own = program(&own);
                own.is_some() && own == program(Path::new(MPS_SERVER))
            });
            is_one.unwrap_or(false)
        }
    }

    fn processes(
        &self,
        index: u32,
        pids: &[u32],
        seat: impl Fn(u32, u32, u64) -> Seat,
    ) -> Vec<Process> {
        let mut gpus = self.sample.report.gpus.iter();
        let shown = gpus.find(|gpu| gpu.index == index);
        let shown = shown.map_or(&[][..], |gpu| &gpu.processes);
        let processes = pids.iter().filter_map(|&pid| {
            let Some(Owner::Process {
                uid, name, began, ..
            }) = self.sample.owners.get(&pid)
            else {
                return None;
            };
            let process = shown.iter().find(|process| process.pid == pid)?;
            let busy = self.sample.busy.get(&index).and_then(|busy| busy.get(&pid));
            let is_older = self
                .evidence
                .enforced_since
                .is_some_and(|since| *began <= since);
            let is_mps = || name.starts_with(MPS_NAME) && is_sites_mps_server(self.proc, pid);
            // A set-uid program is a user's: each user can start one.
            let exempt = if *uid == 0 {
                Some(Exempt::Root)
            } else if is_older {
                Some(Exempt::Older)
            } else {
                is_mps().then_some(Exempt::Mps)
            };
            Some(Process {
                id: ProcessId { pid, began: *began },
                computes: process.kinds.iter().any(|&kind| kind != Kind::Graphics),
                memory: process.memory_bytes,
                busy: busy.copied().unwrap_or(0),
                seat: seat(pid, *uid, *began),
                is_excess: false,
                exempt,
            })
        });
        processes.collect()
    }
}

/// The arbiter's knowledge, by the GPU's UUID.
struct Known {
    given: BTreeSet<(String, u32)>,
    steered: BTreeSet<String>,
    excess: BTreeSet<(String, schedule::Job, u32)>,
}

fn claim(kind: Conf, conf: Option<&JobConf>) -> Claim {
    let limits = conf.and_then(|conf| conf.limits);
    match (kind, limits) {
        (Conf::Slice, Some(limits)) => Claim::Slice {
            memory: u64::from(limits.memory_mib()) << 20,
            // One that has all of a GPU's time is never delayed, and asks for nothing.
            has_seats: limits.share().shards() < limits.share().per_gpu(),
        },
        (Conf::Slice | Conf::Whole, _) => Claim::Whole,
        (Conf::Missing | Conf::Unreadable, _) => Claim::NoConf,
    }
}

/// The processes of slices that compute without a seat, with their jobs, by the GPU's UUID: their jobs are to pay for them.
pub fn unseated(
    observation: &Observation,
    confs: &Confs,
) -> BTreeMap<String, BTreeMap<u32, Unseated>> {
    let mut all: BTreeMap<String, BTreeMap<u32, Unseated>> = BTreeMap::new();
    for tenant in &observation.tenants {
        let Holder::Job(id) = tenant.holder else {
            continue;
        };
        let conf = confs.jobs.get(&id).and_then(|conf| conf.as_ref().ok());
        let Some(limits) = conf.and_then(|conf| conf.limits) else {
            continue;
        };
        let of = Unseated {
            job: schedule::Job(id),
            share: limits.share(),
            mode: limits.mode(),
            pack: conf.and_then(PackId::of),
        };
        let processes = tenant.processes.iter();
        let without = processes.filter(|it| it.computes && it.seat != Seat::Given);
        let pids = without.map(|process| (process.id.pid, of));
        all.entry(tenant.gpu.clone()).or_default().extend(pids);
    }
    all
}

/// Whether a process is an MPS server that the site's control daemon started: its parent is root's, and runs NVIDIA's program. A
/// process's own name and program prove nothing, and a file of a user's own file system would not be waited for.
pub fn is_sites_mps_server(proc: &Path, pid: u32) -> bool {
    let parent = || {
        let status = std::fs::read(proc.join(pid.to_string()).join("status")).ok()?;
        status_line(&status, "PPid:")?.parse::<u32>().ok()
    };
    let is_roots = |pid: u32| matches!(user_and_place(proc, pid), Ok((0, _)));
    let Some(parent) = parent().filter(|&parent| is_roots(parent)) else {
        return false;
    };
    let runs = program(&proc.join(parent.to_string()).join("exe"));
    runs.is_some() && runs == program(Path::new(MPS_CONTROL))
}

/// The file that is behind a path.
fn program(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// When a process began, in clock ticks since the machine's start.
pub fn beginning(proc: &Path, pid: u32) -> Option<u64> {
    let stat = std::fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
    Some(state_and_beginning(&stat)?.1)
}
