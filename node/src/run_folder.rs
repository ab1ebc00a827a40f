//! The run folder, `/var/run/softmig`: a file system of its own.
//!
//! On `/run` itself a user may own files, and could fill it: the next job would then have no limits. `run-softmig.mount`
//! mounts the folder when the node starts. Without that unit, the first job's prolog mounts it.
//!
//! A folder that has anything in it stays as it is until the node starts anew, as after an update under running jobs:
//! a mount would hide their limits and the monitor's sockets, and limits that move are missing for a moment, in which a
//! job's new processes would get no GPU.

use crate::dir::{Dir, Result, name_of, parent};
use crate::lock::lock;
use rustix::mount::{MountFlags, mount};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tracing::warn;

/// The same as in `run-softmig.mount`. A job needs a page and some inodes; its own folder has its own room.
const OPTIONS: &CStr = c"mode=0755,size=16m,nr_inodes=64k";

/// In the folder above, because the lock of the run folder is in what is mounted here.
const LOCK: &str = "softmig.lock";

/// Opens the run folder, made and mounted when it is missing.
pub(crate) fn make(path: &Path, owner: u32) -> Result<Dir> {
    if let Some(above) = parent(path, owner)?
        && !is_settled(&above, name_of(path))?
        && all_would_see(&above)
    {
        mount_on(&above, path)?;
    }
    Dir::make(path, owner)
}

/// Whether something is mounted or kept there.
fn is_settled(above: &Dir, name: &str) -> Result<bool> {
    if above.has_mount(name)? {
        return Ok(true);
    }
    let folder = above.child(name)?;
    folder.map_or(Ok(false), |folder| Ok(!folder.names()?.is_empty()))
}

/// Whether all processes that see the folder also see what this process mounts there. They do not if slurmd has its own
/// mount namespace, or if the prolog runs in its job's. The monitor and sessions of users would then miss the limits of jobs.
fn all_would_see(above: &Dir) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    if let (Ok(own), Ok(first)) = (namespace("self"), namespace("1"))
        && own == first
    {
        return true;
    }
    // A container's /run is its own.
    let place = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let Ok(path) = fs::canonicalize(above.path()) else {
        return false;
    };
    let of_first = Path::new("/proc/1/root").join(path.strip_prefix("/").unwrap_or(&path));
    match (place(&path), place(&of_first)) {
        (Ok(own), Ok(first)) => own != first,
        _ => false,
    }
}

fn mount_on(above: &Dir, path: &Path) -> Result<()> {
    let name = name_of(path);
    let lock = lock(above, LOCK);
    // Two mounts would hide each other's files.
    if lock.is_none() || is_settled(above, name)? {
        return Ok(());
    }
    above.make_child(name)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(error) = mount("softmig", path, "tmpfs", flags, OPTIONS) {
        // A container, for example, may not mount.
        warn!(
            "{} is not a separate file system, so jobs get no GPU while {} is full: {}",
            path.display(),
            above.path().display(),
            io::Error::from(error)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::node::paths::RUN;

    #[test]
    fn the_unit_mounts_the_same() {
        let unit = include_str!("../../conf/run-softmig.mount");
        let options = OPTIONS.to_str().unwrap();
        for line in [
            format!("Options={options},nosuid,nodev,noexec"),
            format!("Where={}", RUN.strip_prefix("/var").unwrap()),
            "Type=tmpfs".to_string(),
        ] {
            assert!(unit.lines().any(|own| own == line), "{line}");
        }
    }
}
