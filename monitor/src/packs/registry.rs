//! The packs of the node: their folders, and the supervisors that the daemon starts and ends.
//!
//! `/var/run/softmig/packs/GPU-.../uid-2001-1` is the first server of user 2001 on that GPU, and `a-` or `r-`, a number
//! and `-1` that of jobs with the same account or reservation. All that is known is there, so that the
//! next daemon goes on with the same servers.

use rustix::io::Errno;
use softmig_node::node::Node;
use softmig_policy::node::job_conf::{JobConf, Uuid};
use softmig_region::seat::Channel;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::id::PackId;
use super::question::{Answer, Question, ask};
use super::supervisor::CONTROL_SOCKET;
use crate::jobs::acl::{Who, let_in_at};

/// How long a server may take until it is there.
const STARTING: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(10);
/// After a start in vain, there is no other for this time.
const AGAIN: Duration = Duration::from_secs(60);

/// The most servers of a pack whose clients have not ended. All but one had a fault.
const MOST: usize = 3;

/// A pack's GPU, as the driver writes its UUID, and the pack, by [`super::PackId::folder`].
pub type Key = (String, String);

/// The users who have jobs in a pack, of these.
pub fn users_in((gpu, pack): &Key, confs: impl IntoIterator<Item = JobConf>) -> BTreeSet<u32> {
    let gpu = Uuid::parse(gpu).map(|gpu| gpu.bytes());
    let in_pack = confs.into_iter().filter(|conf| {
        let its = PackId::of(conf).map(PackId::folder);
        its.as_ref() == Some(pack) && conf.gpus.iter().any(|its| Some(its.bytes()) == gpu)
    });
    in_pack.map(|conf| conf.uid).collect()
}

/// The packs of a node.
#[derive(Debug)]
pub struct Packs {
    folder: PathBuf,
    /// What a supervisor is with the option `--pack`.
    program: &'static str,
    /// Held while a pack's supervisor is started or ended; when one could not be started.
    starting: Mutex<BTreeMap<Key, Arc<Mutex<Option<Instant>>>>>,
    /// Those that this daemon has started, until it is seen that they have ended.
    children: Mutex<BTreeMap<PathBuf, Child>>,
}

impl Packs {
    /// Those of a node, with supervisors of this program.
    pub fn new(node: &Node, program: &'static str) -> Self {
        Self {
            folder: softmig_node::packs::folder(node),
            program,
            starting: Mutex::default(),
            children: Mutex::default(),
        }
    }

    /// Lets a process become a client of its pack's server, which is started if it is not there. These users have jobs in the pack, and
    /// reach the server. Gives the folder by which CUDA finds it.
    ///
    /// # Errors
    /// `USERS` if the server has as many clients as it may, `BUSY` if some of these have ended and leave soon, `NOSYS` if there is none to
    /// be had, `AGAIN` if it takes long.
    pub fn enter(
        &self,
        key: &Key,
        process: u32,
        users: impl Fn() -> Result<BTreeSet<u32>, Errno>,
    ) -> Result<PathBuf, Errno> {
        let (lock, end) = (self.lock_of(key), Instant::now() + STARTING);
        let mut failed = locked(&lock);
        if failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return Err(Errno::NOSYS);
        }
        let generations = self.generations(key);
        let mut number = generations.last().copied().unwrap_or(0);
        let mut has_started = false;
        loop {
            let folder = self.generation(key, number);
            match ask(&folder, Question::Enter(process), None) {
                Ok(Answer::Yes) => {
                    // Asked while no other can change the list.
                    let_in(&folder, &users()?)?;
                    return Ok(folder);
                }
                Ok(Answer::Full) => return Err(Errno::USERS),
                Ok(Answer::Filled) => return Err(Errno::BUSY),
                Ok(Answer::Soon) => {}
                // It does not listen yet, or its program has failed, perhaps while it was asked.
                Err(_) if has_started => {
                    if self.has_ended(&folder) {
                        *failed = Some(Instant::now());
                        remove(&folder);
                        return Err(Errno::NOSYS);
                    }
                }
                Err(error) if !is_gone(&error) => {
                    warn!("{}: {error}", folder.display());
                    return Err(Errno::AGAIN);
                }
                Ok(_) if has_started || generations.len() >= MOST => return Err(Errno::AGAIN),
                // There is none, or its clients end by a fault: there is to be another.
                answer => {
                    if answer.is_err() && number > 0 {
                        remove(&folder);
                    }
                    number += 1;
                    has_started = true;
                    let folder = self.generation(key, number);
                    if let Err(error) = self.start(&folder) {
                        warn!("{}: no server: {error}", folder.display());
                        *failed = Some(Instant::now());
                        return Err(Errno::NOSYS);
                    }
                }
            }
            if Instant::now() > end {
                return Err(Errno::AGAIN);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Keeps the files of a process of this job, by that of its pack's servers which it has entered.
    ///
    /// # Errors
    /// `NODEV` if it has entered none, or has no such files; `AGAIN` if a supervisor does not answer, or is kept from looking.
    pub fn keep(
        &self,
        key: &Key,
        (process, file): (u32, BorrowedFd<'_>),
        job: u32,
    ) -> Result<(), Errno> {
        self.ask_who_has_it(key, &Question::Keep(process, job), Some(file))
    }

    /// Asks the supervisors of a pack of one of their clients, until the one that has it says yes.
    ///
    /// # Errors
    /// `NODEV` if none has it; `AGAIN` if one is to be asked again, and no other has it.
    fn ask_who_has_it(
        &self,
        key: &Key,
        question: &Question,
        process: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let mut has = Err(Errno::NODEV);
        for answer in self.answers(key, question, process) {
            match answer {
                Some(Answer::Yes) => return Ok(()),
                Some(Answer::Soon) | None => has = Err(Errno::AGAIN),
                Some(_) => {}
            }
        }
        has
    }

    /// What a pack's supervisors answer, that of the newest server first; `None` of one that does not. They are asked one by one: a process
    /// may be of an earlier server, whose clients have not all ended.
    fn answers(
        &self,
        key: &Key,
        question: &Question,
        process: Option<BorrowedFd<'_>>,
    ) -> impl Iterator<Item = Option<Answer>> {
        let numbers = self.generations(key).into_iter().rev();
        let folders = numbers.map(|number| self.generation(key, number));
        folders.filter_map(
            move |folder| match ask(&folder, question.clone(), process) {
                Ok(answer) => Some(Some(answer)),
                Err(error) if is_gone(&error) => None,
                Err(error) => {
                    // These are told again soon.
                    if !matches!(question, Question::Channels(..)) {
                        warn!("{}: {error}", folder.display());
                    }
                    Some(None)
                }
            },
        )
    }

    /// Ends the servers whose packs have no job any more, and clears away after those that had a fault. `users` are those who have jobs in
    /// a pack.
    pub fn round(&self, users: impl Fn(&Key) -> Result<BTreeSet<u32>, Errno>) {
        self.bury();
        for gpu in names(&self.folder) {
            let names = names(&self.folder.join(&gpu)).into_iter();
            let packs = names.filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned()));
            for pack in packs.collect::<BTreeSet<String>>() {
                let key = (gpu.clone(), pack);
                self.end_old(&key, &users);
            }
        }
    }

    /// Ends a pack's servers, but for the newest of one that has jobs, whose users alone reach it from then on.
    fn end_old(&self, key: &Key, users: impl Fn(&Key) -> Result<BTreeSet<u32>, Errno>) {
        let lock = self.lock_of(key);
        // While a server starts, or does not answer, other packs do not wait for it.
        let _held = match lock.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut generations = self.generations(key);
        match users(key) {
            Ok(users) if users.is_empty() => drop(self.starting().remove(key)),
            users => {
                let newest = generations.pop().map(|number| self.generation(key, number));
                if let (Some(newest), Ok(users)) = (newest, users) {
                    let _ = let_in(&newest, &users);
                }
            }
        }
        for number in generations {
            let folder = self.generation(key, number);
            match ask(&folder, Question::End, None) {
                Ok(Answer::Yes) => info!("{}: it is not needed any more", folder.display()),
                // It has clients.
                Ok(_) => {}
                Err(error) if is_gone(&error) => remove(&folder),
                Err(error) => warn!("{}: {error}", folder.display()),
            }
        }
    }

    fn starting(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Mutex<Option<Instant>>>>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, key: &Key) -> Arc<Mutex<Option<Instant>>> {
        Arc::clone(self.starting().entry(key.clone()).or_default())
    }

    /// A pack's server by its number.
    fn generation(&self, (gpu, pack): &Key, number: u32) -> PathBuf {
        self.folder.join(gpu).join(format!("{pack}-{number}"))
    }

    /// The numbers of a pack's servers.
    fn generations(&self, (gpu, pack): &Key) -> Vec<u32> {
        let start = format!("{pack}-");
        let names = names(&self.folder.join(gpu)).into_iter();
        let mut numbers: Vec<u32> = names
            .filter_map(|name| name.strip_prefix(&start)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    fn start(&self, folder: &Path) -> io::Result<()> {
        // Others may enter the folders of all packs, and list none.
        for parent in [&self.folder, folder.parent().unwrap_or(folder)] {
            make(parent, 0o711)?;
        }
        make(folder, 0o700)?;
        let mut command = Command::new(self.program);
        command.arg("--pack").arg(folder).stdin(Stdio::null());
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        let child = command.spawn()?;
        info!("{}: a server, by process {}", folder.display(), child.id());
        self.children().insert(folder.to_owned(), child);
        Ok(())
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees which supervisors have ended.
    fn bury(&self) {
        self.children().retain(|_, child| is_alive(child));
    }

    /// Whether the supervisor of this folder, which this daemon has started, does not live any more.
    fn has_ended(&self, folder: &Path) -> bool {
        !self.children().get_mut(folder).is_some_and(is_alive)
    }
}

/// Lets these users alone reach a server, also one who has kept a way to its socket past the folder.
fn let_in(folder: &Path, users: &BTreeSet<u32>) -> Result<(), Errno> {
    let socket = folder.join(CONTROL_SOCKET);
    let done = match let_in_at(&socket, Who::Users(users)) {
        // It is not ready.
        Ok(()) | Err(Errno::NOENT) => let_in_at(folder, Who::Visitors(users)),
        Err(error) => Err(error),
    };
    done.map_err(|error| {
        warn!("{}: {error}", folder.display());
        Errno::AGAIN
    })
}

fn is_alive(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// A process of a job in a pack.
#[derive(Clone, Debug)]
pub struct PackMember {
    packs: Arc<Packs>,
    key: Key,
    process: u32,
}

impl PackMember {
    /// That of this pack on that GPU.
    pub fn new(packs: Arc<Packs>, key: Key, process: u32) -> Self {
        Self {
            packs,
            key,
            process,
        }
    }

    /// Tells the supervisor which channels the process has; false if it does not answer. One that is no client is passed over there.
    pub fn note_channels(&self, channels: &[Channel]) -> bool {
        let told = |it: &Channel| (it.client, it.group, it.handle);
        let channels: Vec<_> = channels.iter().map(told).collect();
        let question = Question::Channels(self.process, channels);
        let heard = self.packs.ask_who_has_it(&self.key, &question, None);
        heard != Err(Errno::AGAIN)
    }

    /// Asks whether the channels of these processes of a pack, which have ended, are off the GPU. Sends the number of each, and the answer
    /// if there is one. Where it is no, that is so for all: the others are not asked for.
    pub fn ask_whether_off(members: Vec<Self>, answers: Sender<(u32, Option<bool>)>) {
        let silent: Vec<_> = members.iter().map(|it| (it.process, None)).collect();
        let of_silent = answers.clone();
        // Each time the GPU's arbiter may have ended.
        let can_ask = aside(move || {
            let mut is_off = Some(true);
            for member in members {
                if is_off == Some(true) {
                    is_off = member.say(&Question::IsOff(member.process));
                }
                let _ = answers.send((member.process, is_off));
            }
        });
        if !can_ask {
            for answer in silent {
                let _ = of_silent.send(answer);
            }
        }
    }

    /// Tells the supervisor that the kernels of these processes, which have ended, have had time to end.
    pub fn let_go(members: Vec<Self>) {
        // Whoever does not hear of it counts by itself.
        aside(move || {
            for member in members {
                let _ = member.say(&Question::LetGo(member.process));
            }
        });
    }

    /// Whether it is so everywhere; `None` if one does not answer.
    fn say(&self, question: &Question) -> Option<bool> {
        let mut is_so = true;
        for answer in self.packs.answers(&self.key, question, None) {
            is_so &= answer? != Answer::Soon;
        }
        Some(is_so)
    }
}

/// Does what nobody waits for, if there can be a thread for it.
fn aside(act: impl FnOnce() + Send + 'static) -> bool {
    let begun = thread::Builder::new().spawn(act);
    begun.inspect_err(|error| warn!("{error}")).is_ok()
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

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
