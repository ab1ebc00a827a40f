//! The folders of runs: the user's own one, and in it one for each run with its ledger and its log.
//!
//! | path | what |
//! |---|---|
//! | `$XDG_RUNTIME_DIR/softmig`, else `/tmp/softmig-UID`, else `/dev/shm/softmig-UID` | the user's, mode 0700 |
//! | `run-PID-RANDOM/` in it | a run's, locked (`flock`) as long as its `softmig run` lives |
//! | `ledger` in that | what the processes of the run hold of each GPU; its path is `SOFTMIG_RUN` |
//! | `log` in that | what the library says of them |
//!
//! The first one may be in a folder where every user can make one of its name: so it is opened without following a
//! link, looked at through what was opened, and all else happens relative to it. A run's folder goes when no process uses
//! it any more: with `softmig run`, or at the start of a later one of the same user.

use super::alive::has_process;
use anyhow::{Context, anyhow, bail};
use rustix::fs::{self, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use softmig_node::dir::{Dir, DirError};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const LEDGER: &str = "ledger";
const LOG: &str = "log";
/// The beginning of the names of runs' folders.
const RUN: &str = "run-";

/// Where every user can have a folder.
const EVERYBODYS: [&str; 2] = ["/tmp", "/dev/shm"];
/// The kernel's number for overlays (`include/uapi/linux/magic.h`).
const OVERLAY: fs::FsWord = 0x794c_7630;

/// The driver's list of GPUs.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// A ledger has room for as many at least: the list may be out of sight, and a divided GPU counts as several.
const FEWEST_GPUS: usize = 8;

/// How often it is looked whether processes of a run that ended are gone, and how long it is waited in between.
const MOMENTS: u32 = 10;
const MOMENT: Duration = Duration::from_millis(10);

/// The longest path of a ledger that the library reads.
const LONGEST_PATH: usize = 254;
/// How much of it the names below `XDG_RUNTIME_DIR` take.
const LONGEST_NAMES: usize = 64;

/// The user's folder for all runs.
pub(crate) struct Base(Rc<Dir>);

impl Base {
    /// Opens it, made when missing.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let uid = rustix::process::getuid().as_raw();
        let session = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|folder| is_own_session(folder, uid))
            .map(|folder| folder.join("softmig"));
        let own = format!("softmig-{uid}");
        let everybodys = EVERYBODYS.map(|folder| Path::new(folder).join(&own));
        let mut places = session.into_iter().chain(everybodys);
        match places.find(|place| place.parent().is_some_and(keeps_locks)) {
            Some(path) => Self::at(&path, uid),
            None => bail!(
                "no folder for the run: {} are missing or on an overlay, where the locks of its ledger do not last; \
                 mount a tmpfs there ('docker run --tmpfs /tmp')",
                EVERYBODYS.join(" and ")
            ),
        }
    }

    fn at(path: &Path, uid: u32) -> anyhow::Result<Self> {
        let made = Dir::make_private(path, uid).map_err(|error| match error {
            DirError::Untrusted { .. } => anyhow!(
                "{error}; use 'chmod 700 {}' if it is a folder of yours, take it away, or set XDG_RUNTIME_DIR to a \
                 folder of your own (mode 0700)",
                path.display()
            ),
            error => error.into(),
        });
        Ok(Self(Rc::new(made?)))
    }

    /// Makes a folder for a run.
    pub(crate) fn make(&self) -> anyhow::Result<Folder> {
        let doing = || format!("making a folder for the run in {}", self.0.path().display());
        // Another of the user's runs may take it for one that was left and remove it, as long as it is not locked.
        for _ in 0..10 {
            if let Some(folder) = self.try_make().with_context(doing)? {
                let gpus = softmig_node::gpu::installed(Path::new(GPUS)).len();
                let made = folder.fill(softmig_region::size(gpus.max(FEWEST_GPUS)));
                return match made {
                    Ok(()) => Ok(folder),
                    Err(error) => {
                        folder.remove();
                        Err(error).with_context(doing)
                    }
                };
            }
        }
        Err(Errno::NOENT).with_context(doing)
    }

    fn try_make(&self) -> anyhow::Result<Option<Folder>> {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{RUN}{}-{random:016x}", std::process::id());
        let folder = self.locked(self.0.make_private_child(&name)?)?;
        match folder {
            // Else it was removed before it was locked.
            Some(folder) if folder.dir.stat()?.st_nlink > 0 => Ok(Some(folder)),
            _ => Ok(None),
        }
    }

    /// Locks a run's folder; `None` if another process has it locked.
    fn locked(&self, dir: Dir) -> anyhow::Result<Option<Folder>> {
        match fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let base = Rc::clone(&self.0);
                Ok(Some(Folder { base, dir }))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the folders of runs that have ended, as far as it can.
    pub(crate) fn sweep(&self) {
        let names = self.0.names().unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with(RUN)) {
            if let Ok(Some(dir)) = self.0.child(name)
                && let Ok(Some(left)) = self.locked(dir)
                && !left.is_used(self.0.owner())
            {
                left.remove();
            }
        }
    }
}

/// Whether a lock of a file in this folder stays as long as a process has the file mapped. By such locks the library knows
/// which processes live. An overlay maps another file than the one that was opened, and the lock ends when that is closed.
fn keeps_locks(folder: &Path) -> bool {
    fs::statfs(folder).is_ok_and(|stat| stat.f_type != OVERLAY)
}

/// Whether this is a folder of the user's own, as a login has it. It may be another user's after `su` and `sudo`.
fn is_own_session(folder: &Path, uid: u32) -> bool {
    let is_short = folder.as_os_str().len() + LONGEST_NAMES <= LONGEST_PATH;
    folder.is_absolute()
        && is_short
        && folder
            .metadata()
            .is_ok_and(|stat| stat.is_dir() && stat.uid() == uid && stat.mode() & 0o022 == 0)
}

/// A run's folder, locked.
pub(crate) struct Folder {
    /// The one that it is in.
    base: Rc<Dir>,
    dir: Dir,
}

impl Folder {
    /// Makes the ledger, in its full size and with its room taken: a mapping that finds no room when it is written to
    /// ends its process.
    fn fill(&self, size: usize) -> anyhow::Result<()> {
        let mut ledger = self.dir.create(LEDGER, 0o600, b"")?;
        match fs::fallocate(&ledger, FallocateFlags::empty(), 0, size as u64) {
            // A file system that cannot do that.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => ledger.write_all(&vec![0; size])?,
            done => done?,
        }
        self.dir.create(LOG, 0o600, b"")?;
        Ok(())
    }

    /// The path of the ledger.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.dir.path().join(LEDGER)
    }

    /// Opens the log; `None` if it was removed.
    pub(crate) fn open_log(&self) -> Result<Option<File>, DirError> {
        self.dir.open_file(LOG)
    }

    /// Whether processes of the run are alive: those that use a GPU have a lock on the ledger, the others at least its
    /// name in their environment.
    fn is_used(&self, uid: u32) -> bool {
        if has_process(uid, &self.ledger()) {
            return true;
        }
        let ledger = self.dir.open_at_end(LEDGER).ok().flatten();
        // All bytes of it at once, so every lock conflicts. It is given back when the file is closed.
        ledger.is_some_and(|ledger| {
            fs::fcntl_lock(&ledger, FlockOperation::NonBlockingLockExclusive).is_err()
        })
    }

    /// Removes it, if no process uses it; else says that it stays.
    pub(crate) fn end(self) -> Option<String> {
        let uid = rustix::process::getuid().as_raw();
        // Processes that ended with the command may not be gone yet.
        let mut moments = 0..MOMENTS;
        let is_used = loop {
            if !self.is_used(uid) {
                break false;
            }
            if moments.next().is_none() {
                break true;
            }
            std::thread::sleep(MOMENT);
        };
        if is_used {
            return Some(format!(
                "softmig: processes of this run are still there, under the same limits; {} stays until a later \
                 'softmig run' after their end",
                self.dir.path().display()
            ));
        }
        self.remove();
        None
    }

    /// Removes what was made.
    fn remove(self) {
        for name in [LEDGER, LOG] {
            let _ = self.dir.remove_file(name);
        }
        let name = self.dir.path().file_name();
        if let Some(name) = name.and_then(|name| name.to_str()) {
            let _ = self.base.remove_if_empty(name);
        }
    }
}
