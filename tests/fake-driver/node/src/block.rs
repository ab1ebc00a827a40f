//! Physical memory that several processes may hold: what `cuMemCreate` makes, and what is opened by handle.
//!
//! A block lives as long as a process holds it or a descriptor of it is open somewhere, which may be in a socket
//! between two processes: the descriptor's open file carries a lock. Each block has a file of its own, and processes
//! that map it share what is in it. The block counts for the process that made it. When that process lets go, it counts
//! for the first one that still holds it. While only descriptors are left, it counts for the device alone. A shadow is
//! memory of a pool that other processes opened. It counts as the pool's while its maker holds it, and afterwards for
//! the device alone (seen on an H200).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use crate::error::MemoryError;
use crate::files::{make_file, open_file, path};
use crate::kind::Kind;
use crate::layout::{BlockState, get, set};
use crate::mapped::Mapped;
use crate::process::Process;
use crate::{memory, ofd};

/// A block's number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId(pub u64);

/// A block that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub id: BlockId,
    /// The device whose memory it is.
    pub device: usize,
    /// Its size.
    pub bytes: u64,
    /// Whether it is memory of the host after all.
    pub is_host: bool,
}

impl Process {
    /// Takes a block of a device's memory; this process holds it.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if less than that is left of the device.
    pub fn create_block(&self, device: usize, bytes: u64) -> Result<Block, MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        memory::require(&self.mapped, device, bytes)?;
        let block = self.make(device, bytes, Kind::Vmm.index() as u64)?;
        let record = self.record().ok_or(MemoryError::Ended)?;
        memory::note_peak(&self.mapped, self.slot, record, device);
        Ok(block)
    }

    /// Turns memory that this process took into a block, so that others can hold it.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if there are too many.
    pub fn turn_into_block(
        &self,
        device: usize,
        kind: Kind,
        bytes: u64,
    ) -> Result<Block, MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        let block = self.make(device, bytes, kind.index() as u64)?;
        memory::give_back(
            self.record().ok_or(MemoryError::Ended)?,
            device,
            kind,
            bytes,
        );
        Ok(block)
    }

    /// Makes a shadow of memory that this process took of a pool, and will let go of with it.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if there are too many.
    pub fn create_shadow(&self, device: usize, bytes: u64) -> Result<Block, MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        self.make(device, bytes, SHADOW)
    }

    /// Takes a block of the host's memory, which counts for no device.
    ///
    /// # Errors
    /// [`MemoryError::Full`] if there are too many.
    pub fn create_host_block(&self, bytes: u64) -> Result<Block, MemoryError> {
        let _held = self.mapped.shared().lock.lock();
        self.make(0, bytes, HOST)
    }

    fn make(&self, device: usize, bytes: u64, kind: u64) -> Result<Block, MemoryError> {
        let shared = self.mapped.shared();
        self.record().ok_or(MemoryError::Ended)?;
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
        set(&state.kind, kind);
        set(&state.maker, self.slot as u64);
        for word in &state.holders {
            set(word, 0);
        }
        hold(state, self.slot);
        set(&state.id, id);
        Ok(Block {
            id: BlockId(id),
            device,
            bytes,
            is_host: kind == HOST,
        })
    }

    /// Holds the block whose file this is; `None` if it is not a block's file.
    #[must_use]
    pub fn hold_block_of(&self, file: &File) -> Option<Block> {
        let inode = file.metadata().ok()?.ino();
        self.hold_block(|state| get(&state.inode) == inode)
    }

    /// Holds the block of this number; `None` if it is no longer there.
    #[must_use]
    pub fn hold_block_numbered(&self, number: u64) -> Option<Block> {
        self.hold_block(|state| get(&state.id) == number)
    }

    fn hold_block(&self, which: impl Fn(&BlockState) -> bool) -> Option<Block> {
        let shared = self.mapped.shared();
        let _held = shared.lock.lock();
        self.record()?;
        let mut blocks = shared.blocks.iter();
        let state = blocks.find(|state| get(&state.id) != 0 && which(state))?;
        hold(state, self.slot);
        Some(Block {
            id: BlockId(get(&state.id)),
            device: usize::try_from(get(&state.device)).ok()?,
            bytes: get(&state.bytes),
            is_host: get(&state.kind) == HOST,
        })
    }

    /// Lets go of a block. Its memory is free once no process and no descriptor holds it.
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

    /// The file of a block, to be mapped.
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
}

/// Frees the blocks that no process and no descriptor holds.
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

/// The bytes of all blocks of a device.
pub(crate) fn on_device(mapped: &Mapped, device: usize) -> u64 {
    of_device(mapped, device)
        .filter(|state| match get(&state.kind) {
            HOST => false,
            SHADOW => maker(state).is_none(),
            _ => true,
        })
        .map(|state| get(&state.bytes))
        .sum()
}

/// Blocks of a device that count for a process as memory of a kind.
pub(crate) fn of_holder(mapped: &Mapped, slot: usize, device: usize, kind: Kind) -> u64 {
    of_device(mapped, device)
        .filter(|state| get(&state.kind) == kind.index() as u64 && owner(state) == Some(slot))
        .map(|state| get(&state.bytes))
        .sum()
}

/// Blocks of a device that count for a process.
pub(crate) fn of_holder_in_all(mapped: &Mapped, slot: usize, device: usize) -> u64 {
    let kinds = Kind::ALL.into_iter();
    kinds
        .map(|kind| of_holder(mapped, slot, device, kind))
        .sum()
}

/// A number in the place of a kind: the block is a shadow.
const SHADOW: u64 = u64::MAX;
/// The same for memory of the host.
const HOST: u64 = u64::MAX - 1;

fn of_device(mapped: &Mapped, device: usize) -> impl Iterator<Item = &BlockState> {
    let blocks = mapped.shared().blocks.iter();
    blocks.filter(move |state| get(&state.id) != 0 && get(&state.device) == device as u64)
}

/// The process that made a block, if it holds it.
fn maker(state: &BlockState) -> Option<usize> {
    let maker = usize::try_from(get(&state.maker)).ok()?;
    holds(state, maker).then_some(maker)
}

/// The process for which a block counts.
fn owner(state: &BlockState) -> Option<usize> {
    if let Some(maker) = maker(state) {
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
        // A process that still has it mapped keeps the content; the name is not needed any more.
        let _ = fs::remove_file(path);
    }
}
