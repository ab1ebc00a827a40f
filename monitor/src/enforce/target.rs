//! A process that is to get a signal. The signal goes by a file of the process, so that none can ever reach another one.
//!
//! The order is: first the file, then what the kernel says of the number, then (by the caller) the measurement again, then the
//! signal. The kernel's answer was of the file's own process, or of one that has the number now, which began at another time. A
//! process that keeps the reader of that time waiting is ended if it is the same holder's.

use crate::enforce::observation::{Holder, ProcessId};
use crate::enforce::snapshot::is_sites_mps_server;
use crate::jobs::confs::Confs;
use crate::jobs::owner::{Membership, Owner, UNREAD, owner};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A process that may get a signal.
#[derive(Debug)]
pub struct Target {
    /// The process.
    pub id: ProcessId,
    pidfd: OwnedFd,
}

/// Why a process gets none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has ended.
    #[error("it has ended")]
    Ended,
    /// Another process has its number now.
    #[error("its number is another process's now")]
    Another,
    /// It is in another place.
    #[error("it is not where it was")]
    Moved,
    /// It is root's or the site's, or older than the limits.
    #[error("it is root's, an MPS server of the site's or older than the limits")]
    Exempt,
    /// The kernel has no such files (before Linux 5.3), or says nothing of the process.
    #[error("{0}")]
    Unknown(String),
}

impl Target {
    /// The process, if it is the holder's and may be ended: one that began before this time may not.
    pub fn take(
        proc: &Path,
        id: ProcessId,
        holder: &Holder,
        confs: &Confs,
        enforced_since: Option<u64>,
    ) -> Result<Self, Refused> {
        let number = i32::try_from(id.pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(Refused::Ended)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|error| match error {
            rustix::io::Errno::SRCH => Refused::Ended,
            error => Refused::Unknown(format!("no file of the process: {error}")),
        })?;
        let (place, uid) = match owner(proc, id.pid) {
            Owner::Process { began, .. } if began != id.began && began != UNREAD => {
                return Err(Refused::Another);
            }
            Owner::Process { uid: 0, .. } => return Err(Refused::Exempt),
            Owner::Process { place, uid, .. } => (place, uid),
            Owner::Gone => return Err(Refused::Ended),
            Owner::Unknown(why) => return Err(Refused::Unknown(why)),
        };
        if !is_of(holder, &place, uid, confs) {
            return Err(Refused::Moved);
        }
        if is_older(id.began, enforced_since) || is_sites_mps_server(proc, id.pid) {
            return Err(Refused::Exempt);
        }
        Ok(Self { id, pidfd })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(&self.pidfd, signal)
    }
}

/// Whether a process began before the node enforced limits.
pub(super) fn is_older(began: u64, enforced_since: Option<u64>) -> bool {
    enforced_since.is_some_and(|since| began <= since)
}

/// Whether a process in this place is the holder's.
pub(super) fn is_of(holder: &Holder, place: &Membership, uid: u32, confs: &Confs) -> bool {
    match (holder, place) {
        (Holder::Job(job), Membership::Job(id)) => job == id,
        (Holder::Job(job), Membership::Sluid(sluid)) => confs.sluids.get(sluid) == Some(job),
        (Holder::Sluid(job), Membership::Sluid(sluid)) => job == sluid,
        (Holder::User(user), Membership::Outside) => *user == uid,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    /// A process of a user's outside every job, where the tests run as root; else one of one's own.
    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000");
        if rustix::process::geteuid().is_root() {
            command.uid(2001).gid(2001);
        }
        command.spawn().unwrap()
    }

    fn identity(pid: u32) -> (ProcessId, Holder) {
        let proc = Path::new("/proc");
        let Owner::Process { began, uid, .. } = owner(proc, pid) else {
            panic!();
        };
        (ProcessId { pid, began }, Holder::User(uid))
    }

    fn take(id: ProcessId, holder: &Holder) -> Result<Target, Refused> {
        Target::take(Path::new("/proc"), id, holder, &Confs::default(), None)
    }

    #[test]
    fn a_process_gets_the_signal_that_is_meant_for_it() {
        let mut child = sleeper();
        let (id, holder) = identity(child.id());
        let target = take(id, &holder).unwrap();
        target.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert_eq!(take(id, &holder).unwrap_err(), Refused::Ended);
        assert!(target.signal(Signal::KILL).is_err());
    }

    #[test]
    fn a_number_that_was_given_anew_is_not_ended() {
        let mut child = sleeper();
        let (id, holder) = identity(child.id());
        let before = ProcessId {
            began: id.began - 1,
            ..id
        };
        assert_eq!(take(before, &holder).unwrap_err(), Refused::Another);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_holder_is_not_ended() {
        let mut child = sleeper();
        let (id, holder) = identity(child.id());
        for other in [
            Holder::Job(7),
            Holder::Sluid("sEKNKTV3WPV500".into()),
            Holder::User(4711),
        ] {
            assert_eq!(take(id, &other).unwrap_err(), Refused::Moved);
        }
        assert!(take(id, &holder).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn roots_processes_are_never_ended() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (id, holder) = identity(std::process::id());
        assert_eq!(take(id, &holder).unwrap_err(), Refused::Exempt);
    }

    #[test]
    fn a_set_uid_program_of_a_users_is_not_spared() {
        let mut child = sleeper();
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join(child.id().to_string());
        std::fs::create_dir(&process).unwrap();
        let stat = "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        for (name, text) in [
            ("status", "Name:\tx\nUid:\t2001\t0\t0\t0\n"),
            ("stat", stat),
            ("cgroup", "0::/\n"),
        ] {
            std::fs::write(process.join(name), text).unwrap();
        }
        let id = ProcessId {
            pid: child.id(),
            began: 4711,
        };
        let target = Target::take(
            folder.path(),
            id,
            &Holder::User(2001),
            &Confs::default(),
            None,
        );
        assert!(target.is_ok(), "{target:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_is_older_than_the_limits_is_not_ended() {
        let mut child = sleeper();
        let (id, holder) = identity(child.id());
        let take = |since| {
            let proc = Path::new("/proc");
            Target::take(proc, id, &holder, &Confs::default(), Some(since))
        };
        assert_eq!(take(id.began).unwrap_err(), Refused::Exempt);
        assert!(take(id.began - 1).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
