//! The process that asks whose it is, for programs with std; the hook has its own.

use rustix::fs::{Mode, OFlags};
use softmig_policy::node::node_conf::LONGEST;
use softmig_policy::node::process_view::{FIRST_USER_NAMESPACE, OsError, ProcessView};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// This process and its node. Its fields are what the system said; tests write them.
#[derive(Clone, Debug)]
pub struct ThisProcess {
    /// The folder that all paths are below.
    pub root: PathBuf,
    /// Whose files are root's.
    pub keeper: u32,
    /// The user who started the process.
    pub uid: u32,
    /// Whether it has other rights than its user.
    pub is_secure: bool,
    /// The inode number of its control group namespace.
    pub cgroup_namespace: Result<u64, OsError>,
    /// That of its user namespace.
    pub user_namespace: Result<u64, OsError>,
    /// Its environment.
    pub variables: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl ThisProcess {
    /// Asks the system.
    pub fn new() -> Self {
        let namespace = |name: &str| {
            let metadata = std::fs::metadata(format!("/proc/self/ns/{name}"));
            metadata.map(|file| file.ino()).map_err(number)
        };
        let bytes = |text: std::ffi::OsString| text.into_vec();
        let variables = std::env::vars_os().map(|(name, value)| (bytes(name), bytes(value)));
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            root: "/".into(),
            keeper: 0,
            uid: uid.as_raw(),
            is_secure: uid != rustix::process::geteuid() || gid != rustix::process::getegid(),
            cgroup_namespace: namespace("cgroup"),
            user_namespace: namespace("user"),
            variables: variables.collect(),
        }
    }

    /// An ordinary process of `uid` on a node in this folder, whose files are the caller's; for tests.
    pub fn in_folder(folder: &Path, uid: u32) -> Self {
        Self {
            root: folder.into(),
            keeper: rustix::process::getuid().as_raw(),
            uid,
            is_secure: false,
            cgroup_namespace: Err(OsError::MISSING),
            user_namespace: Ok(FIRST_USER_NAMESPACE),
            variables: BTreeMap::new(),
        }
    }

    fn path(&self, path: &[u8]) -> PathBuf {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        self.root.join(OsStr::from_bytes(path))
    }

    fn open(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(rustix::fs::open(self.path(path), flags | OFlags::NOCTTY, Mode::empty())?.into())
    }
}

impl Default for ThisProcess {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessView for ThisProcess {
    fn kept_by_root<T>(
        &self,
        path: &CStr,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, OsError> {
        let file = match self.open(path.to_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(number)?,
        };
        let status = file.metadata().map_err(number)?;
        let owner = match status.uid() {
            owner if owner == self.keeper => 0,
            owner => owner,
        };
        if !self.is_kept_by_root(owner, status.mode()) {
            return Err(OsError::NOT_KEPT);
        }
        Ok(Some(read(&short(file)?)))
    }

    fn cgroup<T>(&self, pid: Option<u32>, read: impl FnOnce(&[u8]) -> T) -> Result<T, OsError> {
        let process = pid.map_or("self".into(), |pid| pid.to_string());
        let path = format!("/proc/{process}/cgroup");
        Ok(read(&short(self.open(path.as_bytes()).map_err(number)?)?))
    }

    fn environment(&self, pid: u32, mut visit: impl FnMut(&[u8]) -> bool) -> Result<bool, OsError> {
        let path = format!("/proc/{pid}/environ");
        let text = std::fs::read(self.path(path.as_bytes())).map_err(number)?;
        Ok(visit(&text))
    }

    fn each_name(&self, folder: &CStr, mut visit: impl FnMut(&[u8])) -> Result<(), OsError> {
        let entries = match std::fs::read_dir(self.path(folder.to_bytes())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(number)?,
        };
        for entry in entries {
            visit(entry.map_err(number)?.file_name().as_bytes());
        }
        Ok(())
    }

    fn cgroup_namespace(&self) -> Result<u64, OsError> {
        self.cgroup_namespace
    }

    fn user_namespace(&self) -> Result<u64, OsError> {
        self.user_namespace
    }

    fn real_uid(&self) -> u32 {
        self.uid
    }

    fn is_secure(&self) -> bool {
        self.is_secure
    }

    fn variable(&self, name: &CStr) -> Option<&[u8]> {
        self.variables.get(name.to_bytes()).map(Vec::as_slice)
    }
}

/// Reads a file that is no longer than the hook would read.
fn short(file: File) -> Result<Vec<u8>, OsError> {
    let mut bytes = Vec::new();
    let read = file.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    match read.map_err(number)? {
        length if length > LONGEST => Err(OsError::TOO_LONG),
        _ => Ok(bytes),
    }
}

fn number(error: io::Error) -> OsError {
    // EIO for what the system did not say.
    OsError(error.raw_os_error().unwrap_or(5))
}
