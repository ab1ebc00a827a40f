//! How one learns that a process has ended.

#![expect(unsafe_code, reason = "asks a socket for the process at its other end")]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD` (linux/socket.h, Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// How one learns of a process's death.
#[derive(Debug)]
pub(crate) enum Pidfd {
    /// Readable when it has ended.
    Told(OwnedFd),
    /// When it began: another process with its number began at another time.
    Seen(u64),
}

impl Pidfd {
    /// That of the process which has this number now.
    pub(crate) fn open(pid: u32) -> Result<Self, Errno> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty()) {
            Ok(file) => Ok(Self::Told(file)),
            Err(Errno::NOSYS | Errno::PERM) => start_time(pid).map(Self::Seen).ok_or(Errno::SRCH),
            Err(error) => Err(error),
        }
    }

    /// That of the process which made the other end of this socket, and has this number if it lives.
    ///
    /// An older kernel tells its number alone: the process may have ended by now, and the number may be another's.
    pub(crate) fn of_peer(socket: &impl AsFd, pid: u32) -> Result<Self, Errno> {
        let mut file: libc::c_int = -1;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel writes a descriptor of that size, which lives through the call.
        let got = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                (&raw mut file).cast(),
                &raw mut size,
            )
        };
        if got == 0 {
            // SAFETY: the kernel has written a new descriptor, which is ours.
            return Ok(Self::Told(unsafe { OwnedFd::from_raw_fd(file) }));
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::NOPROTOOPT) => Self::open(pid),
            error => Err(error.unwrap_or(Errno::SRCH)),
        }
    }

    /// The file that becomes readable then; `None` where one has to look.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        match self {
            Self::Told(file) => Some(file),
            Self::Seen(_) => None,
        }
    }

    /// Whether the process, whose number this was, has ended.
    pub(crate) fn has_ended(&self, pid: u32) -> bool {
        match self {
            Self::Told(file) => has_ended(file),
            Self::Seen(began) => start_time(pid) != Some(*began),
        }
    }
}

/// Whether the process of this file has ended.
pub(crate) fn has_ended(process: &impl AsFd) -> bool {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ended, Some(&Timespec::default())) != Ok(0)
}

/// When a process began, as `/proc/PID/stat` counts it; `None` when it has ended.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (state, began) = state_and_beginning(&stat)?;
    (!matches!(state, 'Z' | 'X')).then_some(began)
}

/// The state of a process's first thread by `/proc/PID/stat`, and the process's start, in clock ticks since the machine's start.
pub(crate) fn state_and_beginning(stat: &[u8]) -> Option<(char, u64)> {
    let stat = String::from_utf8_lossy(stat);
    // Its name is the second field, may have anything in it, and is in parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let began = rest.split(' ').nth(19)?.parse().ok()?;
    Some((rest.chars().next()?, began))
}
