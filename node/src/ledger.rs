//! The files that the processes of a job with limits write while it runs: the ledger of the GPU memory that they hold,
//! and the hook's log.
//!
//! The ledger is there before the first of them, in its full size and with its room taken: they map it, and a mapping
//! that finds no room when it is written to ends its process. Limits are not in it.

use crate::dir::{Dir, DirError, failed};
use crate::folder::{self, LOG};
use crate::job::Job;
use crate::node::Run;
use rustix::fs::{FallocateFlags, FileType, Gid, Mode, Uid, fallocate, fchmod, fchown};
use std::fs::File;
use std::path::PathBuf;
use tracing::warn;

const LEDGER: &str = "ledger";
/// The ledger before it is complete.
const NEW: &str = ".ledger.new";

/// Makes the ledger and the log if they are missing, for a job with `gpus` GPUs here.
///
/// The ledger must be there: without it the hook gives the job no GPU. A job runs as well without a log, so trouble
/// with that is logged and no more.
pub(crate) fn make(run: &Run, job: &Job, gpus: usize) -> Result<(), DirError> {
    let size = softmig_region::size(gpus);
    let folder = folder::make(run, job.id, size)?;
    if !is_there(&folder, LEDGER, job)? {
        make_ledger(&folder, job, size)?;
    }
    if let Err(error) = make_log(&folder, job) {
        warn!(job = job.id.get(), "job={} has no log: {error}", job.id);
    }
    Ok(())
}

/// Whether the job has this file already. It is then kept, since changes by its user harm that user alone. If it were
/// replaced, new processes would not know what those hold that have the old one mapped.
fn is_there(folder: &Dir, name: &str, job: &Job) -> Result<bool, DirError> {
    let Some(stat) = folder.stat_of(name)? else {
        return Ok(false);
    };
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if plain && stat.st_uid == job.uid {
        return Ok(true);
    }
    folder.remove(name)?;
    Ok(false)
}

/// By rename, so that a ledger that is there is complete.
fn make_ledger(folder: &Dir, job: &Job, size: usize) -> Result<(), DirError> {
    folder.remove(NEW)?;
    let path = folder.path().join(NEW);
    let ledger = folder.create(NEW, 0o600, b"")?;
    fallocate(&ledger, FallocateFlags::empty(), 0, size as u64)
        .map_err(failed("taking room for", path.clone()))?;
    give(&ledger, (job.uid, job.gid), 0o600, path)?;
    folder.rename(NEW, LEDGER)
}

/// Writes a line into the log of a job, which the job's user can read.
pub(crate) fn say(run: &Run, job: &Job, line: &str) -> Result<(), DirError> {
    let folder = folder::make(run, job.id, 0)?;
    make_log(&folder, job)?;
    folder.append(
        LOG,
        format!("softmig-prolog: job {}: {line}\n", job.id).as_bytes(),
    )
}

fn make_log(folder: &Dir, job: &Job) -> Result<(), DirError> {
    if is_there(folder, LOG, job)? {
        return Ok(());
    }
    let log = folder.create(LOG, 0o600, b"")?;
    // Root's group writes there too: the monitor, which may not write to other users' files.
    let group = match folder.owner() {
        0 => 0,
        _ => job.gid,
    };
    give(&log, (job.uid, group), 0o620, folder.path().join(LOG))
}

/// Makes a file the job's own.
fn give(file: &File, (uid, gid): (u32, u32), mode: u32, path: PathBuf) -> Result<(), DirError> {
    fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .and_then(|()| fchmod(file, Mode::from_raw_mode(mode)))
        .map_err(failed("giving away", path))
}
