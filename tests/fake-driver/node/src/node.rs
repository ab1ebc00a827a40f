//! A node as the test that makes it has it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{Mode, fchmod, fstatfs};

use crate::description::{Clock, Description};
use crate::error::{AttachError, NodeError};
use crate::gpu::Gpu;
use crate::layout::{get, set};
use crate::mapped::{Mapped, blocks_dir};
use crate::pids::Translator;
use crate::usage::{self, DeviceUsage, Participant, ProcessUsage};
use crate::{clock, mapped, memory, reap};

/// The magic number of overlay file systems, from linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// A node, seen from outside. Its file stays when this is dropped.
pub struct Node(Mapped);

impl Node {
    /// Makes a node with these GPUs, whose file is `path`. Whatever was there before is replaced; processes that
    /// joined it go on with the old one.
    ///
    /// # Errors
    /// The system's, and [`NodeError::Overlay`] where the file lies in an overlay.
    pub fn create(path: impl AsRef<Path>, gpus: &[Gpu]) -> Result<Node, NodeError> {
        Node::describe(path, Description::new(gpus))
    }

    /// Makes a node as described.
    ///
    /// # Errors
    /// As [`Node::create`].
    pub fn describe(path: impl AsRef<Path>, description: Description) -> Result<Node, NodeError> {
        let path = path.as_ref();
        let dir = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(NodeError::os(dir, "making the folder"))?;
        empty_folder(&blocks_dir(path))?;
        let new = path.with_extension("new");
        // Gone already, unless an earlier test was interrupted.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&new)
            .map_err(NodeError::os(&new, "making the node"))?;
        let system = fstatfs(&file)
            .map_err(|error| NodeError::os(path, "asking for the file system")(error.into()))?;
        if system.f_type as u64 == OVERLAY {
            return Err(NodeError::Overlay(path.into()));
        }
        // Every user of the node may map it, whatever the umask is.
        fchmod(&file, Mode::from_raw_mode(0o666))
            .map_err(|error| NodeError::os(&new, "opening it for all")(error.into()))?;
        let mut mapped = Mapped::make(&new, &file, description)?;
        // Complete, and only now to be found.
        fs::rename(&new, path).map_err(NodeError::os(path, "putting the node in place"))?;
        mapped.path = path.into();
        Ok(Node(mapped))
    }

    /// The node that another made.
    ///
    /// # Errors
    /// [`AttachError::Absent`] if no node is there.
    pub fn open(path: impl AsRef<Path>) -> Result<Node, AttachError> {
        let path = path.as_ref();
        let file = mapped::Mapped::open_file(path)?;
        Ok(Node(Mapped::map(path, &file)?))
    }

    /// Its description.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// The memory that is taken of each device, by process and by kind. Dead processes have nothing.
    ///
    /// # Errors
    /// The system's, if the node's file is gone: without it the node cannot tell which processes are alive.
    pub fn usage(&self) -> Result<Vec<DeviceUsage>, NodeError> {
        self.check()?;
        Ok(usage::usage(&self.0))
    }

    /// The most that was taken of a device at a time since the node was made, or since this was last forgotten.
    #[must_use]
    pub fn peak(&self, device: usize) -> u64 {
        let state = self.0.shared().devices.get(device);
        state.map_or(0, |state| get(&state.peak))
    }

    /// Forgets what was taken before.
    pub fn forget_peak(&self, device: usize) {
        let shared = self.0.shared();
        let _held = shared.lock.lock();
        reap::reap(&self.0);
        if let Some(state) = shared.devices.get(device) {
            set(&state.peak, memory::used(&self.0, device));
        }
    }

    /// All processes that have or had memory of a device, until a later process takes their slot.
    ///
    /// # Errors
    /// As [`Node::usage`].
    pub fn history(&self, device: usize) -> Result<Vec<ProcessUsage>, NodeError> {
        self.check()?;
        Ok(usage::history(&self.0, device))
    }

    /// The processes that take part, and those that did until a later process took their slot (there are 256). The
    /// earliest is first.
    ///
    /// # Errors
    /// As [`Node::usage`].
    pub fn participants(&self) -> Result<Vec<Participant>, NodeError> {
        self.check()?;
        Ok(usage::participants(&self.0))
    }

    /// How often a process called a function of the driver, by the process's number here or in its own namespace.
    /// Still known after its death.
    #[must_use]
    pub fn calls(&self, pid: u32, name: &str) -> u64 {
        let translator = std::cell::RefCell::new(Translator::new());
        usage::calls_by(&self.0, name, |slot| {
            usage::own_pid(slot) == pid || translator.borrow_mut().translate(slot) == Some(pid)
        })
    }

    /// How often all processes together called a function of the driver.
    #[must_use]
    pub fn all_calls(&self, name: &str) -> u64 {
        usage::calls_by(&self.0, name, |_| true)
    }

    /// The time that the clock shows, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        clock::now(&self.0)
    }

    /// Lets time pass on a driven clock. Programs that wait notice within a millisecond of real time.
    ///
    /// # Errors
    /// [`NodeError::RealClock`] where time passes by itself.
    pub fn advance(&self, time: Duration) -> Result<(), NodeError> {
        if self.0.description.clock != Clock::Driven {
            return Err(NodeError::RealClock);
        }
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a waiting program asks again until it sees the new time.
        let clock = &self.0.shared().clock;
        clock.fetch_add(nanoseconds, Ordering::Relaxed);
        Ok(())
    }

    /// Until when a device has work, on the node's clock.
    #[must_use]
    pub fn busy_until(&self, device: usize) -> u64 {
        let state = self.0.shared().devices.get(device);
        state.map_or(0, |state| get(&state.busy_until))
    }

    pub(crate) fn mapped(&self) -> &Mapped {
        &self.0
    }

    fn check(&self) -> Result<(), NodeError> {
        fs::metadata(&self.0.path).map_err(NodeError::os(&self.0.path, "looking for the node"))?;
        Ok(())
    }
}

/// A folder in which every user may make files, and every other remove them.
fn empty_folder(dir: &Path) -> Result<(), NodeError> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(NodeError::os(dir, "emptying the folder"))?;
    }
    fs::create_dir(dir).map_err(NodeError::os(dir, "making the folder"))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
        .map_err(NodeError::os(dir, "opening it for all"))
}
