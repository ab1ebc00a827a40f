//! The files of a gate, in a folder of a bpf file system.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use crate::error::{GateError, failed};
use crate::program::NAME;
use crate::sys::{self, FORGETFUL, HASH, Map, Shape};

/// Where the files are.
pub const FOLDER: &str = "/sys/fs/bpf/softmig";

pub(crate) const JOBS: &str = "jobs";
pub(crate) const ADMITTED: &str = "admitted";
pub(crate) const ASKED: &str = "asked";
pub(crate) const REFUSED: &str = "refused";
pub(crate) const LINK: &str = "link";

/// How long a refusal's key is: a job's name and a user.
pub(crate) const REFUSAL: usize = NAME + 8;

const fn shape(kind: u32, key: u32, value: u32, entries: u32) -> Shape {
    Shape {
        kind,
        key,
        value,
        entries,
    }
}

pub(crate) const SHAPE_OF_JOBS: Shape = shape(HASH, NAME as u32, 8, 16_384);
pub(crate) const SHAPE_OF_ADMITTED: Shape = shape(HASH, 24, 8, 65_536);
pub(crate) const SHAPE_OF_ASKED: Shape = shape(FORGETFUL, 4, 16, 16_384);
pub(crate) const SHAPE_OF_REFUSED: Shape = shape(FORGETFUL, REFUSAL as u32, 8, 1024);

/// Whether there is a gate. Only root is told.
#[must_use]
pub fn is_set_up(folder: &Path) -> bool {
    folder.join(LINK).exists()
}

/// Takes the gate away; `false` if there was none.
pub fn remove(folder: &Path) -> io::Result<bool> {
    // First what attaches the program.
    match fs::remove_file(folder.join(LINK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir_all(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The table of jobs. Those that are in one of another version stay: they run.
pub(crate) fn jobs(folder: &Path) -> Result<Map, GateError> {
    let older = Map::any(&folder.join(JOBS))
        .ok()
        .filter(|older| !older.is(SHAPE_OF_JOBS));
    let jobs = map(folder, JOBS, SHAPE_OF_JOBS)?;
    for name in older.iter().flat_map(Map::keys::<NAME>).flatten() {
        let added = jobs.put(&name, IS_CLOSED);
        added.map_err(failed("adding a job to the gate's table"))?;
    }
    Ok(jobs)
}

/// The value of a job.
pub(crate) const IS_CLOSED: &[u8] = &1u64.to_ne_bytes();

/// The map of this name. It is made if it is missing or of another version.
pub(crate) fn map(folder: &Path, name: &str, shape: Shape) -> Result<Map, GateError> {
    let path = folder.join(name);
    match Map::pinned(&path, shape) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            fs::remove_file(&path).map_err(failed("removing an older table"))?;
        }
        pinned => return pinned.map_err(failed("opening a table")),
    }
    let map = Map::new(shape).map_err(failed("making a table"))?;
    sys::pin(&map, &path).map_err(failed("keeping a table"))?;
    Ok(map)
}

/// Fails where files would not be kept.
pub(crate) fn in_bpf(folder: &Path) -> Result<(), GateError> {
    // BPF_FS_MAGIC
    const MAGIC: i64 = 0xcafe_4a11;
    let none = || GateError::NoFileSystem(folder.into());
    let parent = folder.parent().ok_or_else(none)?;
    let system = rustix::fs::statfs(parent).map_err(|_| none())?;
    if system.f_type == MAGIC {
        Ok(())
    } else {
        Err(none())
    }
}

pub(crate) fn make_folder(folder: &Path) -> Result<(), GateError> {
    in_bpf(folder)?;
    // All users may make folders in a bpf file system. A folder that is not root's is removed; in root's no other user
    // can change anything.
    if folder.symlink_metadata().is_ok() && !is_roots(folder) {
        fs::remove_dir_all(folder).map_err(failed("removing another user's folder"))?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("making the gate's folder")(error))
        }
        _ if !is_roots(folder) => Err(failed("making the gate's folder")(
            io::ErrorKind::PermissionDenied.into(),
        )),
        _ => Ok(()),
    }
}

/// Whether only root can change what is in a folder.
pub(crate) fn is_roots(folder: &Path) -> bool {
    let found = folder.symlink_metadata();
    found.is_ok_and(|it| it.is_dir() && it.uid() == 0 && it.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};

    /// A bpf file system that ends with the test.
    fn bpf() -> Result<OwnedFd, Errno> {
        let system = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(system.as_fd())?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        fsmount(system.as_fd(), flags, MountAttrFlags::empty())
    }

    #[test]
    fn jobs_stay_in_a_table_of_another_shape() {
        let bpf = match bpf() {
            Err(Errno::PERM) => return eprintln!("skipped: not permitted here"),
            bpf => bpf.unwrap(),
        };
        let folder = format!("/proc/{}/fd/{}/gate", std::process::id(), bpf.as_raw_fd());
        let folder = Path::new(&folder);
        make_folder(folder).unwrap();
        let older = Shape {
            value: 16,
            entries: 100,
            ..SHAPE_OF_JOBS
        };
        let older = Map::new(older).unwrap();
        let name = [b'7'; NAME];
        older.put(&name, &[0; 16]).unwrap();
        sys::pin(&older, &folder.join(JOBS)).unwrap();
        for _ in 0..2 {
            let jobs = jobs(folder).unwrap();
            assert_eq!(jobs.keys::<NAME>().unwrap(), [name]);
        }
    }
}
