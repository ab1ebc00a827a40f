//! What a process can find out about its node and itself: the questions of [`crate::identity::resolve`].

use core::ffi::CStr;

use crate::os::{self, Error, File, Scratch};

/// The kernel's inode numbers of the first namespaces (`include/linux/proc_ns.h`).
const FIRST_CGROUP_NAMESPACE: u64 = 0xEFFF_FFFB;
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;
/// Who owns a file whose owner this user namespace does not know (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_OWNER: u32 = 65534;

/// A node, as a process on it sees it; tests have others.
pub(crate) trait Node {
    /// Reads a file that root keeps; `Ok(None)` when there is none. One that others may write is an error.
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error>;
    /// Reads `/proc/self/cgroup`.
    fn cgroup<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T, Error>;
    /// Calls `visit` with each name in a folder; there may be none.
    fn each_name(&self, folder: &CStr, visit: impl FnMut(&[u8])) -> Result<(), Error>;
    /// Whether `/proc/self/cgroup` shows whole paths.
    fn is_in_first_cgroup_namespace(&self) -> bool;
    /// Whether user ids are those of the node.
    fn is_in_first_user_namespace(&self) -> bool;
    /// Who started the process.
    fn real_uid(&self) -> u32;
    /// Whether what the user says must not count (`AT_SECURE`).
    fn is_secure(&self) -> bool;
    /// A variable of the environment.
    fn variable(&self, name: &CStr) -> Option<&[u8]>;
}

/// The node that this process runs on.
pub(crate) struct ThisNode;

impl Node for ThisNode {
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        let file = match File::open(path, libc::O_RDONLY) {
            Err(Error::MISSING) => return Ok(None),
            opened => opened?,
        };
        let status = file.status()?;
        // A user namespace shows root's files as nobody's. It may also show a user's own files as root's: with mounts
        // of his own he can cover any path, this library's too, which is the monitor's to see.
        let by_root = status.owner == 0
            || (status.owner == UNKNOWN_OWNER && !self.is_in_first_user_namespace());
        if !by_root || !status.is_kept_by_owner() {
            return Err(Error(libc::EPERM));
        }
        let mut scratch = Scratch::new()?;
        file.read_all(scratch.bytes()).map(read).map(Some)
    }

    fn cgroup<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let file = File::open(c"/proc/self/cgroup", libc::O_RDONLY)?;
        let mut scratch = Scratch::new()?;
        file.read_all(scratch.bytes()).map(read)
    }

    fn each_name(&self, folder: &CStr, mut visit: impl FnMut(&[u8])) -> Result<(), Error> {
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

    fn is_in_first_cgroup_namespace(&self) -> bool {
        // A kernel without such namespaces has no file for them; without /proc there is no list to misread either.
        matches!(
            os::inode(c"/proc/self/ns/cgroup"),
            Ok(FIRST_CGROUP_NAMESPACE) | Err(Error::MISSING)
        )
    }

    fn is_in_first_user_namespace(&self) -> bool {
        // Where there is no /proc nobody can tell, so it is not.
        os::inode(c"/proc/self/ns/user") == Ok(FIRST_USER_NAMESPACE)
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
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

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
    fn links_pipes_and_files_that_others_may_write_are_not_kept_by_root() {
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
        assert_eq!(read(&link), Err(Error(libc::ELOOP)));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(read(&file), Err(Error(libc::EPERM)));
        assert_eq!(read(folder.path()), Err(Error(libc::EPERM)));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::write(&file, [b'x'; 16 << 10]).unwrap();
        if os::real_uid() == 0 {
            assert_eq!(read(&file), Err(Error::TOO_LONG));
        }
    }
}
