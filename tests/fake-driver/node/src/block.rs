//! Physical memory that several processes may hold: what `cuMemCreate` makes.
//!
//! A block lives as long as a process holds it, or a descriptor of it that was handed out is open somewhere, be it in
//! a socket between two processes: the descriptor's open file carries a lock. A file of its own stands for the memory,
//! so those who map it share what is in it. The block counts for the process that made it; once that one lets go, for
//! the first that still holds it; and for the device alone while only descriptors are left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::error::MemoryError;
use crate::layout::{BlockState, get, set};
use crate::mapped::Mapped;
use crate::process::Process;
use crate::{memory, ofd};

/// A block's number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId(u64);

/// A block that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub id: BlockId,
    /// The device whose memory it is.
    pub device: usize,
    /// Its size.
    pub bytes: u64,
}

impl Process {
    /// Takes a block of a device's memory; this process holds it.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if the device has not so much left.
    pub fn create_block(&self, device: usize, bytes: u64) -> Result<Block, MemoryError> {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        let record = self.record().ok_or(MemoryError::Ended)?;
        memory::require(&self.mapped, device, bytes)?;
        let state = shared
            .blocks
            .iter()
            .find(|state| get(&state.id) == 0)
            .ok_or(MemoryError::Full)?;
        let id = shared.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let file = make_file(&path(&self.mapped, id), bytes).map_err(|_| MemoryError::File)?;
        let inode = file.metadata().map_err(|_| MemoryError::File)?.ino();
        set(&state.device, device as u64);
        set(&state.bytes, bytes);
        set(&state.inode, inode);
        set(&state.exported, 0);
        set(&state.maker, self.slot as u64);
        for word in &state.holders {
            set(word, 0);
        }
        hold(state, self.slot);
        set(&state.id, id);
        memory::note_peak(&self.mapped, self.slot, record, device);
        Ok(Block {
            id: BlockId(id),
            device,
            bytes,
        })
    }

    /// Holds the block that an open file stands for; `None` if it stands for none.
    #[must_use]
    pub fn hold_block_of(&self, file: &File) -> Option<Block> {
        let inode = file.metadata().ok()?.ino();
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        self.record()?;
        let mut blocks = shared.blocks.iter();
        let state = blocks.find(|state| get(&state.id) != 0 && get(&state.inode) == inode)?;
        hold(state, self.slot);
        Some(Block {
            id: BlockId(get(&state.id)),
            device: usize::try_from(get(&state.device)).ok()?,
            bytes: get(&state.bytes),
        })
    }

    /// Lets go of a block. Its memory is free once nobody holds it.
    pub fn drop_block(&self, id: BlockId) {
        let _held = self.mapped.shared().lock.lock();
        if self.record().is_none() {
            return;
        }
        let mut blocks = self.mapped.shared().blocks.iter();
        if let Some(state) = blocks.find(|state| get(&state.id) == id.0) {
            let_go(state, self.slot);
            free_if_unheld(&self.mapped, state);
        }
    }

    /// The file that stands for a block, to be mapped.
    ///
    /// # Errors
    /// The system's, where the file cannot be opened.
    pub fn open_block(&self, id: BlockId) -> io::Result<File> {
        open_file(&path(&self.mapped, id.0))
    }

    /// A descriptor of a block for another process. It keeps the block alive.
    ///
    /// # Errors
    /// The system's, where the file cannot be opened.
    pub fn export_block(&self, id: BlockId) -> io::Result<File> {
        let file = self.open_block(id)?;
        ofd::share(&file)?;
        let mut blocks = self.mapped.shared().blocks.iter();
        if let Some(state) = blocks.find(|state| get(&state.id) == id.0) {
            set(&state.exported, 1);
        }
        Ok(file)
    }

    /// A new file for memory that this process shares with others and that is counted elsewhere. It disappears when
    /// the node is made anew; whoever makes it may remove it.
    ///
    /// # Errors
    /// The system's, where the file cannot be made.
    pub fn shared_file(&self, bytes: u64) -> io::Result<(u64, File)> {
        let sequence = &self.mapped.shared().sequence;
        let number = sequence.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((number, make_file(&path(&self.mapped, number), bytes)?))
    }

    /// Opens a file made by [`Process::shared_file`].
    ///
    /// # Errors
    /// The system's, where there is none of that number.
    pub fn open_shared_file(&self, number: u64) -> io::Result<File> {
        open_file(&path(&self.mapped, number))
    }

    /// Removes a file made by [`Process::shared_file`].
    pub fn remove_shared_file(&self, number: u64) {
        // It may be gone already: then that is done.
        let _ = fs::remove_file(path(&self.mapped, number));
    }
}

/// Frees the blocks that nobody holds.
pub(crate) fn reap(mapped: &Mapped) {
    for state in &mapped.shared().blocks {
        if get(&state.id) != 0 {
            free_if_unheld(mapped, state);
        }
    }
}

/// Takes a process out of every block's holders.
pub(crate) fn drop_holder(mapped: &Mapped, slot: usize) {
    for state in &mapped.shared().blocks {
        if get(&state.id) != 0 && holds(state, slot) {
            let_go(state, slot);
            free_if_unheld(mapped, state);
        }
    }
}

/// Blocks of a device, whoever holds them.
pub(crate) fn on_device(mapped: &Mapped, device: usize) -> u64 {
    of_device(mapped, device)
        .map(|state| get(&state.bytes))
        .sum()
}

/// Blocks of a device that count for a process.
pub(crate) fn of_holder(mapped: &Mapped, slot: usize, device: usize) -> u64 {
    of_device(mapped, device)
        .filter(|state| owner(state) == Some(slot))
        .map(|state| get(&state.bytes))
        .sum()
}

fn of_device(mapped: &Mapped, device: usize) -> impl Iterator<Item = &BlockState> {
    let blocks = mapped.shared().blocks.iter();
    blocks.filter(move |state| get(&state.id) != 0 && get(&state.device) == device as u64)
}

/// The process for which a block counts.
fn owner(state: &BlockState) -> Option<usize> {
    let maker = usize::try_from(get(&state.maker)).ok()?;
    if holds(state, maker) {
        return Some(maker);
    }
    let mut words = state.holders.iter().enumerate();
    words.find_map(|(number, word)| {
        let word = get(word);
        (word != 0).then(|| number * 64 + word.trailing_zeros() as usize)
    })
}

fn holds(state: &BlockState, slot: usize) -> bool {
    let word = state.holders.get(slot / 64);
    word.is_some_and(|word| get(word) >> (slot % 64) & 1 == 1)
}

fn hold(state: &BlockState, slot: usize) {
    if let Some(word) = state.holders.get(slot / 64) {
        set(word, get(word) | 1 << (slot % 64));
    }
}

fn let_go(state: &BlockState, slot: usize) {
    if let Some(word) = state.holders.get(slot / 64) {
        set(word, get(word) & !(1 << (slot % 64)));
    }
}

fn free_if_unheld(mapped: &Mapped, state: &BlockState) {
    if owner(state).is_some() {
        return;
    }
    let path = path(mapped, get(&state.id));
    let in_flight =
        get(&state.exported) == 1 && File::open(&path).is_ok_and(|file| ofd::is_taken(&file, 0));
    if !in_flight {
        set(&state.id, 0);
        // Whoever still has it mapped keeps the content; the name is not needed any more.
        let _ = fs::remove_file(path);
    }
}

fn path(mapped: &Mapped, number: u64) -> PathBuf {
    mapped.blocks_dir().join(number.to_string())
}

fn make_file(path: &PathBuf, bytes: u64) -> io::Result<File> {
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

fn open_file(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}
