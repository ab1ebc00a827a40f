//! softmig's folder in /etc, and the lock that keeps two of root's commands from working at the same time.

use anyhow::{Context, anyhow, bail};
use rustix::fs::{FlockOperation, Mode, flock};
use softmig_node::dir::{Dir, DirError};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// The folder.
pub(crate) const FOLDER: &str = "/etc/softmig";

/// How long one command waits for another's end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder, open and locked. The lock ends with this, and with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Etc {
    /// The folder.
    pub(crate) dir: Dir,
    _lock: File,
}

impl Etc {
    /// Opens the folder, made when missing, and waits until no other command works in it.
    pub(crate) fn lock() -> anyhow::Result<Self> {
        let dir = Dir::make(Path::new(FOLDER), 0).map_err(explained)?;
        // Root alone can open it, so no user can hold it.
        let lock = dir.open_or_create(".lock", 0o600).map_err(explained)?;
        let deadline = Instant::now() + PATIENCE;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= deadline {
                bail!(
                    "another softmig command has been at work for {} s; look for it with 'fuser -v {FOLDER}/.lock' \
                     and try again when it is done",
                    PATIENCE.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { dir, _lock: lock })
    }
}

/// Fails for all users but root, and makes new files as private or public as they are meant to be.
pub(crate) fn be_root(command: &str) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("{command} changes the node and is root's; try it with sudo");
    }
    softmig_node::node::set_umask();
    Ok(())
}

/// Puts a file in the place of another, so that it is always the old one or the new one.
/// Returns the new file.
pub(crate) fn replace(dir: &Dir, name: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<File> {
    let new = fresh(dir, name, mode, bytes)?;
    dir.rename(&fresh_name(name), name).map_err(explained)?;
    Ok(new)
}

/// Makes the file that is to come in another's place.
pub(crate) fn fresh(dir: &Dir, name: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<File> {
    let fresh = fresh_name(name);
    // One that was left by a command that was killed.
    dir.remove(&fresh).map_err(explained)?;
    let file = dir.create(&fresh, mode, bytes).map_err(explained)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
        .with_context(|| format!("setting the mode of {}", dir.path().join(&fresh).display()))?;
    Ok(file)
}

/// The name of a file before it has its own: the same each time, so that nothing piles up.
pub(crate) fn fresh_name(name: &str) -> String {
    format!(".{name}.softmig-new")
}

/// A file that took another's place, and can still give way to it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Replaced<'a> {
    dir: &'a Dir,
    name: &'a str,
    had_earlier: bool,
}

impl<'a> Replaced<'a> {
    /// Gives its name to the file that [`fresh`] made. The earlier one keeps a second name.
    pub(crate) fn by_fresh(dir: &'a Dir, name: &'a str) -> anyhow::Result<Self> {
        let had_earlier = dir.stat_of(name).map_err(explained)?.is_some();
        let replace = || {
            dir.remove(&old_name(name))?;
            if had_earlier {
                dir.link(name, &old_name(name))?;
            }
            dir.rename(&fresh_name(name), name)
        };
        if let Err(error) = replace() {
            // The first error is told.
            let _ = dir.remove(&fresh_name(name));
            return Err(explained(error));
        }
        Ok(Self {
            dir,
            name,
            had_earlier,
        })
    }

    /// Brings back the very file that was there, or none.
    pub(crate) fn undo(self) -> anyhow::Result<()> {
        if self.had_earlier {
            self.dir.rename(&old_name(self.name), self.name)
        } else {
            self.dir.remove(self.name).map(drop)
        }
        .map_err(explained)
    }

    /// Leaves it so.
    pub(crate) fn keep(self) {
        // The earlier file may be left under its second name; the next change removes it.
        let _ = self.dir.remove(&old_name(self.name));
    }
}

/// The second name of a file that another replaced.
pub(crate) fn old_name(name: &str) -> String {
    format!(".{name}.softmig-old")
}

/// Says what to do about an error that root gets seldom.
pub(crate) fn explained(error: DirError) -> anyhow::Error {
    let advice = match &error {
        DirError::Failed { error, .. } => match error.kind() {
            ErrorKind::PermissionDenied => {
                "root may not: see with 'lsattr' whether it is immutable ('chattr -i' ends that)"
            }
            ErrorKind::ReadOnlyFilesystem => {
                "its file system is read-only: change the image that the node boots from, or remount it"
            }
            ErrorKind::ResourceBusy | ErrorKind::CrossesDevices => {
                "something is mounted there: change the file that is mounted, or unmount it"
            }
            ErrorKind::StorageFull => "its file system is full",
            _ => return anyhow!("{error}"),
        },
        DirError::Untrusted { .. } => "let root alone write to it: 'chown root:root', 'chmod go-w'",
    };
    anyhow!("{error}; {advice}")
}
