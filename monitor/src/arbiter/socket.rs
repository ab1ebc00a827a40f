//! The socket by which processes ask for their seats.

use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with, sockopt,
};
use softmig_region::seat::{ADMISSION, ANSWER, KEEP, PACK, PACK_ANSWER, Request};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::authorizer::Client;
use super::closer::{ClientSocket, Closer};
use super::connections::Connection;
use super::settings::Settings;
use crate::jobs::packet::{self, set_patience};
use crate::jobs::pidfd::Pidfd;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// How many clients the kernel keeps until they are accepted.
const BACKLOG: i32 = 256;

/// The socket, as long as the arbiter lives.
#[derive(Debug)]
pub(super) struct Listener {
    /// With clients that were not accepted.
    socket: ClientSocket,
    path: PathBuf,
    /// Held while this is the arbiter. The kernel lets go of it whatever the end is.
    _lock: File,
}

impl Listener {
    /// Listens at `path`, in the place of an arbiter that is no more.
    pub(super) fn bind(settings: &Settings, closer: &Arc<Closer>) -> io::Result<Self> {
        let path = settings.socket.as_path();
        let lock = lock(&beside(path, ".lock"))?;
        // Complete before it has its name: no process finds one that does not listen yet, or that not all may use.
        let new = beside(path, ".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
        if !settings.takes_descriptors {
            refuse_descriptors(&socket);
        }
        bind(&socket, &SocketAddrUnix::new(&new)?)?;
        chmod(&new, Mode::from_raw_mode(0o666))?;
        listen(&socket, BACKLOG)?;
        fs::rename(&new, path)?;
        Ok(Self {
            socket: ClientSocket::new(socket, closer),
            path: path.into(),
            _lock: lock,
        })
    }

    /// The next client, with its process and user as the kernel names them; `None` if no client waits.
    pub(super) fn accept(&self, closer: &Arc<Closer>) -> io::Result<Option<Connection>> {
        let client = match accept_with(&self.socket, FLAGS) {
            Ok(client) => ClientSocket::new(client, closer),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let who = sockopt::socket_peercred(&client)?;
        let pid = who.pid.as_raw_nonzero().get().unsigned_abs();
        let uid = who.uid.as_raw();
        Ok(Some(Connection {
            process: Pidfd::of_peer(&client, pid),
            socket: client,
            client: Client { pid, uid },
        }))
    }
}

/// `SO_PASSRIGHTS` (linux/socket.h, Linux 6.16).
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors to those who send any to this socket, or to one that it accepts. A kernel that cannot do that
/// leaves them to [`super::closer`].
fn refuse_descriptors(socket: &OwnedFd) {
    let no: libc::c_int = 0;
    // SAFETY: reads one number, which lives through the call.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of_val(&no) as libc::socklen_t,
        )
    };
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A process that comes now hears at once that no arbiter answers.
        let _ = fs::remove_file(&self.path);
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Takes the lock that tells a socket which is left over from one that is in use.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let text = format!("another arbiter runs: {} is locked", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Asks an arbiter for nothing, and waits for its answer.
pub(super) fn ask_nothing(path: &Path, patience: Duration) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_patience(&socket, patience)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    send(&socket, &[0], SendFlags::NOSIGNAL)?;
    recv(&socket, &mut [0; ANSWER][..], RecvFlags::empty())?;
    Ok(())
}

/// The question of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A seat at a GPU.
    Seat(Request),
    /// To be let through the device gate.
    Admission,
    /// To be a client of its pack's server.
    Pack(PackStep),
}

/// The two questions of a process that is in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackStep {
    /// Which server is its pack's.
    Enter,
    /// To have its files kept.
    Keep,
}

/// The question of a client; `None` for anything else than a request. The request stays on the socket (see `closer`).
pub(super) fn receive(client: &ClientSocket) -> Option<Asked> {
    // One more, to see that it is no longer.
    let mut bytes = [0; Request::SIZE + 1];
    let (length, _) = recv(client, &mut bytes[..], RecvFlags::PEEK).ok()?;
    let bytes = bytes.get(..length)?;
    if *bytes == ADMISSION {
        return Some(Asked::Admission);
    }
    for (packet, step) in [(PACK, PackStep::Enter), (KEEP, PackStep::Keep)] {
        if *bytes == packet {
            return Some(Asked::Pack(step));
        }
    }
    Some(Asked::Seat(Request::from_bytes(bytes)?))
}

/// Whether a client has taken its answer or is gone. A client that only shut its socket down has not taken it.
pub(super) fn is_taken(client: &ClientSocket) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: writes one number, to memory that lives through the call.
    let asked = unsafe { libc::ioctl(client.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    // A packet is counted by its buffer, and one is left of that while the kernel tells that it is free.
    asked != 0 || unread <= 1
}

/// Answers with the file of a page, with nothing, or with the error that left no page.
pub(super) fn answer(
    client: &ClientSocket,
    page: Result<Option<OwnedFd>, Errno>,
) -> io::Result<()> {
    let errno = page.as_ref().err().map_or(0, |error| error.raw_os_error());
    let file = page.as_ref().ok().and_then(Option::as_ref);
    packet::send(client, &errno.to_le_bytes(), file.map(AsFd::as_fd))
}

/// Answers with the folder of a pack's server.
pub(super) fn answer_folder(client: &ClientSocket, folder: &Path) -> io::Result<()> {
    let mut bytes = vec![0; ANSWER];
    bytes.extend(folder.as_os_str().as_bytes());
    bytes.resize(PACK_ANSWER, 0);
    packet::send(client, &bytes, None)
}
