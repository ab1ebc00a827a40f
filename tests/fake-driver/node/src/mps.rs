//! Clients of an MPS server, as far as packs need them (research/packs.md).
//!
//! - A process is a client from `cuInit` on, if a variable names a folder whose file `control` a living process has locked (`flock`).
//! - The groups of a server's clients have the GPU together (src/runlist.rs).
//! - What a client had stays until its file of unified memory is closed in all processes. If it still has work then, and nobody has held
//!   its channels since its end, all other clients of the server fail.
//!
//! The file of unified memory can be any device that opens: a test makes `/dev/nvidia-uvm`. Kernels that outlive their channels, clients
//! that slow each other down, and the end of the server are not here. Nor is it known here who held a channel: if the monitor does before
//! it knows of the end, the supervisor need not.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::layout::{Slot, get, set};
use crate::mapped::Mapped;
use crate::process::Process;
use crate::{ofd, reap, runlist};

/// The file of unified memory, below the folder of devices.
const UNIFIED_FILE: &str = "nvidia-uvm";

/// The clients of a server have failed, and have not all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerNotReady;

impl Process {
    /// Becomes a client of the server in this folder. Returns its file of unified memory; `None` if there is no server.
    ///
    /// # Errors
    /// The server takes no client now.
    pub fn enter_server(&self, folder: &Path) -> Result<Option<File>, ServerNotReady> {
        let Some((server, file)) = server_in(folder).zip(unified(&self.mapped)) else {
            return Ok(None);
        };
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        reap::reap(&self.mapped);
        let mut clients = shared.slots.iter().filter(|slot| is_client(slot, server));
        if clients.any(|slot| get(&slot.has_failed) != 0) {
            return Err(ServerNotReady);
        }
        let Some(record) = self.record() else {
            return Ok(None);
        };
        if !ofd::take(&file, self.slot).unwrap_or(false) {
            return Ok(None);
        }
        set(&record.server, server);
        set(&record.unified, inode(&file));
        Ok(Some(file))
    }

    /// Whether it is a client.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.record().is_some_and(|slot| get(&slot.server) != 0)
    }

    /// Whether another client's end was this one's too.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.record().is_some_and(|slot| get(&slot.has_failed) != 0)
    }
}

/// The number of the server in this folder.
fn server_in(folder: &Path) -> Option<u64> {
    let file = File::open(folder.join("control")).ok()?;
    // SAFETY: takes numbers. The lock goes with the file.
    let is_free = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    let number = file.metadata().ok()?.ino();
    (!is_free).then_some(number)
}

fn unified(mapped: &Mapped) -> Option<File> {
    let path = mapped.description.devices.join(UNIFIED_FILE);
    OpenOptions::new().read(true).write(true).open(path).ok()
}

fn is_client(slot: &Slot, server: u64) -> bool {
    slot.is_taken() && get(&slot.server) == server
}

fn inode(file: &File) -> u64 {
    file.metadata().map_or(0, |it| it.ino())
}

/// Whether another process keeps what this slot's process had, which has ended. In doubt it does: who looks from outside the node does
/// not see its devices.
pub(crate) fn is_kept(mapped: &Mapped, number: usize, slot: &Slot) -> bool {
    if get(&slot.server) == 0 {
        return false;
    }
    let file = unified(mapped).filter(|file| inode(file) == get(&slot.unified));
    file.is_none_or(|file| ofd::is_taken(&file, number))
}

/// Whether this slot's process is a client that has ended.
pub(crate) fn has_ended(mapped: &Mapped, number: usize) -> bool {
    let slot = mapped.shared().slots.get(number);
    let is_client = slot.is_some_and(|slot| get(&slot.server) != 0);
    is_client && File::open(&mapped.path).is_ok_and(|file| !ofd::is_taken(&file, number))
}

/// A slot's process has ended, and nobody keeps what it had any more.
pub(crate) fn note_end(mapped: &Mapped, number: usize, slot: &Slot) {
    let server = get(&slot.server);
    if server == 0 || !runlist::leaves_work(mapped, number) {
        return;
    }
    for (number, slot) in mapped.shared().slots.iter().enumerate() {
        if is_client(slot, server) {
            set(&slot.has_failed, 1);
            runlist::drop_process(mapped, number);
        }
    }
}

/// The slot that the log names for this one's server: that of a client that lives.
pub(crate) fn named(mapped: &Mapped, number: usize) -> usize {
    let slots = &mapped.shared().slots;
    let server = slots.get(number).map_or(0, |slot| get(&slot.server));
    let lives = |slot: &Slot| is_client(slot, server) && get(&slot.dead_since) == 0;
    let named = slots.iter().position(lives).filter(|_| server != 0);
    named.unwrap_or(number)
}
