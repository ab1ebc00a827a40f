//! Puts together what NVML says of processes, what the kernel says of whose they are, and what their jobs may have.
//! No file is read here and no GPU is asked.

use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, Owner};
use crate::measure::reading::{self, Reading};
use crate::measure::report::{
    Conf, Finding, GpuReport, Holding, Job, JobGpu, Process, Report, State, User, VERSION,
};
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::limits::Limits;
use softmig_policy::node::size::MIB;
use std::collections::BTreeMap;

/// The holder of something on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Job(u32),
    Sluid(String),
    User(u32),
    Unknown,
}

/// Every holder's memory on every GPU, by the GPU's place in the reading.
type Holdings = BTreeMap<Holder, BTreeMap<usize, Holding>>;

/// Makes the report, but for its time.
pub fn rows(reading: &Reading, owners: &BTreeMap<u32, Owner>, confs: &Confs) -> Report {
    let mut holdings = Holdings::new();
    let mut uids = BTreeMap::new();
    let mut gpus = Vec::new();
    for (at, gpu) in reading.gpus.iter().enumerate() {
        let mut processes = Vec::new();
        for user in gpu.users.iter().flatten() {
            let owner = owners.get(&user.pid).unwrap_or(&Owner::Gone);
            let holder = holder(owner, confs);
            let process = process(user, owner, &holder);
            if let Some(uid) = process.uid {
                uids.entry(holder.clone()).or_insert(uid);
            }
            let of_holder = holdings.entry(holder).or_default();
            let holding = of_holder.entry(at).or_insert_with(|| empty(gpu));
            add(holding, user);
            processes.push(process);
        }
        gpus.push(shown(gpu, processes));
    }
    for &id in confs.jobs.keys() {
        holdings.entry(Holder::Job(id)).or_default();
    }
    let mut report = Report {
        version: VERSION,
        driver: reading.driver.clone(),
        gpus,
        ..Report::default()
    };
    for (holder, held) in holdings {
        let uid = uids.get(&holder).copied();
        match holder {
            Holder::Job(id) => report.jobs.push(job(reading, id, uid, confs, held)),
            Holder::Sluid(sluid) => report.jobs.push(job_without_number(sluid, uid, held)),
            Holder::User(uid) => report.users.push(user(Some(uid), held)),
            Holder::Unknown => report.users.push(user(None, held)),
        }
    }
    report
}

fn holder(owner: &Owner, confs: &Confs) -> Holder {
    let Owner::Process { uid, place, .. } = owner else {
        return Holder::Unknown;
    };
    match place {
        Membership::Job(id) => Holder::Job(*id),
        Membership::Sluid(sluid) => match confs.sluids.get(sluid) {
            Some(&id) => Holder::Job(id),
            None => Holder::Sluid(sluid.clone()),
        },
        Membership::Outside => Holder::User(*uid),
    }
}

fn process(user: &reading::User, owner: &Owner, holder: &Holder) -> Process {
    let (state, uid, name) = match owner {
        Owner::Process { uid, name, .. } => (State::Known, Some(*uid), Some(name.clone())),
        Owner::Gone => (State::Gone, None, None),
        Owner::Unknown(_) => (State::Unknown, None, None),
    };
    let (job, sluid) = match holder {
        Holder::Job(id) => (Some(*id), None),
        Holder::Sluid(sluid) => (None, Some(sluid.clone())),
        Holder::User(_) | Holder::Unknown => (None, None),
    };
    Process {
        pid: user.pid,
        kinds: user.kinds.clone(),
        memory_bytes: user.memory,
        gpu_instance: user.instance,
        state,
        uid,
        name,
        job,
        sluid,
    }
}

/// Nothing on this GPU, as far as it was measured.
fn empty(gpu: &reading::GpuReading) -> Holding {
    Holding {
        index: Some(gpu.index),
        uuid: gpu.uuid.clone(),
        memory_bytes: gpu.users.is_some().then_some(0),
        ..Holding::default()
    }
}

fn add(holding: &mut Holding, user: &reading::User) {
    let known = user.memory.unwrap_or(0);
    holding.memory_bytes = Some(holding.memory_bytes.unwrap_or(0).saturating_add(known));
    holding.unmeasured += usize::from(user.memory.is_none());
    // A process in two parts of a MIG GPU is still one process.
    if !holding.pids.contains(&user.pid) {
        holding.pids.push(user.pid);
    }
}

fn shown(gpu: &reading::GpuReading, processes: Vec<Process>) -> GpuReport {
    let listed = || {
        let known = gpu.users.as_ref()?.iter().map(|user| user.memory);
        // If one of them is unknown, the rest is not known either.
        known.sum::<Option<u64>>()
    };
    let memory = gpu.memory;
    let unlisted = |used: u64| Some(used.saturating_sub(listed()?));
    GpuReport {
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        mig: gpu.mig,
        setting: gpu.setting.map(|setting| setting.to_string()),
        total_bytes: memory.map(|memory| memory.total),
        reserved_bytes: memory.map(|memory| memory.reserved),
        used_bytes: memory.map(|memory| memory.used),
        free_bytes: memory.map(|memory| memory.free),
        unlisted_bytes: memory.and_then(|memory| unlisted(memory.used)),
        error: gpu.error.clone(),
        processes,
    }
}

fn job(
    reading: &Reading,
    id: u32,
    uid: Option<u32>,
    confs: &Confs,
    mut held: BTreeMap<usize, Holding>,
) -> Job {
    let conf = confs.jobs.get(&id);
    let known = conf.and_then(|conf| conf.as_ref().ok());
    let mut elsewhere = Vec::new();
    for uuid in known.iter().flat_map(|conf| conf.gpus.iter()) {
        let of = |gpu: &reading::GpuReading| gpu.uuid.as_deref() == Some(uuid.as_str());
        match reading.gpus.iter().position(of) {
            Some(at) => {
                held.entry(at).or_insert_with(|| empty(&reading.gpus[at]));
            }
            // NVML does not show it, or nothing at all.
            None => elsewhere.push(Holding {
                uuid: Some(uuid.as_str().to_owned()),
                ..Holding::default()
            }),
        }
    }
    let judged = |(at, holding): (Option<usize>, Holding)| {
        let mig = at.is_some_and(|at| reading.gpus[at].mig);
        measured(holding, conf, mig)
    };
    let shown = held.into_iter().map(|(at, holding)| (Some(at), holding));
    let not_shown = elsewhere.into_iter().map(|holding| (None, holding));
    Job {
        job: Some(id),
        sluid: None,
        uid: known.map(|conf| conf.uid).or(uid),
        conf: match conf {
            None => Conf::Missing,
            Some(Err(_)) => Conf::Unreadable,
            Some(Ok(conf)) if conf.limits.is_some() => Conf::Slice,
            Some(Ok(_)) => Conf::Whole,
        },
        conf_error: conf.and_then(|conf| conf.as_ref().err().cloned()),
        slice: known.and_then(|conf| conf.limits.as_ref()).map(Into::into),
        gpus: shown.chain(not_shown).map(judged).collect(),
    }
}

/// A job whose SLUID is not in any conf.
fn job_without_number(sluid: String, uid: Option<u32>, held: BTreeMap<usize, Holding>) -> Job {
    Job {
        job: None,
        sluid: Some(sluid),
        uid,
        conf: Conf::Missing,
        conf_error: None,
        slice: None,
        gpus: held
            .into_values()
            .map(|holding| measured(holding, None, false))
            .collect(),
    }
}

/// Compares what a job has on a GPU with what it may have there.
fn measured(holding: Holding, conf: Option<&Result<JobConf, String>>, mig: bool) -> JobGpu {
    let Some(Ok(conf)) = conf else {
        let finding = (!holding.pids.is_empty()).then_some(Finding::NoConf);
        return JobGpu {
            holding,
            assigned: None,
            limit_bytes: None,
            excess_bytes: None,
            finding,
        };
    };
    let assigned = assigned(conf, holding.uuid.as_deref());
    let strange = assigned == Some(false);
    // A limit is for each of the job's own GPUs, and not for others. softmig does not limit what MIG divides.
    let limit_bytes = match conf.limits {
        Some(_) if mig => None,
        Some(_) if strange => Some(0),
        Some(limits) => Some(bytes(&limits)),
        None => None,
    };
    let excess = |has: u64| Some(has.saturating_sub(limit_bytes?));
    let excess_bytes = holding.memory_bytes.and_then(excess);
    let finding = match excess_bytes {
        _ if strange && !holding.pids.is_empty() => Some(Finding::NotItsGpu),
        Some(1..) => Some(Finding::OverLimit),
        _ => None,
    };
    JobGpu {
        holding,
        assigned,
        limit_bytes,
        excess_bytes,
        finding,
    }
}

/// Whether the conf names this GPU. One that names a part of a MIG GPU does not say which GPU that is.
fn assigned(conf: &JobConf, uuid: Option<&str>) -> Option<bool> {
    let mut named = conf.gpus.iter().map(|uuid| uuid.as_str()).peekable();
    named.peek()?;
    let uuid = uuid?;
    let mut whole = true;
    for name in named {
        if name == uuid {
            return Some(true);
        }
        whole &= !name.starts_with("MIG-");
    }
    whole.then_some(false)
}

fn bytes(limits: &Limits) -> u64 {
    u64::from(limits.memory_mib()) * MIB
}

fn user(uid: Option<u32>, held: BTreeMap<usize, Holding>) -> User {
    User {
        uid,
        gpus: held.into_values().collect(),
    }
}
