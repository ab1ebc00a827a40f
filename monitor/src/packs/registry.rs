//! The packs of the node: their folders, and the supervisors that the daemon starts and ends.
//!
//! `/var/run/softmig/packs/GPU-.../uid-2001-1` is the first server of user 2001 on that GPU. All that is known is there, so that the
//! next daemon goes on with the same servers.

use rustix::io::Errno;
use softmig_node::node::Node;
use softmig_rm::Channel;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::id::PackId;
use super::question::{Answer, Question, ask};
use crate::jobs::acl::{Who, let_in_at};

/// The folder of all packs in the run folder.
const FOLDER: &str = "packs";
/// How long a server may take until it is there.
const STARTING: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(10);
/// After a start in vain, there is no other for this time.
const AGAIN: Duration = Duration::from_secs(60);

/// A pack's GPU, as the driver writes its UUID, and the pack.
type Key = (String, PackId);

/// The packs of a node.
#[derive(Debug)]
pub struct Packs {
    folder: PathBuf,
    /// What a supervisor is with the option `--pack`.
    program: &'static str,
    /// Held while a pack's supervisor is started or ended; when one could not be started.
    starting: Mutex<BTreeMap<Key, Arc<Mutex<Option<Instant>>>>>,
    /// Those that this daemon has started, until it is seen that they have ended.
    children: Mutex<Vec<Child>>,
}

impl Packs {
    /// Those of a node, with supervisors of this program.
    pub fn new(node: &Node, program: &'static str) -> Self {
        Self {
            folder: node.run.join(FOLDER),
            program,
            starting: Mutex::default(),
            children: Mutex::default(),
        }
    }

    /// Lets a process become a client of its pack's server, which is started if it is not there. Gives the folder by which CUDA finds
    /// the server.
    ///
    /// # Errors
    /// `USERS` if the server has as many clients as it may, `NOSYS` if there is none to be had, `AGAIN` if it takes long.
    pub fn enter(&self, gpu: &str, id: PackId, process: u32) -> Result<PathBuf, Errno> {
        let (gpu_folder, lock) = (self.folder.join(gpu), self.lock_of(gpu, id));
        let mut failed = locked(&lock);
        if failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return Err(Errno::NOSYS);
        }
        let newest = generations(&gpu_folder, id).pop();
        let end = Instant::now() + STARTING;
        let mut folder = None;
        if let Some(number) = newest {
            let present = generation(&gpu_folder, id, number);
            match ask(&present, Question::Enter(process), None) {
                Ok(Answer::Yes) => return Ok(present),
                Ok(Answer::Full) => return Err(Errno::USERS),
                Ok(Answer::Soon) => folder = Some(present),
                // The clients that it has end by themselves.
                Ok(Answer::Faulted) => {}
                Ok(Answer::NoFiles) => return Err(Errno::IO),
                Err(error) if is_gone(&error) => remove(&present),
                Err(error) => {
                    warn!("{}: {error}", present.display());
                    return Err(Errno::AGAIN);
                }
            }
        }
        let folder = match folder {
            Some(folder) => folder,
            None => {
                let folder = generation(&gpu_folder, id, newest.unwrap_or(0) + 1);
                self.start(&folder, id).map_err(|error| {
                    warn!("{}: no server: {error}", folder.display());
                    *failed = Some(Instant::now());
                    Errno::NOSYS
                })?;
                folder
            }
        };
        loop {
            match ask(&folder, Question::Enter(process), None) {
                Ok(Answer::Yes) => return Ok(folder),
                Ok(Answer::Full) => return Err(Errno::USERS),
                Err(_) if self.has_ended(&folder) => {
                    *failed = Some(Instant::now());
                    remove(&folder);
                    return Err(Errno::NOSYS);
                }
                _ if Instant::now() > end => return Err(Errno::AGAIN),
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Keeps the files of a process that has become a client, of whichever of its pack's servers.
    ///
    /// # Errors
    /// `NOENT` if it has no such files, `AGAIN` if the supervisor does not answer.
    pub fn keep(
        &self,
        gpu: &str,
        id: PackId,
        (process, file): (u32, BorrowedFd<'_>),
    ) -> Result<(), Errno> {
        let gpu_folder = self.folder.join(gpu);
        let newest = generations(&gpu_folder, id).pop().ok_or(Errno::NOENT)?;
        let folder = generation(&gpu_folder, id, newest);
        match ask(&folder, Question::Keep(process), Some(file)) {
            Ok(Answer::Yes) => Ok(()),
            Ok(_) => Err(Errno::NOENT),
            Err(error) => {
                warn!("{}: {error}", folder.display());
                Err(Errno::AGAIN)
            }
        }
    }

    /// Ends the servers whose packs have no job any more.
    pub fn round(&self, has_jobs: impl Fn(&str, PackId) -> bool) {
        self.bury();
        for gpu in names(&self.folder) {
            let gpu_folder = self.folder.join(&gpu);
            for name in names(&gpu_folder) {
                let id = name.rsplit_once('-').and_then(|(id, _)| PackId::parse(id));
                if id.is_some_and(|id| has_jobs(&gpu, id)) {
                    continue;
                }
                let folder = gpu_folder.join(&name);
                let lock = id.map(|id| self.lock_of(&gpu, id));
                let _held = lock.as_deref().map(locked);
                match ask(&folder, Question::End, None) {
                    Ok(_) => info!("{}: its jobs have ended", folder.display()),
                    Err(error) if is_gone(&error) => {
                        remove(&folder);
                        if let Some(id) = id {
                            self.starting().remove(&(gpu.clone(), id));
                        }
                    }
                    Err(error) => warn!("{}: {error}", folder.display()),
                }
            }
        }
    }

    fn starting(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Mutex<Option<Instant>>>>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, gpu: &str, id: PackId) -> Arc<Mutex<Option<Instant>>> {
        Arc::clone(self.starting().entry((gpu.to_owned(), id)).or_default())
    }

    fn start(&self, folder: &Path, id: PackId) -> io::Result<()> {
        // Others may enter the folders of all packs, and list none.
        for parent in [&self.folder, folder.parent().unwrap_or(folder)] {
            make(parent, 0o711)?;
        }
        make(folder, 0o700)?;
        let_in_at(folder, Who::Visitor(id.user()))?;
        let mut command = Command::new(self.program);
        command.arg("--pack").arg(folder).stdin(Stdio::null());
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        let child = command.spawn()?;
        info!("{}: a server, by process {}", folder.display(), child.id());
        self.children().push(child);
        Ok(())
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees which supervisors have ended.
    fn bury(&self) {
        let is_alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        self.children().retain_mut(is_alive);
    }

    /// Whether the supervisor that was started last does not live any more, as its folder's socket says too.
    fn has_ended(&self, folder: &Path) -> bool {
        let mut children = self.children();
        let last = children.last_mut().map(Child::try_wait);
        !matches!(last, Some(Ok(None))) && !folder.join("control").exists()
    }
}

/// A process of a job in a pack.
#[derive(Clone, Debug)]
pub struct PackMember {
    packs: Arc<Packs>,
    gpu: String,
    id: PackId,
    process: u32,
}

impl PackMember {
    /// That of this pack on that GPU.
    pub fn new(packs: Arc<Packs>, (gpu, id): Key, process: u32) -> Self {
        Self {
            packs,
            gpu,
            id,
            process,
        }
    }

    /// Tells the supervisor which channels the process has. One that is no client is passed over there.
    pub fn note_channels(&self, channels: &[Channel]) {
        let gpu_folder = self.packs.folder.join(&self.gpu);
        let channels: Vec<_> = channels.iter().map(|it| (it.client, it.handle)).collect();
        // It may be of an earlier server, whose clients have not all ended.
        for number in generations(&gpu_folder, self.id) {
            let folder = generation(&gpu_folder, self.id, number);
            let question = Question::Channels(self.process, channels.clone());
            match ask(&folder, question, None) {
                Err(error) if !is_gone(&error) => warn!("{}: {error}", folder.display()),
                _ => {}
            }
        }
    }
}

fn locked(lock: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nobody listens there.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

fn make(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        warn!("{}: {error}", folder.display());
    }
}

/// A pack's server by its number.
fn generation(gpu_folder: &Path, id: PackId, number: u32) -> PathBuf {
    gpu_folder.join(format!("{id}-{number}"))
}

/// The numbers of a pack's servers.
fn generations(gpu_folder: &Path, id: PackId) -> Vec<u32> {
    let start = format!("{id}-");
    let names = names(gpu_folder).into_iter();
    let mut numbers: Vec<u32> = names
        .filter_map(|name| name.strip_prefix(&start)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
