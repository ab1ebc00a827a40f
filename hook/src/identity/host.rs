//! The hook's view of its node and its process: the answers to [`ProcessView`]'s questions.

use core::ffi::CStr;

use softmig_policy::node::fixed_str::{Text, text};
use softmig_policy::node::process_view::{OsError, ProcessView};

use crate::os::{self, Error, File, Scratch};

impl From<Error> for OsError {
    fn from(error: Error) -> Self {
        Self(error.0)
    }
}

/// The node that this process runs on.
pub(crate) struct ThisNode;

impl ProcessView for ThisNode {
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, OsError> {
        let file = match File::open(path, libc::O_RDONLY) {
            Err(Error::MISSING) => return Ok(None),
            opened => opened?,
        };
        let status = file.status()?;
        if !self.is_kept_by_root(status.owner, status.mode) {
            return Err(OsError::NOT_KEPT);
        }
        let mut scratch = Scratch::new()?;
        Ok(file.read_all(scratch.bytes()).map(read).map(Some)?)
    }

    fn cgroup<T>(&self, pid: Option<u32>, read: impl FnOnce(&[u8]) -> T) -> Result<T, OsError> {
        let file = match pid {
            // This thread's: with hierarchies of version 1 the kernel says of a first thread that has ended that it is in no
            // control group. Linux before 3.17 has no such path.
            None => match File::open(c"/proc/thread-self/cgroup", libc::O_RDONLY) {
                Err(Error::MISSING) => File::open(c"/proc/self/cgroup", libc::O_RDONLY)?,
                opened => opened?,
            },
            Some(pid) => open_of(pid, b"cgroup")?,
        };
        let mut scratch = Scratch::new()?;
        Ok(file.read_all(scratch.bytes()).map(read)?)
    }

    fn environment(&self, pid: u32, mut visit: impl FnMut(&[u8]) -> bool) -> Result<bool, OsError> {
        let file = open_of(pid, b"environ")?;
        let mut scratch = Scratch::new()?;
        loop {
            let room = scratch.bytes();
            let count = file.read(room)?;
            match room.get(..count) {
                Some(piece) if count > 0 => {
                    if visit(piece) {
                        return Ok(true);
                    }
                }
                _ => return Ok(false),
            }
        }
    }

    fn each_name(&self, folder: &CStr, mut visit: impl FnMut(&[u8])) -> Result<(), OsError> {
        let folder = match File::open(folder, libc::O_RDONLY | libc::O_DIRECTORY) {
            Err(Error::MISSING) => return Ok(()),
            opened => opened?,
        };
        let mut scratch = Scratch::new()?;
        loop {
            let mut entries = folder.read_names(scratch.bytes())?;
            if entries.is_empty() {
                return Ok(());
            }
            while let Some((name, rest)) = first_entry(entries) {
                if name != b"." && name != b".." {
                    visit(name);
                }
                entries = rest;
            }
        }
    }

    fn cgroup_namespace(&self) -> Result<u64, OsError> {
        Ok(os::inode(c"/proc/self/ns/cgroup")?)
    }

    fn user_namespace(&self) -> Result<u64, OsError> {
        Ok(os::inode(c"/proc/self/ns/user")?)
    }

    fn real_uid(&self) -> u32 {
        os::real_uid()
    }

    fn is_secure(&self) -> bool {
        os::is_secure()
    }

    fn variable(&self, name: &CStr) -> Option<&[u8]> {
        os::variable(name)
    }
}

/// Opens `/proc/PID/NAME`.
fn open_of(pid: u32, name: &[u8]) -> Result<File, OsError> {
    let mut path: Text<32> = text(&[b"/proc/"]);
    path.push_number(pid.into(), 1);
    path.push(b"/");
    path.push(name);
    let path = path.as_path().ok_or(OsError::TOO_LONG)?;
    Ok(File::open(path, libc::O_RDONLY)?)
}

/// The name in the first entry that `getdents64(2)` wrote, and the entries after it.
fn first_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    // An entry: inode and offset of 8 bytes each, its length in 2, a kind in 1, then the name and a zero byte.
    let length = entries.get(16..18)?.try_into().ok()?;
    let length = usize::from(u16::from_ne_bytes(length));
    let (entry, rest) = entries.split_at_checked(length)?;
    let name = CStr::from_bytes_until_nul(entry.get(19..)?).ok()?;
    Some((name.to_bytes(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_policy::node::process_group::Group;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Child, Command};

    fn path(path: &std::path::Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn all_names_of_a_large_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut names: Vec<_> = (1..=500).map(|id| id.to_string()).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let mut found = Vec::new();
        let visit = |name: &[u8]| found.push(String::from_utf8(name.to_vec()).unwrap());
        ThisNode.each_name(&path(folder.path()), visit).unwrap();
        names.sort();
        found.sort();
        assert_eq!(found, names);
    }

    #[test]
    fn entries_that_are_cut_off_are_the_end() {
        for entries in [&[][..], &[0; 17], &[255; 32], &[0; 64]] {
            assert!(first_entry(entries).is_none_or(|(name, _)| name.is_empty()));
        }
    }

    #[test]
    fn root_trusts_no_links_pipes_or_files_that_others_may_write() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let read = |path_: &std::path::Path| ThisNode.kept_by_root(&path(path_), <[u8]>::len);
        if os::real_uid() == 0 {
            assert_eq!(read(&file), Ok(Some(4)));
        }
        assert_eq!(read(&folder.path().join("none")), Ok(None));
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link), Err(OsError(libc::ELOOP)));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(read(&file), Err(OsError::NOT_KEPT));
        assert_eq!(read(folder.path()), Err(OsError::NOT_KEPT));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::write(&file, [b'x'; 16 << 10]).unwrap();
        if os::real_uid() == 0 {
            assert_eq!(read(&file), Err(OsError::TOO_LONG));
        }
    }

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_process_belongs_to_the_run_that_it_was_started_in() {
        let mut sleep = Command::new("sleep");
        // More than one look can read.
        sleep
            .arg("100")
            .env("LONG", "x".repeat(40_000))
            .env("RUN", "/one");
        let child = Ended(sleep.spawn().unwrap());
        let pid = child.0.id();
        // The kernel has it a moment after the program.
        while std::fs::read(format!("/proc/{pid}/environ"))
            .unwrap()
            .is_empty()
        {}
        let has = |entry: &[u8]| Group::Entry(text(&[entry])).has(&ThisNode, pid);
        assert!(has(b"RUN=/one"));
        for other in ["RUN=/on", "RUN=/one/", "RUN="] {
            assert!(!has(other.as_bytes()), "{other}");
        }
        assert!(!has(&[b'x'; 300]));
        drop(child);
        assert!(!has(b"RUN=/one"));
    }
}
