//! The gate, as the monitor has it.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::admitted::{Admitted, NotAdmitted};
use crate::btf::{Btf, BtfError};
use crate::error::{BTF, GateError, failed};
use crate::groups;
use crate::layout::Layout;
use crate::library::Library;
use crate::program::{Devices, Maps, NAME, program};
use crate::sys::{self, Map};
use crate::tables::{
    ADMITTED, ASKED, LINK, REFUSAL, REFUSED, SHAPE_OF_ADMITTED, SHAPE_OF_ASKED, SHAPE_OF_JOBS,
    SHAPE_OF_REFUSED, in_bpf, is_set_up, jobs, make_folder, map,
};

/// Both, since the kernel lends some functions only to the latter.
const LICENSE: &str = "Dual MIT/GPL";

/// Which program, and where it is attached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where its files are.
    pub folder: PathBuf,
    /// The devices.
    pub devices: Devices,
    /// The control group; `None` is the root of all of version 2.
    pub group: Option<PathBuf>,
}

impl Settings {
    /// Those of a node whose files are in this folder.
    pub fn of_node(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            devices: Devices::NVIDIA,
            group: None,
        }
    }
}

/// A gate, as the monitor has it.
#[derive(Debug)]
pub struct Gate {
    admitted: Admitted,
    asked: Map,
    refused: Map,
    folder: PathBuf,
}

impl Gate {
    /// Sets the gate up, or takes over the one that an earlier monitor left. Admissions and jobs stay.
    pub fn set_up(settings: &Settings) -> Result<Self, GateError> {
        let folder = &settings.folder;
        make_folder(folder)?;
        let gate = Self {
            admitted: Admitted::new(map(folder, ADMITTED, SHAPE_OF_ADMITTED)?),
            asked: map(folder, ASKED, SHAPE_OF_ASKED)?,
            refused: map(folder, REFUSED, SHAPE_OF_REFUSED)?,
            folder: folder.clone(),
        };
        let jobs = jobs(folder)?;
        let maps = Maps {
            jobs: jobs.as_fd(),
            admitted: gate.admitted.as_fd(),
            asked: gate.asked.as_fd(),
            refused: gate.refused.as_fd(),
        };
        let loaded = load(settings.devices, maps)?;
        let path = folder.join(LINK);
        match sys::get(&path) {
            Ok(link) => sys::replace(&link, &loaded).map_err(failed("changing the program"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let group = match &settings.group {
                    None => groups::root(),
                    Some(path) => groups::open(path),
                };
                let group = group.map_err(failed("opening control groups of version 2"))?;
                let link = sys::link(&loaded, &group).map_err(failed("attaching the program"))?;
                sys::pin(&link, &path).map_err(failed("keeping the attachment"))?;
            }
            Err(error) => return Err(failed("looking for an earlier program")(error)),
        }
        gate.forget_the_dead().map_err(failed("reading a table"))?;
        Ok(gate)
    }

    /// Whether it is still there: its files may have been removed.
    #[must_use]
    pub fn is_there(&self) -> bool {
        is_set_up(&self.folder)
    }

    /// Admits a process that has asked, if it has the library. It counts as a process of its job's user `uid`: in containers
    /// processes have other users.
    ///
    /// May take as long as the process likes, which can make the kernel wait for its memory.
    pub fn admit(&self, pid: u32, uid: u32, library: &Library) -> Result<(), NotAdmitted> {
        // In this order: if it executes another program from here on, what is admitted is not that one.
        let asked = self.asked.get(&pid.to_ne_bytes());
        let asked = asked.map_err(NotAdmitted::Table)?;
        let program = asked.ok_or(NotAdmitted::NotAsked)?;
        match library.is_in(pid) {
            Ok(true) => {}
            Ok(false) => return Err(NotAdmitted::NoLibrary),
            Err(error) => return Err(NotAdmitted::Unknown(error)),
        }
        self.admitted.add(pid, &program, uid)
    }

    /// Forgets processes that have ended.
    pub fn forget_the_dead(&self) -> io::Result<()> {
        self.admitted.forget_the_dead()
    }

    /// The refusals since the last time: one for each job and user.
    pub fn refusals(&self) -> io::Result<Vec<Refusal>> {
        let mut refusals = Vec::new();
        for key in self.refused.keys::<REFUSAL>()? {
            let Some(value) = self.refused.get::<8>(&key)? else {
                continue;
            };
            self.refused.remove(&key)?;
            let value = u64::from_ne_bytes(value);
            let (name, user) = key.split_at(NAME);
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let user = user.try_into().map(u64::from_ne_bytes).unwrap_or_default();
            refusals.push(Refusal {
                group: String::from_utf8_lossy(name).into_owned(),
                uid: (user >> 32) as u32,
                pid: (value & u64::from(u32::MAX)) as u32,
                minor: (value >> 32) as u32,
            });
        }
        Ok(refusals)
    }
}

/// A process that was refused a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The name of its job's control group. Users who have groups of their own can name one like another's job.
    pub group: String,
    /// Its user.
    pub uid: u32,
    /// Its number.
    pub pid: u32,
    /// The GPU's minor number.
    pub minor: u32,
}

/// Whether this machine can have a gate: everything is tried but attaching it. Needs root.
pub fn check(folder: &Path) -> Result<(), GateError> {
    in_bpf(folder)?;
    let new = |shape| Map::new(shape).map_err(failed("making a table"));
    let (jobs, admitted) = (new(SHAPE_OF_JOBS)?, new(SHAPE_OF_ADMITTED)?);
    let (asked, refused) = (new(SHAPE_OF_ASKED)?, new(SHAPE_OF_REFUSED)?);
    let maps = Maps {
        jobs: jobs.as_fd(),
        admitted: admitted.as_fd(),
        asked: asked.as_fd(),
        refused: refused.as_fd(),
    };
    load(Devices::NVIDIA, maps)?;
    groups::root().map_err(failed("opening control groups of version 2"))?;
    Ok(())
}

fn load(devices: Devices, maps: Maps<'_>) -> Result<OwnedFd, GateError> {
    // PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h
    const FIRST: u64 = 0xefff_fffc;
    let namespace = fs::metadata("/proc/self/ns/pid").map_err(failed("looking at /proc"))?;
    if namespace.ino() != FIRST {
        return Err(GateError::Namespace);
    }
    let types = fs::read(BTF).map_err(GateError::NoBtf)?;
    let layout = Layout::find(&Btf::parse(&types)?)?;
    let program = program(&layout, devices, maps).ok_or(BtfError::Damaged)?;
    sys::load(&program, LICENSE, "softmig_gate").map_err(failed("loading the program"))
}
