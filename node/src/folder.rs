//! A job's own folder, `jobs/JOBID`: a small file system that its user may fill without harm to others.
//!
//! The files in it are the user's own, and as large as the user makes them. On a file system that jobs share
//! the next job could then have no ledger, and on `/run` itself the whole node would be full.
//!
//! The job's processes see the mount, since slurmd runs the prolog in its own mount namespace and before it makes the
//! job's (`job_container/tmpfs`, `namespace/linux`: with the extern step, which comes after the prolog; read in Slurm
//! 21.08 to 26.05, tried with 22.05 and 24.11). There is one way not to: with `PrologFlags=RunInJob`, and in Slurm
//! 20.11, the job's namespace is there before the prolog, and what is mounted then shows up in it only with
//! `Shared=true` in `job_container.conf`, which 20.11 does not know. And if slurmd has a mount namespace of its own,
//! unlike with Slurm's own unit file, steps that the next slurmd starts do not see what this one mounted. Such processes
//! find an empty folder, so no ledger, and get no GPU.
//!
//! Namespaces keep copies of the mounts that were there when they were made. Where those do not follow the epilog's
//! unmounting, its removal of the folder below still takes them away.
//!
//! The processes of a job with limits write its files while it runs: the ledger of the GPU memory that they hold, and the
//! hook's log. The ledger is there before the first of them, in its full size and with its room taken: they map it, and a
//! mapping that finds no room when it is written to ends its process. Limits are not in it.

use crate::dir::{Dir, DirError, failed, is_no_room};
use crate::job::{Job, JobId};
use crate::node::{Node, Run};
use rustix::fs::{FallocateFlags, FileType, Gid, Mode, Uid, fallocate, fchmod, fchown};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::CString;
use std::fs::File;
use std::io;
use tracing::warn;

/// The folder of all jobs' in the run folder.
const JOBS: &str = "jobs";
const LEDGER: &str = "ledger";
/// The name of a job's log.
const LOG: &str = "log";
/// The room for it. The epilog keeps less.
const LOG_ROOM: usize = 2 << 20;
/// The least size that a tmpfs can have: none at all means that it has no limit.
const PAGE: u64 = 4 << 10;
/// The folder itself, the ledger, the log, and some for newer versions. The job's user can make none.
const FILES: usize = 16;

const FLAGS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// More mounts above each other than prologs without a lock could leave.
const MOST_MOUNTS: usize = 16;

/// Makes the job's folder, a ledger of this size in it unless that is 0, and the log, each where it is missing. `line` is
/// added to the log.
///
/// The ledger must be there: without it the hook gives the job no GPU. A job runs as well without a log, so trouble
/// with that is logged and no more.
pub(crate) fn make(
    run: &Run,
    job: &Job,
    ledger: usize,
    line: Option<&str>,
) -> Result<(), DirError> {
    let folder = mounted(run, job.id, ledger)?;
    if ledger > 0 {
        make_file(&folder, job, LEDGER, (job.gid, 0o600), ledger)?;
    }
    // Root's group writes there too: the monitor, which may not write to other users' files.
    let group = match folder.owner() {
        0 => 0,
        _ => job.gid,
    };
    let log = make_file(&folder, job, LOG, (group, 0o620), 0)
        .and_then(|()| line.map_or(Ok(()), |line| folder.append(LOG, line.as_bytes())));
    if let Err(error) = log {
        warn!(job = job.id.get(), "job={} has no log: {error}", job.id);
    }
    Ok(())
}

/// Makes a file of the job's user's, by rename, so that one that is there is complete.
///
/// One that the job has already is kept, since changes by its user harm that user alone. If it were replaced, new processes
/// would not know what those hold that have the old one mapped.
fn make_file(
    folder: &Dir,
    job: &Job,
    name: &str,
    (group, mode): (u32, u32),
    size: usize,
) -> Result<(), DirError> {
    if let Some(stat) = folder.stat_of(name)? {
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if plain && stat.st_uid == job.uid {
            return Ok(());
        }
        folder.remove(name)?;
    }
    let new = format!(".{name}.new");
    let path = folder.path().join(&new);
    folder.remove(&new)?;
    let file = folder.create(&new, 0o600, b"")?;
    if size > 0 {
        fallocate(&file, FallocateFlags::empty(), 0, size as u64)
            .map_err(failed("taking room for", path.clone()))?;
    }
    let owner = (Some(Uid::from_raw(job.uid)), Some(Gid::from_raw(group)));
    fchown(&file, owner.0, owner.1)
        .and_then(|()| fchmod(&file, Mode::from_raw_mode(mode)))
        .map_err(failed("giving away", path))?;
    folder.rename(&new, name)
}

/// Opens a job's ledger for reading; `None` where there is none.
///
/// # Errors
/// What is there is no plain file of root's folder, or cannot be opened.
pub fn ledger(node: &Node, job: u32) -> Result<Option<File>, DirError> {
    let run = Dir::open(&node.run, node.owner)?;
    let jobs = run.map(|run| run.child(JOBS)).transpose()?.flatten();
    let own = jobs.map(|jobs| jobs.child(&job.to_string()));
    let own = own.transpose()?.flatten();
    Ok(own.map(|own| own.open_file(LEDGER)).transpose()?.flatten())
}

/// The job's folder, made and mounted where it is not yet, with room for a ledger of this size.
fn mounted(run: &Run, id: JobId, ledger: usize) -> Result<Dir, DirError> {
    // Where an older version mounted one file system for all jobs, it stays; the job's own goes on top.
    let jobs = run.dir.make_child(JOBS)?;
    let name = id.to_string();
    let folder = jobs.make_child(&name)?;
    // One that is in use was made where mounting is not possible, or by an older version: a mount now would hide what
    // is in it from processes that start from now on, and they would have another ledger.
    if !run.mounts || jobs.has_mount(&name)? || !folder.names()?.is_empty() {
        return Ok(folder);
    }
    let size = ledger.saturating_add(LOG_ROOM);
    let options = CString::new(format!("mode=0755,size={size},nr_inodes={FILES}")).ok();
    if let Err(error) = mount("softmig", folder.path(), "tmpfs", FLAGS, options.as_deref()) {
        let error = io::Error::from(error);
        // A plain folder takes the room of all jobs.
        if is_no_room(&error) {
            return Err(failed("mounting a tmpfs on", folder.path().into())(error));
        }
        let path = folder.path().display();
        // In a container that may not mount. The limits still hold, and no job's user can bring it about.
        warn!("{path} stays a plain folder: mounting a tmpfs there: {error}");
        return Ok(folder);
    }
    jobs.make_child(&name)
}

/// Removes the job's folder with all that is in it; `false` when there was none.
pub(crate) fn remove(run: &Run, id: JobId) -> Result<bool, DirError> {
    let Some(jobs) = run.dir.child(JOBS)? else {
        return Ok(false);
    };
    let name = id.to_string();
    let unmounted = take_off(&jobs, &name);
    // Also where something stays mounted: what is in it is over.
    let removed = jobs.remove(&name);
    unmounted.and(removed)
}

/// Unmounts what is mounted there. A process keeps the files of it that it has open, but no more than the ledger's room.
fn take_off(jobs: &Dir, name: &str) -> Result<(), DirError> {
    let path = jobs.path().join(name);
    for _ in 0..MOST_MOUNTS {
        if !jobs.has_mount(name)? {
            break;
        }
        if let Err(error) = empty(jobs, name) {
            warn!(
                "{}: a process may keep more of it than the ledger: {error}",
                path.display()
            );
        }
        unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(failed("unmounting", path.clone()))?;
    }
    Ok(())
}

/// Takes away the log's room, for processes that have it open, and lets none grow anew: no job's limit counts it when the
/// job has ended.
///
/// The ledger stays as it is. A session of the user's outside of jobs has it mapped, or a process in another job's
/// container: without its pages, such a process would end.
fn empty(jobs: &Dir, name: &str) -> Result<(), DirError> {
    let Some(folder) = jobs.child(name)? else {
        return Ok(());
    };
    // A process that has a lease on the log can keep it from being opened. Even then the log cannot grow.
    let emptied = folder.truncate(LOG);
    let size = folder.taken()?.max(PAGE);
    let options = CString::new(format!("size={size}")).unwrap_or_default();
    mount_remount(folder.path(), FLAGS, &options)
        .map_err(failed("making smaller", folder.path().into()))?;
    emptied
}
