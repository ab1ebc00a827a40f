//! The part of the node's file that its processes share: atomics and fixed arrays, all zero at first.
//!
//! A process holds [`Shared::lock`] while it changes more than one word. It may die at any instruction, also while it
//! holds the lock; so no sum is kept, only each process's own figures, and those are dropped with the process.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kind::Kind;
use crate::lock::RobustLock;

/// GPUs, and parts of divided ones.
pub(crate) const DEVICES: usize = 32;
/// Processes at a time.
pub(crate) const SLOTS: usize = 256;
/// Functions that are counted.
pub(crate) const FUNCTIONS: usize = 512;
/// Pieces of physical memory that several processes may hold.
pub(crate) const BLOCKS: usize = 1024;
/// Stretches of work remembered for each device.
pub(crate) const STRETCHES: usize = 64;
/// Channel groups on a device at a time.
pub(crate) const GROUPS: usize = 32;
/// The channels of each.
pub(crate) const CHANNELS: u32 = 8;
/// Times remembered when a group ran.
pub(crate) const RUNS: usize = 256;
/// Switches that a device's log has room for.
pub(crate) const SWITCHES: usize = 4096;
/// Words in which a bit for each process fits.
pub(crate) const HOLDER_WORDS: usize = SLOTS / 64;

/// All that processes share.
#[repr(C)]
pub(crate) struct Shared {
    pub lock: RobustLock,
    /// The time that a driven clock shows, in nanoseconds.
    pub clock: AtomicU64,
    /// Numbers for slots and blocks that are never given twice.
    pub sequence: AtomicU64,
    pub functions: [Name; FUNCTIONS],
    pub devices: [DeviceState; DEVICES],
    pub slots: [Slot; SLOTS],
    pub blocks: [BlockState; BLOCKS],
    pub runlists: [Runlist; DEVICES],
}

/// A device's scheduler: src/runlist.rs.
#[repr(C)]
pub(crate) struct Runlist {
    /// Until when it was played.
    pub now: AtomicU64,
    /// When it was last seen who has died.
    pub reaped: AtomicU64,
    /// The group that is on the GPU, plus one; 0 for none.
    pub resident: AtomicU64,
    /// The slot that the log names for it.
    pub named: AtomicU64,
    /// From which group on the next one is looked for.
    pub next: AtomicU64,
    /// When the change to it is over, and its slice.
    pub begins: AtomicU64,
    pub slice_ends: AtomicU64,
    /// How long the next change takes.
    pub change: AtomicU64,
    pub groups: [Group; GROUPS],
    /// How many calls held some of their channels before they came to one that is not there.
    pub half_held: AtomicU64,
    /// How many switches there were.
    pub logged: AtomicU64,
    pub log: [Logged; SWITCHES],
}

/// A channel group.
#[repr(C)]
pub(crate) struct Group {
    /// The slot of its process, plus one; 0 for a place that is free.
    pub slot: AtomicU64,
    /// Given to no other.
    pub number: AtomicU64,
    /// The process's descriptor by which it was made.
    pub file: AtomicU64,
    /// Its time slice.
    pub slice: AtomicU64,
    /// How often each channel was held without being let run since.
    pub held: [AtomicU64; CHANNELS as usize],
    /// Whether one was held after the process's end.
    pub is_off: AtomicU64,
    /// All the work that it was ever given, and what of that is done.
    pub queued: AtomicU64,
    pub done: AtomicU64,
    /// Since when it has had work without being on the GPU, and the longest that this took.
    pub since: AtomicU64,
    pub waited: AtomicU64,
    /// Where the next run goes.
    pub next_run: AtomicU64,
    pub runs: [Run; RUNS],
}

/// When a group ran without a gap, and what it had done before.
#[repr(C)]
pub(crate) struct Run {
    pub start: AtomicU64,
    pub end: AtomicU64,
    pub done: AtomicU64,
}

/// A group came or left.
#[repr(C)]
pub(crate) struct Logged {
    pub at: AtomicU64,
    /// As its slot's.
    pub pid: AtomicU64,
    pub pid_namespace: AtomicU64,
    pub group: AtomicU64,
    pub is_start: AtomicU64,
}

/// A short name.
#[repr(C)]
pub(crate) struct Name([AtomicU64; Name::BYTES / 8]);

/// The work and memory of a device.
#[repr(C)]
pub(crate) struct DeviceState {
    /// Until when it has work, on the node's clock.
    pub busy_until: AtomicU64,
    /// The most that was taken of it.
    pub peak: AtomicU64,
    /// Where the next stretch goes.
    pub next_stretch: AtomicU64,
    pub stretches: [Stretch; STRETCHES],
}

/// Work of one process without a gap.
#[repr(C)]
pub(crate) struct Stretch {
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// The slot's number plus one; 0 for none.
    pub slot: AtomicU64,
}

/// One process.
#[repr(C)]
pub(crate) struct Slot {
    /// Odd while a process has it.
    pub generation: AtomicU64,
    /// When it was taken, as a number from [`Shared::sequence`].
    pub taken: AtomicU64,
    pub pid: AtomicU64,
    /// Inode of the pid namespace in which `pid` counts; 0 if the process could not tell.
    pub pid_namespace: AtomicU64,
    /// In clock ticks since the machine's start.
    pub start_time: AtomicU64,
    pub command: Name,
    /// When it joined and when it was seen to have left, on the node's clock; 0 for not yet.
    pub joined: AtomicU64,
    pub left: AtomicU64,
    /// When it was seen to be dead, while its memory is still there; 0 for not.
    pub dead_since: AtomicU64,
    /// The MPS server of which it is a client, and whether all clients of that have failed; 0 for none and not.
    pub server: AtomicU64,
    pub has_failed: AtomicU64,
    /// The inode of its device of unified memory.
    pub unified: AtomicU64,
    /// Not all are used: `bytes[device][kind]`.
    pub bytes: [[AtomicU64; Kind::ALL.len()]; DEVICES],
    /// The same while all of that is on the host.
    pub aside: [[AtomicU64; Kind::ALL.len()]; DEVICES],
    /// How far on the way there: a [`crate::checkpoint::Stage`].
    pub stage: AtomicU64,
    /// The most that it ever had on a device.
    pub peak: [AtomicU64; DEVICES],
    /// How long its kernels ran on a device.
    pub busy: [AtomicU64; DEVICES],
    pub calls: [AtomicU64; FUNCTIONS],
}

/// Physical memory that lives as long as anyone holds it.
#[repr(C)]
pub(crate) struct BlockState {
    /// 0 for an entry that is free.
    pub id: AtomicU64,
    pub device: AtomicU64,
    pub bytes: AtomicU64,
    /// The inode of its file.
    pub inode: AtomicU64,
    /// 1 once a descriptor of it was handed out.
    pub exported: AtomicU64,
    /// Its purpose: a [`Kind`], or a number of src/block.rs.
    pub kind: AtomicU64,
    /// The slot of the process that made it.
    pub maker: AtomicU64,
    /// A bit for each slot.
    pub holders: [AtomicU64; HOLDER_WORDS],
}

impl Slot {
    /// Whether a process has it.
    pub(crate) fn is_taken(&self) -> bool {
        get(&self.generation) % 2 == 1
    }
}

impl Name {
    /// The longest name, with nothing to end it.
    pub(crate) const BYTES: usize = 56;

    /// The name.
    pub(crate) fn get(&self) -> String {
        let bytes: Vec<u8> = self
            .0
            .iter()
            .flat_map(|word| get(word).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether it is this one, without making a string of it.
    pub(crate) fn is(&self, name: &str) -> bool {
        let bytes = name.as_bytes();
        bytes.len() <= Self::BYTES
            && self
                .0
                .iter()
                .zip((0..).step_by(8))
                .all(|(word, at)| get(word) == word_of(bytes, at))
    }

    /// Whether the name is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.first().is_none_or(|word| get(word) == 0)
    }

    /// Writes it, cut to what fits.
    pub(crate) fn set(&self, name: &str) {
        for (word, at) in self.0.iter().zip((0..).step_by(8)) {
            set(word, word_of(name.as_bytes(), at));
        }
    }
}

/// Eight bytes from `at`, filled up with zeros.
fn word_of(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Reads. Relaxed, as `set`: the lock orders what belongs together, and the rest are figures by themselves.
pub(crate) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Writes.
pub(crate) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}
