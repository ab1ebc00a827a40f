//! A job's ledger: the folder that the job itself may write into, on a file system that only jobs can fill.

use crate::dir::{Dir, DirError};
use crate::job::Job;
use crate::node::Run;
use rustix::fs::{FileType, Gid, Mode, Uid, fchmod, fchown};
use rustix::mount::{MountFlags, mount};
use std::io;
use tracing::warn;

/// What all jobs of a node can write together: 64 MiB in 16384 files and folders. Even when it is full there is room
/// for the next job's folder, which takes an inode and no block.
const TMPFS: &std::ffi::CStr = c"mode=0755,size=64m,nr_inodes=16384";

/// Makes the job's folder and its log. A job runs as well without one, so trouble is logged and no more.
pub fn make(run: &Run, job: &Job) {
    if let Err(error) = try_make(run, job) {
        warn!(job = job.id.get(), "job={} has no log: {error}", job.id);
    }
}

fn try_make(run: &Run, job: &Job) -> Result<(), DirError> {
    let folder = jobs(run)?.make_child(&job.id.to_string())?;
    if let Some(stat) = folder.stat_of("log")? {
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if plain && stat.st_uid == job.uid {
            return Ok(());
        }
        folder.remove("log")?;
    }
    let log = folder.create("log", 0o600, b"")?;
    let given = fchown(
        &log,
        Some(Uid::from_raw(job.uid)),
        Some(Gid::from_raw(job.gid)),
    )
    .and_then(|()| fchmod(&log, Mode::from_raw_mode(0o600)));
    given.map_err(|error| DirError::Failed {
        doing: "giving away",
        path: folder.path().join("log"),
        error: error.into(),
    })
}

/// The folder of all ledgers, mounted when it is not yet.
fn jobs(run: &Run) -> Result<Dir, DirError> {
    let jobs = run.dir.make_child("jobs")?;
    let mounted = jobs.stat()?.st_dev != run.dir.stat()?.st_dev;
    // One that is in use was made where mounting is not possible; a mount now would hide what is in it.
    if mounted || !run.mounts || !jobs.names()?.is_empty() {
        return Ok(jobs);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(error) = mount("softmig", jobs.path(), "tmpfs", flags, TMPFS) {
        let path = jobs.path().display();
        warn!(
            "{path} stays a plain folder: mounting a tmpfs there: {}",
            io::Error::from(error)
        );
        return Ok(jobs);
    }
    run.dir.make_child("jobs")
}
