//! Whose process is this? Decides which limits hold for it.
//!
//! 1. `node.conf` says off, or is missing: the limits in the user's environment, if there are any.
//! 2. The process is in a job's control group: that job's conf. Without a conf the process gets no GPU.
//! 3. The process is in no job, or its control group cannot be read: the smallest limits of its user's jobs on this
//!    node. In a user namespace, where the user is unknown: those of the jobs on its GPUs, which are known after
//!    `cuInit` ([`smallest_on`]). Without such jobs: the environment.
//!
//! The kernel names the control group; inside a job no variable and no file of the user's counts. Root outside a job,
//! or in a job without a conf, has no limits, and a damaged `node.conf` does not stop it.
//!
//! The hook, `softmig run` and `softmig smi` all ask here. They differ in how they read files: [`ProcessView`].

use core::num::NonZeroU32;

use crate::node::cgroup::{self, JobName};
use crate::node::env_limits::{self, Environment};
use crate::node::fixed_str::{Text, text};
use crate::node::job_conf::{JobConf, Uuid};
use crate::node::node_conf::{Identity, NodeConf, NodeMode};
use crate::node::paths::{NODE_CONF, RUN};
use crate::node::process_view::{OsError, ProcessView};

/// The rules for a process.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and no allocator to box it with"
)]
pub enum ProcessRules {
    /// Nothing: each call goes to the driver as it is.
    Passive,
    /// A job's limits.
    Job(JobConf),
    /// The limits of the jobs on the GPUs that it sees.
    Neighbours,
    /// The limits that the user set.
    Own(Environment),
    /// It gets no GPU.
    Denied(Reason),
}

/// Why a process gets no GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its job has no conf.
    NoConf,
    /// Its job's conf cannot be parsed.
    BadConf,
    /// A file cannot be read.
    Unreadable(OsError),
    /// `node.conf` cannot be parsed.
    BadNodeConf,
    /// A variable that should be a limit cannot be parsed.
    BadVariable,
}

/// A process's standing and what it follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The rules for the process.
    pub standing: ProcessRules,
    /// The job that it is about.
    pub job: Option<u32>,
    /// Whether the process is in that job itself. Else it is only limited as that job.
    pub in_job: bool,
    /// The node only watches: nothing is refused.
    pub observe: bool,
}

/// Finds out what holds for this process.
pub fn find(node: &impl ProcessView) -> Finding {
    let mut finding = Finding {
        standing: ProcessRules::Passive,
        job: None,
        in_job: false,
        observe: false,
    };
    let standing = match mode(node) {
        Ok(None) => Ok(own(node)),
        Ok(Some(conf)) => {
            finding.observe = conf.mode == NodeMode::Observe;
            by_job(node, conf.identity, &mut finding)
        }
        Err(reason) => Err(reason),
    };
    finding.standing = standing.unwrap_or_else(ProcessRules::Denied);
    finding
}

/// `None` where the node has no softmig, or softmig is switched off.
fn mode(node: &impl ProcessView) -> Result<Option<NodeConf>, Reason> {
    let conf = match read(node, &text(&[NODE_CONF.as_bytes()]), NodeConf::parse) {
        Ok(None) => return Ok(None),
        Ok(Some(Ok(conf))) => Ok(conf),
        Ok(Some(Err(_))) => Err(Reason::BadNodeConf),
        Err(error) => Err(Reason::Unreadable(error)),
    };
    match conf {
        Ok(conf) => Ok((conf.mode != NodeMode::Off).then_some(conf)),
        // Else Slurm's own daemons would find no GPUs, and the node be taken out of service.
        Err(_) if node.is_root() => Ok(None),
        Err(reason) => Err(reason),
    }
}

/// The second and the third step.
fn by_job(
    node: &impl ProcessView,
    identity: Identity,
    finding: &mut Finding,
) -> Result<ProcessRules, Reason> {
    let named = match identity {
        Identity::Cgroup => job_by_cgroup(node)?,
        Identity::Env => job_by_variable(node)?,
    };
    let Some(named) = named else {
        return outside(node, &mut finding.job);
    };
    finding.in_job = true;
    finding.job = named.id;
    match conf(node, &named.conf)? {
        Some(conf) => {
            // A SLUID names no folder.
            finding.job = named.id.or(conf.job.map(NonZeroU32::get));
            Ok(of_job(conf))
        }
        None if node.is_root() => Ok(ProcessRules::Passive),
        None => Err(Reason::NoConf),
    }
}

/// A job that something names.
struct Named {
    /// `None` where only its SLUID is known.
    id: Option<u32>,
    /// Where its conf is.
    conf: Text<64>,
}

impl Named {
    fn by_id(id: u32) -> Self {
        Self {
            id: Some(id),
            conf: conf_path(id),
        }
    }

    fn by(name: JobName<'_>) -> Self {
        match name {
            JobName::Id(id) => Self::by_id(id.get()),
            JobName::Sluid(sluid) => Self {
                id: None,
                conf: below_run(&[sluid.as_bytes(), b".conf"]),
            },
        }
    }
}

/// The number of the job that a process's list of control groups names, if it names one.
pub fn job_of(node: &impl ProcessView, cgroup: &[u8]) -> Option<u32> {
    let cgroup::Membership::Job(name) = cgroup::place(cgroup) else {
        return None;
    };
    let named = Named::by(name);
    // A job that is known by its SLUID has its number in its conf.
    named.id.or_else(|| {
        let conf = conf(node, &named.conf).ok()??;
        conf.job.map(NonZeroU32::get)
    })
}

fn of_job(conf: JobConf) -> ProcessRules {
    match conf.limits {
        Some(_) => ProcessRules::Job(conf),
        None => ProcessRules::Passive,
    }
}

/// The job that the kernel names; `None` for no job, and where it is unknown.
fn job_by_cgroup(node: &impl ProcessView) -> Result<Option<Named>, Reason> {
    // In another namespace the list shows less than the whole path, and the user chose what.
    if !node.is_in_first_cgroup_namespace() {
        return Ok(None);
    }
    let named = node.cgroup(None, |text| match cgroup::place(text) {
        cgroup::Membership::Job(name) => Some(Named::by(name)),
        cgroup::Membership::Outside | cgroup::Membership::Unclear => None,
    });
    match named {
        Ok(named) => Ok(named),
        // A root folder without /proc.
        Err(OsError::MISSING | OsError::TOO_LONG) => Ok(None),
        Err(error) => Err(Reason::Unreadable(error)),
    }
}

/// One of the user's jobs, which the user chooses. For nodes whose jobs have no control groups, where the administrator's
/// `node.conf` says so.
fn job_by_variable(node: &impl ProcessView) -> Result<Option<Named>, Reason> {
    let id = || {
        let text = core::str::from_utf8(node.variable(c"SLURM_JOB_ID")?).ok()?;
        text.parse::<NonZeroU32>().ok().map(NonZeroU32::get)
    };
    // In a user namespace a user can have any number, another's too.
    let may_say = !node.is_secure() && node.is_in_first_user_namespace();
    let Some(id) = id().filter(|_| may_say) else {
        return Ok(None);
    };
    let conf = conf(node, &conf_path(id))?;
    let is_anothers = conf.is_some_and(|conf| conf.uid != node.real_uid());
    Ok((!is_anothers).then(|| Named::by_id(id)))
}

/// The third step.
fn outside(node: &impl ProcessView, job: &mut Option<u32>) -> Result<ProcessRules, Reason> {
    if !node.is_in_first_user_namespace() {
        let mut is_shared = false;
        each_name(node, &below_run(&[b"gpu"]), |_| is_shared = true)?;
        return Ok(if is_shared {
            ProcessRules::Neighbours
        } else {
            own(node)
        });
    }
    if node.is_root() {
        return Ok(own(node));
    }
    let mut folder = below_run(&[b"uid/"]);
    folder.push_number(node.real_uid().into(), 1);
    let smallest = smallest_in(node, &folder)?;
    Ok(match smallest {
        Some((id, conf)) => {
            *job = Some(id);
            of_job(conf)
        }
        None => own(node),
    })
}

/// The smallest limits of the jobs on a GPU.
pub fn smallest_on(node: &impl ProcessView, gpu: &Uuid) -> Result<Option<(u32, JobConf)>, Reason> {
    smallest_in(node, &below_run(&[b"gpu/", gpu.as_str().as_bytes()]))
}

/// The smallest limits of the jobs that have a mark in a folder.
fn smallest_in(
    node: &impl ProcessView,
    folder: &Text<64>,
) -> Result<Option<(u32, JobConf)>, Reason> {
    let mut smallest: Option<(u32, JobConf)> = None;
    let mut trouble = None;
    each_name(node, folder, |name| {
        let id = core::str::from_utf8(name)
            .ok()
            .and_then(|name| name.parse().ok());
        let Some(id) = id else { return };
        match conf(node, &conf_path(id)) {
            Ok(Some(conf)) if smallest.is_none_or(|(_, other)| is_smaller(&conf, &other)) => {
                smallest = Some((id, conf));
            }
            // The job has just ended.
            Ok(_) => {}
            Err(reason) => trouble = Some(reason),
        }
    })?;
    match trouble {
        Some(reason) => Err(reason),
        None => Ok(smallest),
    }
}

/// Less memory, or as much of it and less time. A job without limits has no mark; were there one, it is the largest.
pub fn is_smaller(one: &JobConf, other: &JobConf) -> bool {
    let size = |conf: &JobConf| {
        let limits = conf.limits.as_ref();
        limits.map_or((u32::MAX, u32::MAX), |limits| {
            (limits.memory_mib(), limits.share().percent_tenths())
        })
    };
    size(one) < size(other)
}

fn each_name(
    node: &impl ProcessView,
    folder: &Text<64>,
    visit: impl FnMut(&[u8]),
) -> Result<(), Reason> {
    let folder = folder.as_path().ok_or(OsError::TOO_LONG);
    let visited = folder.and_then(|folder| node.each_name(folder, visit));
    visited.map_err(Reason::Unreadable)
}

fn read<T>(
    node: &impl ProcessView,
    path: &Text<64>,
    parse: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, OsError> {
    node.kept_by_root(path.as_path().ok_or(OsError::TOO_LONG)?, parse)
}

/// A path below the folder of the jobs that are here now.
fn below_run<const N: usize>(parts: &[&[u8]]) -> Text<N> {
    let mut path = text(&[RUN.as_bytes(), b"/"]);
    for part in parts {
        path.push(part);
    }
    path
}

/// The path of a job's conf.
pub fn conf_path(job: u32) -> Text<64> {
    let mut path = below_run(&[]);
    path.push_number(job.into(), 1);
    path.push(b".conf");
    path
}

/// The path of a file in a job's own folder.
pub fn job_file(job: u32, name: &[u8]) -> Text<256> {
    let mut path = below_run(&[b"jobs/"]);
    path.push_number(job.into(), 1);
    path.push(b"/");
    path.push(name);
    path
}

fn conf(node: &impl ProcessView, path: &Text<64>) -> Result<Option<JobConf>, Reason> {
    match read(node, path, JobConf::parse) {
        Ok(None) => Ok(None),
        Ok(Some(Ok(conf))) => Ok(Some(conf)),
        Ok(Some(Err(_))) | Err(OsError::TOO_LONG) => Err(Reason::BadConf),
        Err(error) => Err(Reason::Unreadable(error)),
    }
}

/// The limits in the user's environment; none in a set-uid program.
fn own(node: &impl ProcessView) -> ProcessRules {
    if node.is_secure() {
        return ProcessRules::Passive;
    }
    let read = Environment::read(|name, gpu| {
        let mut variable = text::<32>(&[name.as_bytes()]);
        if let Some(gpu) = gpu {
            variable.push(b"_");
            variable.push_number(gpu as u64, 1);
        }
        node.variable(variable.as_path()?)
    });
    match read {
        Ok(None) => ProcessRules::Passive,
        Ok(Some(limits)) => ProcessRules::Own(limits),
        Err(_) => ProcessRules::Denied(Reason::BadVariable),
    }
}

// The names of the variables must fit.
const _: () = assert!(env_limits::MEMORY.len() + 4 < 32 && env_limits::COMPUTE.len() + 4 < 32);

#[cfg(test)]
mod tests;
