//! What the daemon asks a pack's supervisor, and is told.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::jobs::packet::{self, set_patience};

/// The supervisor's socket in the pack's folder. Only root may use it.
pub(super) const SOCKET: &str = "supervisor";
/// How long an answer may take. To take a process's files takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where the question is understood without an answer, and who asks has more to do.
const PATIENCE_BY_THE_WAY: Duration = Duration::from_millis(100);
/// The longest question and answer.
const LONGEST: usize = 64 << 10;

/// A question to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// Whether a process may become a client.
    Enter(u32),
    /// To keep the files of a client, which is of this job, or for 0 of none. The process's pidfd comes along.
    Keep(u32, u32),
    /// A client's channels, each by the driver's client, its group and its handle: these are all that it has.
    Channels(u32, Vec<(u32, u32, u32)>),
    /// Whether this client has ended, and its channels are off the GPU.
    IsOff(u32),
    /// To close the files of this client: its kernels have had time to end.
    LetGo(u32),
    /// To end with the server, if nobody has entered.
    End,
}

/// A supervisor's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is so, or done.
    Yes,
    /// The server has as many clients as it may.
    Full,
    /// It will have a place for this one when it is done with those that have ended.
    Filled,
    /// The server is not there yet, or it is to be asked again.
    Soon,
    /// A client had a fault on the GPU, by which all others end: there must be another server.
    Faulted,
    /// The process does not have the driver's files, or has ended, or is no client here.
    NoFiles,
}

/// Asks the supervisor of the pack in this folder.
pub(super) fn ask(
    folder: &Path,
    question: Question,
    process: Option<BorrowedFd<'_>>,
) -> io::Result<Answer> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
    let patience = match question {
        Question::Channels(..) | Question::LetGo(_) => PATIENCE_BY_THE_WAY,
        _ => PATIENCE,
    };
    set_patience(&socket, patience)?;
    connect(&socket, &SocketAddrUnix::new(folder.join(SOCKET))?)?;
    packet::send(&socket, &serde_json::to_vec(&question)?, process)?;
    let mut answer = vec![0; LONGEST];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(serde_json::from_slice(
        answer.get(..length).unwrap_or_default(),
    )?)
}

/// Takes the question that waits at a connection.
pub(super) fn receive(socket: impl AsFd) -> io::Result<(Question, Option<OwnedFd>)> {
    let mut text = vec![0; LONGEST];
    let (question, process) = packet::receive(socket, &mut text)?;
    Ok((serde_json::from_slice(question)?, process))
}

/// Answers there.
pub(super) fn answer(socket: impl AsFd, answer: Answer) -> io::Result<()> {
    let text = serde_json::to_vec(&answer)?;
    match send(socket, &text, SendFlags::NOSIGNAL) {
        // Who asked has gone.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
