//! A process of the node: how it joins, what it counts, and how it leaves.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapMut};

use crate::description::Description;
use crate::error::{AttachError, NodeError};
use crate::layout::{Slot, get, set};
use crate::mapped::Mapped;
use crate::{clock, ofd, pids, reap};

/// This process's part in a node.
pub struct Process {
    pub(crate) mapped: Mapped,
    pub(crate) slot: usize,
    pub(crate) generation: u64,
    /// A word that reads 0 in a child, where the node is not mapped.
    here: MmapMut,
    /// In the place of the driver's open files.
    files: Mutex<Option<File>>,
}

impl Process {
    /// Joins the node whose file is there.
    ///
    /// # Errors
    /// [`AttachError::Absent`] if no node is there: then the machine has no driver.
    pub fn attach(path: &Path) -> Result<Process, AttachError> {
        let here = word_that_forks_do_not_keep(path)?;
        let file = Mapped::open_file(path)?;
        let mapped = Mapped::map(path, &file)?;
        mapped
            .map_ref()
            .advise(Advice::DontFork)
            .map_err(NodeError::os(path, "keeping the node from children"))?;
        let shared = mapped.shared();
        let held = shared.lock.lock();
        reap::reap(&mapped);
        // The longest unused first, so that a test finds the counts of those that ended lately.
        let mut free: Vec<_> = shared
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.is_taken())
            .collect();
        free.sort_by_key(|(_, slot)| get(&slot.taken));
        let taken = free.into_iter().find(|(number, _)| {
            !ofd::has_files(&file, *number) && ofd::take(&file, *number).unwrap_or(false)
        });
        let Some((slot, record)) = taken else {
            return Err(AttachError::Full);
        };
        set(&record.joined, clock::now(&mapped));
        set(&record.left, 0);
        let generation = introduce(record, shared.sequence.fetch_add(1, Ordering::Relaxed) + 1);
        drop(held);
        Ok(Process {
            mapped,
            slot,
            generation,
            here,
            files: Mutex::new(None),
        })
    }

    /// The node's description.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.mapped.description
    }

    /// Its slot, as [`Process::worked`] names it.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Whether this is the process that joined, and no child of it. A child may call nothing else here: what processes
    /// share is not mapped in it.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.here.first().is_some_and(|byte| *byte == 1)
    }

    /// Opens what stands for the driver's files: as long as these are open, here or in a child, the process counts as alive.
    pub fn keep_files(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.is_none()
            && let Ok(file) = Mapped::open_file(&self.mapped.path)
            && ofd::take_files(&file, self.slot).is_ok()
        {
            *files = Some(file);
        }
    }

    /// Takes this process out of the accounts. The lock on its slot stays until its memory goes. A client of an MPS server calls
    /// nobody at its end.
    pub fn leave(&self) {
        if self.is_client() {
            return;
        }
        self.close_files();
        let _held = self.mapped.shared().lock.lock();
        if let Some(record) = self.record() {
            reap::end(&self.mapped, self.slot, record);
        }
    }

    fn close_files(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = files.take() else { return };
        // The program may have closed it, and have another file by its number.
        let inode = |found: std::io::Result<std::fs::Metadata>| found.map(|it| it.ino()).ok();
        if inode(file.metadata()) != inode(std::fs::metadata(&self.mapped.path)) {
            let _ = file.into_raw_fd();
        }
    }

    /// This process's record, unless it has left.
    pub(crate) fn record(&self) -> Option<&Slot> {
        let record = self.mapped.shared().slots.get(self.slot)?;
        (get(&record.generation) == self.generation).then_some(record)
    }
}

/// Fills in a free slot, and returns its generation.
fn introduce(record: &Slot, sequence: u64) -> u64 {
    let myself = pids::Identity::of_this_process();
    for count in &record.calls {
        set(count, 0);
    }
    for figure in record.peak.iter().chain(&record.busy) {
        set(figure, 0);
    }
    for word in [&record.server, &record.has_failed] {
        set(word, 0);
    }
    set(&record.taken, sequence);
    set(&record.pid, u64::from(myself.pid));
    set(&record.pid_namespace, myself.namespace);
    set(&record.start_time, myself.start_time);
    record.command.set(&myself.command);
    let generation: &AtomicU64 = &record.generation;
    set(generation, get(generation) + 1);
    get(generation)
}

fn word_that_forks_do_not_keep(path: &Path) -> Result<MmapMut, NodeError> {
    let mut word = MmapMut::map_anon(1).map_err(NodeError::os(path, "mapping a page"))?;
    // SAFETY: the page is this process's own and anonymous, as the advice requires; it is written after.
    let answer =
        unsafe { libc::madvise(word.as_mut_ptr().cast(), word.len(), libc::MADV_WIPEONFORK) };
    if answer != 0 {
        let error = std::io::Error::last_os_error();
        return Err(NodeError::os(path, "advising about a page")(error));
    }
    if let Some(first) = word.first_mut() {
        *first = 1;
    }
    Ok(word)
}
