//! Whose process is this? Decides which limits hold for it.
//!
//! 1. `node.conf` says off, or there is none: what the user's environment says, if anything.
//! 2. The process is in a job's control group: that job's conf. Without one it is as if there were no GPU.
//! 3. Nobody can tell, or it is in no job: the smallest limits of its user's jobs on this node. Where the user cannot
//!    be told either, those of the jobs on its GPUs, which are known after `cuInit` ([`smallest_on`]). None of them:
//!    the environment.
//!
//! The control group is the kernel's word; no variable and no file of the user's has a say inside a job. Root outside
//! a job, or in one without a conf, is nobody's job, and a damaged `node.conf` does not stop it.

use core::ffi::CStr;
use core::num::NonZeroU32;

use softmig_policy::node::cgroup::{self, JobName};
use softmig_policy::node::env_limits::{self, Environment};
use softmig_policy::node::job_conf::{JobConf, Uuid};
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};

use super::host::Node;
use crate::os::Error;
use crate::os::fixed_str::{Text, text};

/// What holds for a process.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and no allocator to box it with"
)]
pub(crate) enum Standing {
    /// Nothing: each call goes to the driver as it is.
    Passive,
    /// A job's limits.
    Job(JobConf),
    /// The limits of the jobs on the GPUs that it sees.
    Neighbours,
    /// What the user asked for himself.
    Own(Environment),
    /// It gets no GPU.
    Denied(Reason),
}

/// Why a process gets no GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its job has no conf.
    NoConf,
    /// Its job's conf is none.
    BadConf,
    /// A file cannot be read.
    Unreadable(Error),
    /// `node.conf` is none.
    BadNodeConf,
    /// A variable that should be a limit is none.
    BadVariable,
}

/// A process's standing and what it follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    /// What holds.
    pub(crate) standing: Standing,
    /// The job that it is about.
    pub(crate) job: Option<u32>,
    /// The node only watches: nothing is refused.
    pub(crate) observe: bool,
}

/// Finds out what holds for this process.
pub(crate) fn find(node: &impl Node) -> Finding {
    let mut job = None;
    let mut observe = false;
    let standing = match mode(node) {
        Ok(None) => own(node),
        Ok(Some(conf)) => {
            observe = conf.mode == NodeMode::Observe;
            by_job(node, conf.identity, &mut job).unwrap_or_else(Standing::Denied)
        }
        Err(reason) => Standing::Denied(reason),
    };
    Finding {
        standing,
        job,
        observe,
    }
}

/// `None` where this is no node of ours or is switched off.
fn mode(node: &impl Node) -> Result<Option<NodeConf>, Reason> {
    let conf = match node.kept_by_root(c"/etc/softmig/node.conf", NodeConf::parse) {
        Ok(None) => return Ok(None),
        Ok(Some(Ok(conf))) => Ok(conf),
        Ok(Some(Err(_))) => Err(Reason::BadNodeConf),
        Err(error) => Err(Reason::Unreadable(error)),
    };
    match conf {
        Ok(conf) => Ok((conf.mode != NodeMode::Off).then_some(conf)),
        // Else Slurm's own daemons would find no GPUs, and the node be taken out of service.
        Err(_) if is_root(node) => Ok(None),
        Err(reason) => Err(reason),
    }
}

/// The second and the third step.
fn by_job(node: &impl Node, identity: Identity, job: &mut Option<u32>) -> Result<Standing, Reason> {
    let named = match identity {
        Identity::Cgroup => job_by_cgroup(node)?,
        Identity::Env => job_by_variable(node)?,
    };
    let Some(named) = named else {
        return outside(node, job);
    };
    *job = named.id;
    match conf(node, &named.conf)? {
        Some(conf) => {
            // A SLUID names no folder.
            *job = named.id.or(conf.job.map(NonZeroU32::get));
            Ok(of_job(conf))
        }
        None if is_root(node) => Ok(Standing::Passive),
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
                conf: text(&[RUN, sluid.as_bytes(), b".conf"]),
            },
        }
    }
}

/// The number of the job that a process's list of control groups names, if it names one.
pub(crate) fn job_of(node: &impl Node, cgroup: &[u8]) -> Option<u32> {
    let cgroup::Place::Job(name) = cgroup::place(cgroup) else {
        return None;
    };
    let named = Named::by(name);
    // What is known by its SLUID has its number in its conf.
    named.id.or_else(|| {
        let conf = conf(node, &named.conf).ok()??;
        conf.job.map(NonZeroU32::get)
    })
}

fn of_job(conf: JobConf) -> Standing {
    match conf.limits {
        Some(_) => Standing::Job(conf),
        None => Standing::Passive,
    }
}

/// The job that the kernel names; `None` for none and where nobody can tell.
fn job_by_cgroup(node: &impl Node) -> Result<Option<Named>, Reason> {
    // In another namespace the list shows less than the whole path, and the user chose what.
    if !node.is_in_first_cgroup_namespace() {
        return Ok(None);
    }
    let named = node.cgroup(|text| match cgroup::place(text) {
        cgroup::Place::Job(name) => Some(Named::by(name)),
        cgroup::Place::Outside | cgroup::Place::Unclear => None,
    });
    match named {
        Ok(named) => Ok(named),
        // A root folder without /proc.
        Err(Error::MISSING | Error::TOO_LONG) => Ok(None),
        Err(error) => Err(Reason::Unreadable(error)),
    }
}

/// For nodes whose jobs have no control groups, by their administrator's word in `node.conf`: one of the user's jobs,
/// of his own choice.
fn job_by_variable(node: &impl Node) -> Result<Option<Named>, Reason> {
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
fn outside(node: &impl Node, job: &mut Option<u32>) -> Result<Standing, Reason> {
    if !node.is_in_first_user_namespace() {
        let mut is_shared = false;
        each_name(node, c"/var/run/softmig/gpu", |_| is_shared = true)?;
        return Ok(if is_shared {
            Standing::Neighbours
        } else {
            own(node)
        });
    }
    if is_root(node) {
        return Ok(own(node));
    }
    let mut folder = text::<64>(&[RUN, b"uid/"]);
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

fn is_root(node: &impl Node) -> bool {
    node.real_uid() == 0 && node.is_in_first_user_namespace()
}

/// The smallest limits of the jobs on a GPU.
pub(crate) fn smallest_on(node: &impl Node, gpu: &Uuid) -> Result<Option<(u32, JobConf)>, Reason> {
    smallest_in(node, &text(&[RUN, b"gpu/", gpu.as_str().as_bytes()]))
}

/// The smallest limits of the jobs that have a mark in a folder.
fn smallest_in(node: &impl Node, folder: &Text<64>) -> Result<Option<(u32, JobConf)>, Reason> {
    let folder = folder
        .as_path()
        .ok_or(Reason::Unreadable(Error::TOO_LONG))?;
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
pub(crate) fn is_smaller(one: &JobConf, other: &JobConf) -> bool {
    let size = |conf: &JobConf| {
        let limits = conf.limits.as_ref();
        limits.map_or((u32::MAX, u32::MAX), |limits| {
            (limits.memory_mib(), limits.share().percent_tenths())
        })
    };
    size(one) < size(other)
}

fn each_name(node: &impl Node, folder: &CStr, visit: impl FnMut(&[u8])) -> Result<(), Reason> {
    node.each_name(folder, visit).map_err(Reason::Unreadable)
}

const RUN: &[u8] = b"/var/run/softmig/";

fn conf_path(job: u32) -> Text<64> {
    let mut path = text(&[RUN]);
    path.push_number(job.into(), 1);
    path.push(b".conf");
    path
}

fn conf(node: &impl Node, path: &Text<64>) -> Result<Option<JobConf>, Reason> {
    let path = path.as_path().ok_or(Reason::Unreadable(Error::TOO_LONG))?;
    match node.kept_by_root(path, JobConf::parse) {
        Ok(None) => Ok(None),
        Ok(Some(Ok(conf))) => Ok(Some(conf)),
        Ok(Some(Err(_))) | Err(Error::TOO_LONG) => Err(Reason::BadConf),
        Err(error) => Err(Reason::Unreadable(error)),
    }
}

/// What the user's environment says; nothing in a set-uid program.
fn own(node: &impl Node) -> Standing {
    if node.is_secure() {
        return Standing::Passive;
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
        Ok(None) => Standing::Passive,
        Ok(Some(limits)) => Standing::Own(limits),
        Err(_) => Standing::Denied(Reason::BadVariable),
    }
}

// The names of the variables must fit.
const _: () = assert!(env_limits::MEMORY.len() + 4 < 32 && env_limits::COMPUTE.len() + 4 < 32);

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
