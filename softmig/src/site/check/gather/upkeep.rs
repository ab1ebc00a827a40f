//! Finds out whether the parts that run on a node are the installed ones, and have room.

use crate::ask::monitor;
use crate::machine::preload::{FOLDER, LIBRARY};
use crate::site::check::facts::{Seen, Upkeep};
use rustix::fs::statvfs;
use softmig_node::node::Node;
use softmig_node::usage_socket;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Looks at the library, the monitor and the folder of jobs' limits below `root`.
pub(crate) fn look(root: &Path, run: &Path) -> Upkeep {
    let folder = root.join(FOLDER.trim_start_matches('/'));
    let live = folder.join(LIBRARY);
    Upkeep {
        old_library: differs(&live, &folder.join("staged").join(LIBRARY)),
        open_library: open(&live),
        old_monitor: old_monitor(),
        missing_memory: missing_memory(),
        full: full(run),
    }
}

/// Whether both files exist and differ.
fn differs(live: &Path, staged: &Path) -> bool {
    match (fs::read(live), fs::read(staged)) {
        (Ok(live), Ok(staged)) => live != staged,
        _ => false,
    }
}

/// How users other than root could change the library that every process loads.
fn open(live: &Path) -> Option<String> {
    let stat = fs::metadata(live).ok()?;
    if stat.uid() != 0 {
        return Some(format!("it belongs to user {}", stat.uid()));
    }
    (stat.mode() & 0o022 != 0).then(|| format!("its mode is {:04o}", stat.mode() & 0o7777))
}

/// The version of a running monitor that is not the installed one. Only root can see that.
fn old_monitor() -> Option<String> {
    let process = monitor::process()?;
    if !process.replaced {
        return None;
    }
    let exe = format!("/proc/{}/exe", process.pid);
    let version = monitor::version_of(Path::new(&exe));
    Some(version.unwrap_or_else(|| "an unknown version".into()))
}

/// The GPUs with memory that jobs may have and others hold. The monitor tells root and the group softmig.
fn missing_memory() -> Vec<(u32, u64)> {
    let told = usage_socket::ask(&Node::this_machine()).unwrap_or_default();
    let gpus = told.gpus.iter().filter(|gpu| gpu.missing_bytes > 0);
    gpus.map(|gpu| (gpu.index, gpu.missing_bytes)).collect()
}

/// Whether the folder has no room for a job's files.
fn full(run: &Path) -> Seen<bool> {
    if !run.exists() {
        return Ok(false);
    }
    let room = statvfs(run).map_err(|error| format!("{}: {error}", run.display()))?;
    // A job's conf is one block. A file system without a limit on files says that it has 0 files.
    Ok(room.f_bavail < 4 || (room.f_files > 0 && room.f_favail < 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_library_that_is_not_the_staged_one_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib/softmig");
        fs::create_dir_all(folder.join("staged")).unwrap();
        let look = || look(root.path(), Path::new("/proc")).old_library;
        assert!(!look());
        fs::write(folder.join(LIBRARY), "old").unwrap();
        assert!(!look());
        fs::write(folder.join("staged").join(LIBRARY), "new").unwrap();
        assert!(look());
        fs::write(folder.join(LIBRARY), "new").unwrap();
        assert!(!look());
    }

    #[test]
    fn a_library_that_others_can_change_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LIBRARY);
        assert_eq!(open(&path), None);
        fs::write(&path, "x").unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o775);
        let said = open(&path).unwrap();
        assert!(said.contains("0775") || said.contains("belongs"), "{said}");
    }

    #[test]
    fn a_folder_without_room_is_full() {
        // It has no block that is free.
        assert_eq!(full(Path::new("/proc")), Ok(true));
        assert_eq!(full(Path::new("/no/such/folder")), Ok(false));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(full(folder.path()), Ok(false));
    }
}
