//! A folder that only its owner can change, and everything done in it.
//!
//! Root works here next to users, so each folder is opened once, without following a link, and checked through what
//! was opened. All else happens relative to it and by single names; no path is looked up twice.

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// The mode of a folder that all can list.
const PUBLIC: Mode = Mode::from_raw_mode(0o755);
/// The mode of a folder in which others may make names, but not replace what is not theirs, as in /tmp.
const STICKY: u32 = 0o1000;

/// How deep a folder may be that is removed with all that is in it.
const DEEPEST: u32 = 32;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const APPEND: OFlags = READ
    .difference(OFlags::RDONLY)
    .union(OFlags::WRONLY)
    .union(OFlags::APPEND);
const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Why something in a folder could not be done.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The system said no.
    #[error("{doing} {}: {error}", path.display())]
    Failed {
        /// The action that was tried.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another user could change it.
    #[error("{} is not used: it {why}", path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// The fault.
        why: &'static str,
    },
}

impl DirError {
    /// Whether there was no room: in the file system, in memory or in a quota.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if is_no_room(error))
    }
}

/// Whether the system says that the file system is full.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    let errors = [Errno::NOSPC, Errno::NOMEM, Errno::DQUOT];
    errors
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

/// The result of a call in a folder.
pub type Result<T> = std::result::Result<T, DirError>;

/// Attaches what was tried to the system's error.
pub(crate) fn failed<E: Into<io::Error>>(
    doing: &'static str,
    path: PathBuf,
) -> impl FnOnce(E) -> DirError {
    move |error| DirError::Failed {
        doing,
        path,
        error: error.into(),
    }
}

/// An open folder that belongs to `owner` and that no other user may write to.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

impl Dir {
    /// Opens the folder at `path`; `None` if it does not exist.
    ///
    /// Its parent may be reached through links (`/var/run` is one) and may be writable by a group (`/var/log` often
    /// is), but not by all users.
    pub fn open(path: &Path, owner: u32) -> Result<Option<Self>> {
        let Some(parent) = parent(path, owner)? else {
            return Ok(None);
        };
        parent.child_named(name_of(path), path.to_path_buf())
    }

    /// Opens the folder at `path`, and makes it if it does not exist; its parent must exist.
    pub fn make(path: &Path, owner: u32) -> Result<Self> {
        let missing = failed("opening", path.to_path_buf());
        let parent = parent(path, owner)?.ok_or_else(|| missing(Errno::NOENT))?;
        let (at, name) = (parent.as_fd(), name_of(path).as_ref());
        Self::make_at(at, name, path.to_path_buf(), owner, PUBLIC)
    }

    /// Opens the folder at `path` name by name, and follows no link. Each folder on the way belongs to root or `owner`, and no
    /// other user can put another one in its place.
    pub fn open_each(path: &Path, owner: u32) -> Result<Self> {
        let missing = |path: &Path| failed("opening", path.to_path_buf())(Errno::NOENT);
        let open = |at: BorrowedFd<'_>, path: &Path, name: &Path| {
            Self::open_at(at, name, path.to_path_buf(), owner, FOLDER)?.ok_or_else(|| missing(path))
        };
        let root = Path::new("/");
        let mut dir = open(CWD, root, root)?;
        for name in path.components() {
            if let Component::Normal(name) = name {
                dir.check_way(STICKY)?;
                dir = open(dir.as_fd(), &dir.path.join(name), name.as_ref())?;
            }
        }
        dir.check_way(0)?;
        Ok(dir)
    }

    /// Opens the folder at `path`, which only its owner can list, and makes it if it does not exist. In its parent every user
    /// may make names.
    pub fn make_private(path: &Path, owner: u32) -> Result<Self> {
        Self::make_at(CWD, path, path.to_path_buf(), owner, Mode::RWXU)
    }

    /// Opens a folder in this one; `None` if it does not exist.
    pub fn child(&self, name: &str) -> Result<Option<Self>> {
        self.child_named(name, self.path.join(name))
    }

    /// Opens a folder in this one, and makes it if it does not exist.
    pub fn make_child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        Self::make_at(self.as_fd(), name.as_ref(), path, self.owner, PUBLIC)
    }

    /// The same for a folder that only its owner can list.
    pub fn make_private_child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        Self::make_at(self.as_fd(), name.as_ref(), path, self.owner, Mode::RWXU)
    }

    fn make_at(
        at: BorrowedFd<'_>,
        name: &Path,
        path: PathBuf,
        owner: u32,
        mode: Mode,
    ) -> Result<Self> {
        // An epilog of the same user may remove it between the two calls, if no lock is held.
        for _ in 0..3 {
            match fs::mkdirat(at, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("making", path)(error)),
            }
            if let Some(dir) = Self::open_at(at, name, path.clone(), owner, FOLDER)? {
                dir.check(0o022)?;
                return Ok(dir);
            }
        }
        Err(failed("making", path)(Errno::NOENT))
    }

    fn child_named(&self, name: &str, path: PathBuf) -> Result<Option<Self>> {
        let dir = Self::open_at(self.as_fd(), name.as_ref(), path, self.owner, FOLDER)?;
        dir.map(|dir| dir.check(0o022).map(|()| dir)).transpose()
    }

    fn open_at(
        at: BorrowedFd<'_>,
        name: &Path,
        path: PathBuf,
        owner: u32,
        flags: OFlags,
    ) -> Result<Option<Self>> {
        match fs::openat(at, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path, owner })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let why = "is a link or no folder";
                Err(DirError::Untrusted { path, why })
            }
            Err(error) => Err(failed("opening", path)(error)),
        }
    }

    /// Refuses a folder on the way to another one: where another user can replace names. `allowed` is a mode that lets
    /// them only add some.
    fn check_way(&self, allowed: u32) -> Result<()> {
        let mut stat = self.stat()?;
        if stat.st_uid == 0 {
            stat.st_uid = self.owner;
        }
        let writers = if stat.st_mode & allowed == 0 {
            0o022
        } else {
            0
        };
        self.trust(&stat, writers, self.path.clone())
    }

    /// Refuses a folder of another owner, or one that `writers` may write to.
    fn check(&self, writers: u32) -> Result<()> {
        self.trust(&self.stat()?, writers, self.path.clone())
    }

    /// Refuses what belongs to another owner, or what `writers` may write to.
    fn trust(&self, stat: &Stat, writers: u32, path: PathBuf) -> Result<()> {
        let why = if stat.st_uid != self.owner {
            "belongs to another user"
        } else if stat.st_mode & writers != 0 {
            "can be written to by others"
        } else {
            return Ok(());
        };
        Err(DirError::Untrusted { path, why })
    }

    /// The folder's own metadata.
    pub fn stat(&self) -> Result<Stat> {
        fs::fstat(&self.fd).map_err(failed("looking at", self.path.clone()))
    }

    /// The metadata of what has this name, links not followed; `None` when there is nothing.
    pub fn stat_of(&self, name: &str) -> Result<Option<Stat>> {
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("looking at", self.path.join(name))(error)),
        }
    }

    /// Whether a file system is mounted on what has this name.
    pub fn has_mount(&self, name: &str) -> Result<bool> {
        let here = self.stat()?.st_dev;
        Ok(self.stat_of(name)?.is_some_and(|stat| stat.st_dev != here))
    }

    /// Where it is, for messages and for mounting.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its owner, which is also to own what is made in it.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// All names in it that are text; softmig makes no others.
    pub fn names(&self) -> Result<Vec<String>> {
        let names = names(self.fd.as_fd()).map_err(failed("listing", self.path.clone()))?;
        Ok(names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .collect())
    }

    /// Opens a plain file for reading; `None` if it does not exist. Anything else may be there, such as a link or a
    /// pipe: it is never followed and never waited for.
    pub fn open_file(&self, name: &str) -> Result<Option<File>> {
        self.open_plain(name, READ)
    }

    /// The same, for writing at its end.
    pub fn open_at_end(&self, name: &str) -> Result<Option<File>> {
        self.open_plain(name, APPEND)
    }

    fn open_plain(&self, name: &str, flags: OFlags) -> Result<Option<File>> {
        let path = || self.path.join(name);
        let fd = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed("opening", path())(error)),
        };
        let stat = fs::fstat(&fd).map_err(failed("looking at", path()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let why = "is not a plain file";
            return Err(DirError::Untrusted { path: path(), why });
        }
        Ok(Some(File::from(fd)))
    }

    /// The first `most` bytes of a plain file; `None` if it does not exist.
    pub fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let file = self.open_file(name)?;
        file.map(|file| self.first(name, file, most)).transpose()
    }

    /// The same of a file that the folder's owner wrote, and that no other user can write to.
    pub fn read_own(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_file(name)? else {
            return Ok(None);
        };
        let path = || self.path.join(name);
        let stat = fs::fstat(&file).map_err(failed("looking at", path()))?;
        self.trust(&stat, 0o022, path())?;
        self.first(name, file, most).map(Some)
    }

    fn first(&self, name: &str, file: File, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.take(most)
            .read_to_end(&mut bytes)
            .map_err(failed("reading", self.path.join(name)))?;
        Ok(bytes)
    }

    /// Makes a file that must not exist yet. Nothing is left of it when that fails.
    pub fn create(&self, name: &str, mode: u32, bytes: &[u8]) -> Result<File> {
        let path = || self.path.join(name);
        let fd = fs::openat(&self.fd, name, CREATE, Mode::from_raw_mode(mode))
            .map_err(failed("making", path()))?;
        let mut file = File::from(fd);
        // Only a text has to be on disk before its file gets another name.
        let written = match bytes {
            [] => Ok(()),
            bytes => file.write_all(bytes).and_then(|()| file.sync_all()),
        };
        if let Err(error) = written {
            let _ = self.remove(name);
            return Err(failed("writing", path())(error));
        }
        Ok(file)
    }

    /// Opens a file for writing, and makes it if it does not exist.
    pub fn open_or_create(&self, name: &str, mode: u32) -> Result<File> {
        let flags = CREATE.difference(OFlags::EXCL);
        fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))
            .map(File::from)
            .map_err(failed("opening", self.path.join(name)))
    }

    /// Adds to the end of a plain file. It may be anyone's, so it is neither followed nor waited for.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = || self.path.join(name);
        let mut file = self
            .open_at_end(name)?
            .ok_or(Errno::NOENT)
            .map_err(failed("opening", path()))?;
        file.write_all(bytes).map_err(failed("writing", path()))
    }

    /// Empties a plain file, if it is there. Like [`Self::append`] it does not wait for a reader.
    pub fn truncate(&self, name: &str) -> Result<()> {
        match self.open_at_end(name)? {
            Some(file) => file
                .set_len(0)
                .map_err(failed("emptying", self.path.join(name))),
            None => Ok(()),
        }
    }

    /// The used room of its file system, in bytes.
    pub fn taken(&self) -> Result<u64> {
        let stat = fs::fstatvfs(&self.fd).map_err(failed("looking at", self.path.clone()))?;
        Ok(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
    }

    /// Gives a file of this folder another name, in place of what has it.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::renameat(&self.fd, from, &self.fd, to).map_err(failed("writing", self.path.join(to)))
    }

    /// Gives a file of this folder a second name.
    pub fn link(&self, from: &str, to: &str) -> Result<()> {
        self.link_in(self, from, to)
    }

    /// The same in another folder.
    pub fn link_in(&self, folder: &Self, from: &str, to: &str) -> Result<()> {
        fs::linkat(&self.fd, from, &folder.fd, to, AtFlags::empty())
            .map_err(failed("linking", folder.path.join(to)))
    }

    /// Removes what has this name, a folder with all that is in it; `false` when there was nothing.
    pub fn remove(&self, name: &str) -> Result<bool> {
        remove(self.fd.as_fd(), name.as_bytes(), DEEPEST)
            .map_err(failed("removing", self.path.join(name)))
    }

    /// Removes what has this name and is no folder; `false` when there was nothing.
    pub fn remove_file(&self, name: &str) -> Result<bool> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed("removing", self.path.join(name))(error)),
        }
    }

    /// Removes a folder if it is empty.
    pub fn remove_if_empty(&self, name: &str) -> Result<()> {
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("removing", self.path.join(name))(error)),
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens the folder that `path` is in.
pub(crate) fn parent(path: &Path, owner: u32) -> Result<Option<Dir>> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let flags = FOLDER.difference(OFlags::NOFOLLOW);
    let dir = Dir::open_at(CWD, parent, parent.to_path_buf(), owner, flags)?;
    dir.map(|dir| dir.check(0o002).map(|()| dir)).transpose()
}

pub(crate) fn name_of(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(".")
}

fn names(dir: BorrowedFd<'_>) -> std::result::Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

fn remove(dir: BorrowedFd<'_>, name: &[u8], deepest: u32) -> std::result::Result<bool, Errno> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    // A job's user may own folders further down and make them as deep as they like.
    let deepest = deepest.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let folder = fs::openat(dir, name, FOLDER, Mode::empty())?;
    for inside in names(folder.as_fd())? {
        remove(folder.as_fd(), &inside, deepest)?;
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
