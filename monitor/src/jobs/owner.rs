//! Whose process is this? Told from outside, by what the kernel says of it in `/proc`.
//!
//! No text in the process's own memory is read: a process can make the pages of its command line and its environment
//! come so slowly that a reader never ends.

use crate::jobs::patience::within_a_moment;
use crate::jobs::pidfd::state_and_beginning;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use softmig_policy::node::cgroup::{self, JobName};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Both files are far smaller, also with hierarchies of version 1.
const LONGEST: u64 = 64 << 10;

/// The owner of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is there.
    Process {
        /// Its real user.
        uid: u32,
        /// Its own name for itself, in plain characters.
        name: String,
        /// Its job.
        place: Membership,
        /// When it began, in clock ticks since the machine's start: no two processes have the same number and this. [`UNREAD`] where
        /// that was not to be read.
        began: u64,
    },
    /// It has ended, or is in a namespace of process numbers that is not this one.
    Gone,
    /// It cannot be looked at.
    Unknown(String),
}

/// The beginning of a process that is executing another program and keeps its readers waiting: as if it had just begun.
pub const UNREAD: u64 = u64::MAX;

/// Where a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// In this job.
    Job(u32),
    /// In the job with this SLUID.
    Sluid(String),
    /// In none, or in two at once.
    Outside,
}

/// Looks at a process of the `/proc` at `folder`. Takes no longer than its user's processes may take together
/// ([`within_a_moment`]).
pub fn owner(folder: &Path, pid: u32) -> Owner {
    let owner = look(folder, pid).and_then(|(process, found)| {
        let began = within_a_moment(found.uid, pid, move || read(&process, "stat"));
        let began = match began.transpose()? {
            Some(stat) => state_and_beginning(&stat)
                .map(|(_, began)| began)
                .ok_or("its stat has no time"),
            None => Ok(UNREAD),
        };
        Ok(Owner::Process {
            uid: found.uid,
            name: found.name,
            place: found.place,
            began: began.map_err(std::io::Error::other)?,
        })
    });
    owner.unwrap_or_else(
        |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::SRCH) => Owner::Gone,
            _ => Owner::Unknown(error.to_string()),
        },
    )
}

/// The real user of a process, and where it is. No user makes it wait.
///
/// # Errors
/// The system's: `ENOENT` or `ESRCH` if it has ended.
pub fn user_and_place(folder: &Path, pid: u32) -> std::io::Result<(u32, Membership)> {
    let (_, found) = look(folder, pid)?;
    Ok((found.uid, found.place))
}

/// The real user of a process of this machine's; root for one that has ended. No user makes it wait.
pub fn user_of(pid: u32) -> u32 {
    user_and_place(Path::new("/proc"), pid).map_or(0, |(user, _)| user)
}

/// What is told of a process without waiting for it.
struct Found {
    uid: u32,
    name: String,
    place: Membership,
}

fn look(folder: &Path, pid: u32) -> std::io::Result<(OwnedFd, Found)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // All files through one folder: that stays the same process's when its number is given to another.
    let process = openat(CWD, folder.join(pid.to_string()), flags, Mode::empty())?;
    let status = read(&process, "status")?;
    let list = match has_ended(&status) {
        true => groups_of_a_thread(&process)?,
        false => None,
    };
    let list = match list {
        Some(list) => list,
        None => read(&process, "cgroup")?,
    };
    let named = user_and_name(&status);
    let (uid, name) = named.ok_or_else(|| std::io::Error::other("its status names no user"))?;
    let place = match cgroup::place(&list) {
        cgroup::Membership::Job(JobName::Id(id)) => Membership::Job(id.get()),
        cgroup::Membership::Job(JobName::Sluid(sluid)) => Membership::Sluid(sluid.into()),
        cgroup::Membership::Outside | cgroup::Membership::Unclear => Membership::Outside,
    };
    Ok((process, Found { uid, name, place }))
}

/// The control groups of a process whose first thread has ended, by another thread: with hierarchies of version 1 the kernel
/// says of the first one that it is in none. `None` if all have ended.
fn groups_of_a_thread(process: &impl AsFd) -> std::io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = openat(process, "task", flags, Mode::empty())?;
    // Of threads that have ended the kernel lists the first one alone, and it may list one that ends just now.
    for entry in Dir::read_from(&threads)?.take(8) {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let status = read(&threads, &format!("{name}/status"));
        let is_alive = status.is_ok_and(|status| !has_ended(&status));
        if let Some(list) = is_alive
            .then(|| read(&threads, &format!("{name}/cgroup")).ok())
            .flatten()
        {
            return Ok(Some(list));
        }
    }
    Ok(None)
}

fn read(process: &impl AsFd, name: &str) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(process, name, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A line of `/proc/PID/status`.
pub(crate) fn status_line(status: &[u8], key: &str) -> Option<String> {
    let line = |line: &[u8]| Some(line.strip_prefix(key.as_bytes())?.trim_ascii().to_vec());
    let found = status.split(|&byte| byte == b'\n').find_map(line)?;
    Some(String::from_utf8_lossy(&found).into_owned())
}

/// Whether a thread has ended, by its status.
fn has_ended(status: &[u8]) -> bool {
    status_line(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn user_and_name(status: &[u8]) -> Option<(u32, String)> {
    let uids = status_line(status, "Uid:")?;
    let uid = uids.split_whitespace().next()?.parse().ok()?;
    Some((
        uid,
        plain(&status_line(status, "Name:").unwrap_or_default()),
    ))
}

/// A process chooses its name. In a terminal or a log the name must have no other effect than to be shown.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(status: &str, cgroup: &str) -> Owner {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("7");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("status"), status).unwrap();
        std::fs::write(process.join("cgroup"), cgroup).unwrap();
        std::fs::write(process.join("stat"), STAT).unwrap();
        owner(folder.path(), 7)
    }

    const STAT: &str = "7 (py) R 3) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
    /// A set-uid program of root's, which a user runs: it is the user's.
    const STATUS: &str = "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t7\nUid:\t2001\t0\t0\t0\nGid:\t5\t5\t5\t5\n";

    #[test]
    fn a_process_is_its_jobs_by_the_kernels_word() {
        let whose = |cgroup: &str| match process(STATUS, cgroup) {
            Owner::Process {
                uid: 2001,
                name,
                place,
                began: 4711,
            } if name == "python3" => place,
            other => panic!("{other:?}"),
        };
        for (cgroup, place) in [
            (
                "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
                Membership::Job(12),
            ),
            (
                "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n",
                Membership::Sluid("sEKNKTV3WPV500".into()),
            ),
            (
                "4:devices:/slurm/uid_2001/job_12/step_0/task_0\n",
                Membership::Job(12),
            ),
            // A user's own folder, a container of root's, two jobs at once.
            (
                "0::/user.slice/user-2001.slice/session-3.scope/job_9\n",
                Membership::Outside,
            ),
            (
                "0::/docker/4f/system.slice/slurmstepd.scope/job_9\n",
                Membership::Outside,
            ),
            (
                "4:devices:/slurm/uid_1/job_1/step_0\n3:memory:/slurm/uid_1/job_2/step_0\n",
                Membership::Outside,
            ),
        ] {
            assert_eq!(whose(cgroup), place, "{cgroup}");
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_stays_its_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join("7").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let dead = STATUS.replace("S (sleeping)", "Z (zombie)");
        let (none, job) = (
            "4:devices:/\n",
            "4:devices:/slurm/uid_2001/job_12/step_0/task_0\n",
        );
        write("status", &dead);
        write("stat", STAT);
        write("cgroup", none);
        write("task/7/status", &dead);
        write("task/7/cgroup", none);
        let place = || match owner(folder.path(), 7) {
            Owner::Process { place, .. } => place,
            other => panic!("{other:?}"),
        };
        assert_eq!(place(), Membership::Outside);
        write("task/8/status", STATUS);
        write("task/8/cgroup", job);
        assert_eq!(place(), Membership::Job(12));
    }

    #[test]
    fn a_process_that_keeps_its_readers_waiting_is_known_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("7");
        std::fs::create_dir(&process).unwrap();
        let status = STATUS.replace("2001\t0\t0\t0", "2777\t0\t0\t0");
        std::fs::write(process.join("status"), status).unwrap();
        std::fs::write(
            process.join("cgroup"),
            "4:devices:/slurm/uid_2777/job_12/step_0\n",
        )
        .unwrap();
        // Who opens it waits until somebody writes.
        let stat = process.join("stat");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &stat, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for _ in 0..100 {
            let Owner::Process {
                uid, place, began, ..
            } = owner(folder.path(), 7)
            else {
                panic!();
            };
            assert_eq!((uid, place, began), (2777, Membership::Job(12), UNREAD));
        }
        let found = user_and_place(folder.path(), 7).unwrap();
        assert_eq!(found, (2777, Membership::Job(12)));
        let _writer = File::options().write(true).open(&stat).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_is_gone() {
        assert_eq!(owner(Path::new("/proc"), u32::MAX), Owner::Gone);
        assert_eq!(owner(Path::new("/nonexistent"), 1), Owner::Gone);
    }

    #[test]
    fn the_own_process_is_seen() {
        let Owner::Process { uid, .. } = owner(Path::new("/proc"), std::process::id()) else {
            panic!();
        };
        assert_eq!(uid, rustix::process::getuid().as_raw());
    }

    #[test]
    fn a_status_without_a_user_is_no_reason_to_fail() {
        for status in ["", "Name:\tx\n", "Uid:\n", "Uid:\t-1\t0\n"] {
            assert!(
                matches!(process(status, "0::/\n"), Owner::Unknown(_)),
                "{status}"
            );
        }
    }

    #[test]
    fn a_name_does_nothing_to_a_terminal() {
        let status = STATUS.replace("python3", "a\x1b[31m b\u{202e}");
        let Owner::Process { name, .. } = process(&status, "0::/\n") else {
            panic!();
        };
        assert_eq!(name, "a?[31m?b?");
    }
}
