//! Asks the driver through a process's own open file of it.
//!
//! To borrow a file is to have it open too, and to close it may take as long as its owner likes, whom no signal hurries: a file system
//! of a user's own can have a file of the driver's name. So a process of its own does it, one for each user, which has nothing else
//! open. One that does not answer is ended, and until it has gone that user's processes are not steered. Nobody waits for its end, not
//! even the next daemon.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use serde::{Deserialize, Serialize};
use softmig_rm::{ErrorKind, Group, set_time_slice, time_slice};
use tracing::warn;

use super::settings::OWN_PROGRAM;
use crate::jobs::packet::{self, set_patience};

/// How long an answer may take. The driver takes some microseconds, and longer while it is busy.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest question, with as many groups as a seat has channels.
const LONGEST: usize = 128 << 10;

/// What is to be asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// The process's number.
    pub(super) pid: u32,
    /// Descriptor, client and handle of each group.
    pub(super) groups: Vec<(i32, u32, u32)>,
    /// The time slice that they are to have, in microseconds; 0 for the one that they have.
    pub(super) slice: u64,
}

/// What the driver said.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The groups that are the process's own.
    pub(super) own: BTreeSet<(i32, u32, u32)>,
    /// Whether one of them has another time slice, since it could not be set.
    pub(super) is_unset: bool,
    /// Whether one was given another than it had.
    pub(super) is_new: bool,
    /// Whether an answer was an error that passes.
    pub(super) is_busy: bool,
    /// Why the last group is not its own of those that are not.
    pub(super) refusal: Option<String>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It may be asked again.
    Passing,
    /// A process of the user's keeps it.
    Kept,
}

/// Borrows files of a user's processes.
#[derive(Debug)]
pub(super) struct Borrower {
    helper: Mutex<State>,
    /// It is not busy any more.
    freed: Condvar,
    program: &'static str,
}

#[derive(Debug)]
enum State {
    Free(Option<Helper>),
    Busy,
    /// It did not answer, and was ended.
    Kept(Child),
}

#[derive(Debug)]
struct Helper {
    process: Child,
    socket: OwnedFd,
}

/// Those that are to end, or have, until that is seen.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

impl Default for Borrower {
    fn default() -> Self {
        Self::of(OWN_PROGRAM)
    }
}

impl Borrower {
    /// One that has this program's process with the option `--borrow` borrow.
    fn of(program: &'static str) -> Self {
        Self {
            helper: Mutex::new(State::Free(None)),
            freed: Condvar::new(),
            program,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks through the files of `process`.
    pub(super) fn ask(&self, process: &OwnedFd, question: &Question) -> Result<Answer, NoAnswer> {
        // The tests' own program is not the daemon's.
        #[cfg(test)]
        if self.program == OWN_PROGRAM {
            return Ok(ask_driver(process.as_fd(), question));
        }
        let helper = self.take()?;
        let mut helper = match helper.map_or_else(|| Helper::start(self.program), Ok) {
            Ok(helper) => helper,
            Err(error) => {
                warn!("the driver is not asked for channels: {error}");
                self.put(State::Free(None));
                return Err(NoAnswer::Passing);
            }
        };
        let error = match helper.ask(process, question) {
            Ok(answer) => {
                self.put(State::Free(Some(helper)));
                return Ok(answer);
            }
            Err(error) => error,
        };
        let _ = helper.process.kill();
        self.put(State::Kept(helper.process));
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(NoAnswer::Passing);
        }
        warn!(
            "process {} keeps a file waiting that asks the driver for its channels: no process of its user's is steered until that ends",
            question.pid
        );
        Err(NoAnswer::Kept)
    }

    /// Ends what [`Borrower::take`] began.
    fn put(&self, state: State) {
        *self.state() = state;
        self.freed.notify_one();
    }

    /// The helper, if there is one, and nobody else has it.
    fn take(&self) -> Result<Option<Helper>, NoAnswer> {
        let is_busy = |state: &mut State| matches!(state, State::Busy);
        let waited = self
            .freed
            .wait_timeout_while(self.state(), PATIENCE, is_busy);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if let State::Kept(process) = &mut *state {
            if matches!(process.try_wait(), Ok(None)) {
                return Err(NoAnswer::Kept);
            }
            *state = State::Free(None);
        }
        match std::mem::replace(&mut *state, State::Busy) {
            State::Free(helper) => Ok(helper),
            State::Busy | State::Kept(_) => Err(NoAnswer::Passing),
        }
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        // Without its socket it ends.
        let left = match std::mem::replace(&mut *self.state(), State::Busy) {
            State::Free(helper) => helper.map(|it| it.process),
            State::Kept(process) => Some(process),
            State::Busy => None,
        };
        bury(left);
    }
}

/// Sees which have ended of those that are to, and keeps the others, with one more.
fn bury(more: Option<Child>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
    left.extend(more);
}

impl Helper {
    fn start(program: &str) -> io::Result<Self> {
        bury(None);
        let flags = SocketFlags::CLOEXEC;
        let (socket, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_patience(&socket, PATIENCE)?;
        let mut command = Command::new(program);
        command.arg("--borrow").env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::from(its)).stdout(Stdio::null());
        Ok(Self {
            process: command.spawn()?,
            socket,
        })
    }

    fn ask(&self, process: &OwnedFd, question: &Question) -> io::Result<Answer> {
        let text = serde_json::to_vec(question)?;
        packet::send(&self.socket, &text, Some(process.as_fd()))?;
        let mut answer = vec![0; LONGEST];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        Ok(serde_json::from_slice(&answer[..length])?)
    }
}

/// Borrows for the daemon, which is at the other end of standard input, until that goes.
///
/// # Errors
/// The system's.
pub fn borrow() -> io::Result<()> {
    softmig_proof::keep_rights_to_borrow()?;
    let socket = io::stdin();
    let mut text = vec![0; LONGEST];
    loop {
        let (question, process) = packet::receive(&socket, &mut text)?;
        if question.is_empty() {
            return Ok(());
        }
        let process = process.ok_or(io::ErrorKind::InvalidData)?;
        let answer = ask_driver(process.as_fd(), &serde_json::from_slice(question)?);
        send(&socket, &serde_json::to_vec(&answer)?, SendFlags::NOSIGNAL)?;
    }
}

/// Finds out which groups are the process's own: those for which the driver answers through its own file.
pub(super) fn ask_driver(process: BorrowedFd<'_>, question: &Question) -> Answer {
    let (pid, slice) = (question.pid, question.slice);
    let mut answer = Answer::default();
    for &(file, client, handle) in &question.groups {
        let group = Group {
            file,
            client,
            handle,
        };
        match time_slice(process, pid, group) {
            Ok(has) => {
                answer.own.insert((file, client, handle));
                if slice != 0 && slice != has {
                    answer.is_unset |= set_time_slice(process, pid, group, slice).is_err();
                    answer.is_new = true;
                }
            }
            Err(error) => {
                answer.is_busy |= error.kind() == ErrorKind::Passing;
                answer.refusal = Some(error.to_string());
            }
        }
    }
    answer
}

#[cfg(test)]
#[path = "borrower_tests.rs"]
mod tests;
