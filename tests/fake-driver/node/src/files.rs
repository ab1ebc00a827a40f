//! The files of memory that processes share.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::mapped::Mapped;
use crate::process::Process;

impl Process {
    /// A new file for memory that this process shares with others and that is counted elsewhere. It disappears when
    /// the node is made anew; the process that makes it may remove it.
    ///
    /// # Errors
    /// The system's, where the file cannot be made.
    pub fn shared_file(&self, bytes: u64) -> io::Result<(u64, File)> {
        let sequence = &self.mapped.shared().sequence;
        let number = sequence.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((number, make_file(&path(&self.mapped, number), bytes)?))
    }

    /// Removes a file made by [`Process::shared_file`].
    pub fn remove_shared_file(&self, number: u64) {
        // It may be gone already: then that is done.
        let _ = fs::remove_file(path(&self.mapped, number));
    }
}

/// Where the file of this number is.
pub(crate) fn path(mapped: &Mapped, number: u64) -> PathBuf {
    mapped.blocks_dir().join(number.to_string())
}

/// Makes a file of this size.
pub(crate) fn make_file(path: &PathBuf, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o666)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)?;
    // Every user of the node may map it, whatever the umask is.
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o666))?;
    file.set_len(bytes)?;
    Ok(file)
}

/// Opens a file that was made.
pub(crate) fn open_file(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}
