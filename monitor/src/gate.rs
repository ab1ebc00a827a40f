//! The device gate: set up where policy.toml and node.conf ask for it, taken away where they do not; and its processes.
//!
//! The gate itself is in the kernel ([`softmig_gate`]) and goes on without the monitor. Only admissions need it.

#![forbid(unsafe_code)]

use rustix::io::Errno;
use softmig_gate::{Gate, Library, NotAdmitted, Refusal, Settings};
use softmig_node::node::Node;
use softmig_policy::node::node_conf::{Identity, NodeConf, NodeMode};
use softmig_policy::node::paths::NODE_CONF;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

use crate::jobs::confs::Confs;
use crate::jobs::log;
use crate::jobs::owner::{Membership, user_and_place};

/// Where the loader finds which libraries go into every process.
pub const PRELOAD: &str = "/etc/ld.so.preload";
/// The library's name.
const LIBRARY: &str = "libsoftmig.so";

/// How often it is looked whether the gate is wanted, and what was refused.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// How long nothing more is said of a job, and nothing tried that failed.
const SILENCE: Duration = Duration::from_secs(60);

/// The gate of a node, if it has one. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: Node,
    node_conf: PathBuf,
    preload: PathBuf,
    settings: Settings,
    library: Library,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    gate: Option<Arc<Gate>>,
    /// The last trouble, so that it is said once.
    trouble: Option<String>,
    /// When a gate that could not be set up is tried again.
    again: Option<Instant>,
    /// When each job was last spoken of.
    told: BTreeMap<u32, Instant>,
}

impl Keeper {
    /// That of this node, with no gate yet.
    pub fn new(node: Node) -> Self {
        let settings = Settings::of_node(&node.gate);
        Self::with(node, NODE_CONF.into(), PRELOAD.into(), settings)
    }

    fn with(node: Node, node_conf: PathBuf, preload: PathBuf, settings: Settings) -> Self {
        Self(Arc::new(Shared {
            node,
            node_conf,
            preload,
            settings,
            library: Library::default(),
            state: Mutex::default(),
        }))
    }

    /// Sets the gate up or takes it away, and tells of refused processes.
    pub fn round(&self) {
        self.0.round();
    }

    /// Admits a process. Without a gate, no process has to be admitted.
    pub fn admit(&self, pid: u32, uid: u32) -> Result<(), Errno> {
        self.0.admit(pid, uid)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&self) {
        match self.is_wanted() {
            Some(true) => self.keep_up(),
            Some(false) => self.take_away(),
            None => {}
        }
        let gate = self.state().gate.clone();
        if let Some(gate) = gate {
            // Now, so that it is still known when another one is in its place.
            self.find_library();
            let read = gate.forget_the_dead().and_then(|()| gate.refusals());
            match read {
                Ok(refusals) => self.tell(&refusals),
                Err(error) => self.say(format!("its tables cannot be read: {error}")),
            }
        }
    }

    /// `None` where a file cannot be read: then all stays as it is.
    fn is_wanted(&self) -> Option<bool> {
        let read = |path| match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Some(None),
            read => read.ok().map(Some),
        };
        let Some(conf) = read(&self.node_conf)? else {
            return Some(false);
        };
        let conf = NodeConf::parse(&conf).ok()?;
        // Nothing else tells the program which job a process is of, and without the library no process is admitted.
        let holds = conf.mode == NodeMode::Enforce && conf.identity == Identity::Cgroup;
        let preload = read(&self.preload)?.unwrap_or_default();
        let has_library = !libraries(&String::from_utf8_lossy(&preload)).is_empty();
        Some(holds && has_library && self.node.policy().ok()?.device_gate)
    }

    fn keep_up(&self) {
        let mut state = self.state();
        if state.gate.as_ref().is_some_and(|gate| gate.is_there()) {
            return;
        }
        if state.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        state.gate = None;
        state.again = Some(Instant::now() + SILENCE);
        drop(state);
        match Gate::set_up(&self.settings) {
            Ok(gate) => {
                let mut state = self.state();
                state.gate = Some(Arc::new(gate));
                state.trouble = None;
                state.again = None;
                info!(
                    "the device gate is set up: it is closed for jobs with slices that start from now on"
                );
            }
            Err(error) => self.say(error.to_string()),
        }
    }

    fn take_away(&self) {
        let gate = {
            let mut state = self.state();
            state.again = None;
            state.gate.take()
        };
        match softmig_gate::remove(&self.settings.folder) {
            Ok(true) => info!("the device gate is gone"),
            Ok(false) if gate.is_some() => info!("the device gate is gone"),
            Ok(false) => {}
            Err(error) => self.say(format!("it cannot be taken away: {error}")),
        }
    }

    /// Says what is wrong, once.
    fn say(&self, trouble: String) {
        let mut state = self.state();
        if state.trouble.as_ref() != Some(&trouble) {
            warn!("the device gate: {trouble}");
            state.trouble = Some(trouble);
        }
    }

    fn admit(&self, pid: u32, uid: u32) -> Result<(), Errno> {
        let Some(gate) = self.state().gate.clone() else {
            return Ok(());
        };
        self.find_library();
        match gate.admit(pid, uid, &self.library) {
            Ok(()) => Ok(()),
            // It asks again.
            Err(NotAdmitted::NotAsked) => Err(Errno::AGAIN),
            Err(NotAdmitted::Unknown(_)) => Err(Errno::SRCH),
            Err(NotAdmitted::NoLibrary) => Err(Errno::ACCESS),
            Err(NotAdmitted::TooMany) => Err(Errno::USERS),
            Err(NotAdmitted::Table(error)) => {
                self.say(format!("process {pid} is not admitted: {error}"));
                Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
        }
    }

    /// It may have been installed or upgraded a moment ago.
    fn find_library(&self) {
        for (path, error) in find_library(&self.library, &self.preload) {
            self.say(format!("{}: {error}", path.display()));
        }
    }

    fn tell(&self, refusals: &[Refusal]) {
        if refusals.is_empty() {
            return;
        }
        let confs = match Confs::read(&self.node) {
            Ok(confs) => confs,
            Err(error) => return self.say(format!("refusals are not told of: {error}")),
        };
        for refusal in refusals {
            // A process that is too deep for its job to be seen names another group.
            let Some(job) = job_of(&confs, &refusal.group) else {
                continue;
            };
            // A job that has ended has no log, and the node's names the user.
            let is_there = confs.jobs.contains_key(&job);
            if is_there && !is_of(&confs, job, refusal) || !self.is_due(job) {
                continue;
            }
            let (uid, pid, minor) = (refusal.uid, refusal.pid, refusal.minor);
            warn!(
                job,
                "job={job} uid={uid} pid={pid}: may not open /dev/nvidia{minor}: softmig's library is not in it, or it uses the GPU \
                 without CUDA and NVML"
            );
            if is_there {
                log::tell(&self.node, job, pid, &refused(job, minor));
            }
        }
    }

    fn is_due(&self, job: u32) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let told = &mut state.told;
        told.retain(|_, then| now.saturating_duration_since(*then) < SILENCE);
        let is_due = !told.contains_key(&job);
        if is_due {
            told.insert(job, now);
        }
        is_due
    }
}

/// The number of the job whose control group has this name.
fn job_of(confs: &Confs, group: &str) -> Option<u32> {
    let by_number = || group.strip_prefix("job_")?.parse().ok();
    confs.sluids.get(group).copied().or_else(by_number)
}

/// Whether a process that was refused is of this job. A name of a control group alone is not enough: it can be a user's own.
fn is_of(confs: &Confs, job: u32, refusal: &Refusal) -> bool {
    // It has often ended by now.
    let conf = confs.jobs.get(&job).and_then(|conf| conf.as_ref().ok());
    if conf.is_some_and(|conf| conf.uid == refusal.uid) {
        return true;
    }
    // In a container it has another user.
    match user_and_place(Path::new("/proc"), refusal.pid) {
        Ok((_, Membership::Job(id))) => id == job,
        Ok((_, Membership::Sluid(sluid))) => confs.sluids.get(&sluid) == Some(&job),
        Ok((_, Membership::Outside)) | Err(_) => false,
    }
}

/// Adds the library that the loader's list names now. Returns what could not be opened.
pub fn find_library(library: &Library, preload: &Path) -> Vec<(PathBuf, std::io::Error)> {
    let text = std::fs::read_to_string(preload).unwrap_or_default();
    let add = |path: PathBuf| library.add(&path).err().map(|error| (path, error));
    libraries(&text).into_iter().filter_map(add).collect()
}

/// The paths of softmig's library in the loader's list, which has spaces, colons and line feeds between its entries.
fn libraries(list: &str) -> Vec<PathBuf> {
    let lines = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let entries = lines.flat_map(|line| line.split([' ', '\t', ':']));
    let paths = entries.map(PathBuf::from);
    let is_library = |path: &PathBuf| path.file_name().is_some_and(|name| name == LIBRARY);
    paths
        .filter(|path| path.is_absolute() && is_library(path))
        .collect()
}

/// What a job is told of a process that could not open a GPU.
fn refused(job: u32, minor: u32) -> String {
    format!(
        "refused /dev/nvidia{minor}: this process does not have softmig's library, or uses the GPU without CUDA and NVML. A container \
         needs /usr/lib/softmig, /etc/ld.so.preload, /etc/softmig and /var/run/softmig, bound read-only, and \
         /var/run/softmig/jobs/{job}, bound writable"
    )
}

#[cfg(test)]
mod tests;
