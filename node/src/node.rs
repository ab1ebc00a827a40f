//! Where a node keeps what belongs to its jobs.
//!
//! `/var/run/softmig` is a file system of its own, root's and 0755.
//!
//! | path below `/var/run/softmig` | owner, mode | what |
//! |---|---|---|
//! | `JOBID.conf` | root 0644 | a job's limits; its last name of all that the prolog makes, so what has it is complete |
//! | `.JOBID.conf.new` | root 0644 | the same before it is complete |
//! | `SLUID.conf` | | a second name (hard link) of a `JOBID.conf` |
//! | `jobs/JOBID/` | root 0755 | for jobs with limits: a small tmpfs, which this job alone can fill |
//! | `jobs/JOBID/ledger` | the job's user, 0600 | what the job's processes hold of each GPU's memory; zeros at first |
//! | `jobs/JOBID/log` | the job's user, root's group, 0620 | the log of hook and monitor |
//! | `uid/UID/JOBID`, `gpu/UUID/JOBID` | root 0644, empty | which limited jobs a user, a GPU has here |
//! | `.lock` | root 0600 | held while files of a job are made or removed; no user can open it, so none can hold it |

use crate::dir::{Dir, Result};
use crate::job::{Job, JobId, Sluid};
use crate::lock::lock;
use crate::run_folder;
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::node_conf::{NodeConf, NodeMode};
use softmig_policy::node::paths::{ARBITER, LIB, LOG, LONGEST_CONF, NODE_CONF, RUN};
use softmig_policy::{NodePolicy, Policy, PolicyError};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Lets nothing of the caller's file mode mask take away what the modes in this crate give.
pub fn set_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
}

/// The node's paths.
///
/// They are fixed: root's programs take no path from a variable or an argument. Tests have a node in a folder of
/// their own.
#[derive(Clone, Debug)]
pub struct Node {
    /// The folder of the jobs that are here now.
    pub run: PathBuf,
    /// The logs of those that were.
    pub log: PathBuf,
    /// The folder that is kept when the node starts anew.
    pub lib: PathBuf,
    /// The driver's list of GPUs.
    pub gpus: PathBuf,
    /// The policy.
    pub policy: PathBuf,
    /// The node's settings: whether it enforces.
    pub conf: PathBuf,
    /// The device gate's files.
    pub gate: PathBuf,
    /// The owner of all these files.
    pub owner: u32,
    /// Whether the run folder and each job's folder are to be file systems of their own.
    pub mounts: bool,
}

impl Node {
    /// This machine.
    pub fn this_machine() -> Self {
        Self {
            run: RUN.into(),
            log: LOG.into(),
            lib: LIB.into(),
            gpus: "/proc/driver/nvidia/gpus".into(),
            policy: Policy::PATH.into(),
            conf: NODE_CONF.into(),
            gate: softmig_gate::FOLDER.into(),
            owner: 0,
            mounts: true,
        }
    }

    /// A node of `owner`'s, for tests: all its paths are in `folder`.
    pub fn in_folder(folder: &Path, owner: u32) -> Self {
        Self {
            run: folder.join("run"),
            log: folder.join("log"),
            lib: folder.join("lib"),
            gpus: folder.join("gpus"),
            policy: folder.join("policy.toml"),
            conf: folder.join("node.conf"),
            gate: folder.join("gate"),
            owner,
            mounts: false,
        }
    }

    /// The monitor's socket, where processes ask for their seats.
    pub fn arbiter_socket(&self) -> PathBuf {
        self.run.join(ARBITER)
    }

    /// The part of the policy that a node needs, or why it cannot be read.
    pub fn policy(&self) -> std::result::Result<NodePolicy, String> {
        self.read_policy(NodePolicy::parse)
    }

    /// All of the policy, the rules about users included, or why it cannot be read.
    pub fn whole_policy(&self) -> std::result::Result<Policy, String> {
        self.read_policy(Policy::parse_for_client)
    }

    fn read_policy<T>(
        &self,
        parse: impl Fn(&str) -> std::result::Result<T, PolicyError>,
    ) -> std::result::Result<T, String> {
        let text = std::fs::read_to_string(&self.policy).map_err(|error| error.to_string());
        let read = text.and_then(|text| parse(&text).map_err(|error| error.to_string()));
        read.map_err(|error| format!("{}: {error}", self.policy.display()))
    }

    /// Whether the library refuses anything here: also if node.conf cannot be read, as the library does, but not
    /// without one.
    pub fn enforces(&self) -> bool {
        match std::fs::read(&self.conf) {
            Ok(text) => NodeConf::parse(&text).map_or(true, |conf| conf.mode == NodeMode::Enforce),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }

    /// The run folder if there is one.
    pub fn open(&self) -> Result<Option<Run>> {
        let dir = Dir::open(&self.run, self.owner)?;
        Ok(dir.map(|dir| Run::lock(dir, self.mounts)))
    }

    /// The run folder, made when missing: `/run` is empty after each boot.
    pub fn make(&self) -> Result<Run> {
        let dir = if self.mounts {
            run_folder::make(&self.run, self.owner)?
        } else {
            Dir::make(&self.run, self.owner)?
        };
        Ok(Run::lock(dir, self.mounts))
    }
}

/// The run folder, open and locked for one job's files.
#[derive(Debug)]
pub struct Run {
    /// The folder.
    pub dir: Dir,
    /// Whether each job's folder is to be a file system of its own.
    pub mounts: bool,
    /// The lock, which is released when this is closed or the process dies. `None` if it could not be locked.
    _lock: Option<File>,
}

impl Run {
    /// Jobs come and go at the same time. The lock keeps their steps apart, but no limits depend on it: each
    /// job has its own names, so without it the worst is a mount or an empty folder that is made twice.
    fn lock(dir: Dir, mounts: bool) -> Self {
        let lock = lock(&dir, ".lock");
        Self {
            dir,
            mounts,
            _lock: lock,
        }
    }

    /// The text of a job's conf; `None` if it does not exist.
    pub fn conf_text(&self, id: JobId) -> Result<Option<Vec<u8>>> {
        self.dir.read(&conf_name(id), LONGEST_CONF)
    }

    /// A job's conf; `None` also if it cannot be read.
    pub fn conf(&self, id: JobId) -> Option<JobConf> {
        let text = self.conf_text(id).ok().flatten();
        text.and_then(|text| JobConf::parse(&text).ok())
    }

    /// Whether the conf here was written for this very run of the job, so that its processes may be running:
    /// Slurm can call the prolog twice. The conf's other lines may differ, such as the UUIDs that the driver knows.
    ///
    /// Before 23.02 nothing tells a run from one of an older job with the same number, so there it is not.
    pub fn is_of_this_run(&self, job: &Job) -> bool {
        self.conf(job.id)
            .is_some_and(|conf| is_of_this_run(&conf, job))
    }

    /// Whether `job` is an earlier run of the job whose conf is here, so that nothing here is its own.
    ///
    /// Slurm restarts a job under its old number. If it gave up on a node whose epilog is still to come, that epilog
    /// may meet the files of the next run. From 23.02 on both scripts are told when their run began, which tells the
    /// runs apart. Before that there is only the number of restarts, and the epilog of a run that was requeued already
    /// gets the next run's number: it tells an epilog apart only from the run after the next. (Slurm itself keeps a
    /// requeued job off its nodes until their epilogs are done and the old credential has expired.)
    ///
    /// Both come from the job's credential. When slurmd was restarted and has lost that, the epilog is taken for the
    /// latest run's: the other way round, files would stay behind after every restart of slurmd, while a late epilog
    /// without a credential needs both accidents at once, and then leaves the job without GPU, not without limits. A
    /// conf that cannot be read, or is another user's, does not count as a later run of this job.
    pub fn is_of_later_run(&self, job: &Job) -> bool {
        self.conf(job.id).is_some_and(|conf| {
            let earlier = match (job.start, conf.start) {
                (Some(ended), Some(here)) => ended < here,
                _ => job.run.is_some_and(|run| run < conf.run),
            };
            conf.uid == job.uid && earlier
        })
    }
}

/// Whether a conf is of this very run of the job.
pub(crate) fn is_of_this_run(conf: &JobConf, job: &Job) -> bool {
    let started = job.start.is_some() && job.start == conf.start;
    started && conf.uid == job.uid && conf.run == job.run.unwrap_or(0)
}

/// The name of a job's conf.
pub fn conf_name(id: JobId) -> String {
    format!("{id}.conf")
}

/// Its name while it is written. It has the job's number, so that the next prolog or epilog of this job can remove it.
pub fn new_conf_name(id: JobId) -> String {
    format!(".{id}.conf.new")
}

/// The conf's second name.
pub fn alias_name(sluid: &Sluid) -> String {
    format!("{sluid}.conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_this_machine_are_those_of_the_design() {
        let node = Node::this_machine();
        assert_eq!(node.run, Path::new("/var/run/softmig"));
        assert_eq!(node.log, Path::new("/var/log/softmig"));
        assert_eq!(node.policy, Path::new("/etc/softmig/policy.toml"));
        assert_eq!(node.owner, 0);
    }

    #[test]
    fn one_job_at_a_time_and_a_stopped_one_holds_none_up_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
        assert!(node.open().unwrap().is_none());
        let first = node.make().unwrap();
        let start = std::time::Instant::now();
        let _second = node.make().unwrap();
        assert!(start.elapsed() >= crate::lock::PATIENCE);
        drop(first);
    }
}
