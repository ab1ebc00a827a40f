//! A ledger in a file, with processes that take their places in it as the hook does.

use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;
use softmig_region::{GpuLedger, Ledger, SLOTS, lock_offset, size};

/// The variable by which test processes find their file.
const FILE: &str = "SOFTMIG_TEST_LEDGER";

/// A file that is mapped for good.
#[derive(Clone, Copy)]
pub struct Mapped {
    words: &'static [AtomicU64],
}

impl Mapped {
    /// Maps a file, which may be closed then.
    pub fn new(file: &File) -> Self {
        let map = Box::leak(Box::new(MmapRaw::map_raw(file).unwrap()));
        // SAFETY: a page or more, mapped for good; all who have the file change it atomically.
        let words = unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 8) };
        Self { words }
    }

    /// The word at an offset in bytes.
    pub fn word(self, offset: usize) -> &'static AtomicU64 {
        &self.words[offset / 8]
    }

    /// The ledger in it.
    pub fn ledger(self) -> Ledger<'static> {
        let length = self.words.len() * 8;
        // SAFETY: see `new`.
        unsafe { Ledger::at(self.words.as_ptr().cast(), length) }.unwrap()
    }

    /// A GPU by its number.
    pub fn gpu(self, number: usize) -> GpuLedger<'static> {
        let key = NonZeroU64::new(number as u64 + 1).unwrap();
        self.ledger().gpu(key).unwrap()
    }
}

/// Makes a ledger's file.
pub fn make(path: &Path, gpus: usize) {
    let file = File::create_new(path).unwrap();
    file.set_len(size(gpus) as u64).unwrap();
}

/// Opens a file to map it.
pub fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Locks the byte that says that a slot's process lives; false if it does.
pub fn lock(file: &File, slot: usize) -> bool {
    set_lock(file, slot, libc::F_WRLCK)
}

fn set_lock(file: &File, slot: usize, kind: i32) -> bool {
    // SAFETY: a structure of numbers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as i16;
    range.l_start = lock_offset(slot) as i64;
    range.l_len = 1;
    // SAFETY: an open file and a range, which the call only reads.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) == 0 }
}

/// Takes the first free place: the slot, and the mapping that has its lock.
pub fn join(path: &Path, gpus: usize, mut before_clearing: impl FnMut(usize)) -> (usize, Mapped) {
    let file = open(path);
    let slot = (0..SLOTS).find(|slot| lock(&file, *slot)).unwrap();
    let mapped = Mapped::new(&file);
    before_clearing(slot);
    mapped.ledger().use_slot(slot);
    for gpu in 0..gpus {
        mapped.gpu(gpu).clear(slot);
    }
    (slot, mapped)
}

/// Clears the slots below `top` whose processes are dead; how many held anything.
pub fn reap(
    path: &Path,
    mapped: Mapped,
    top: usize,
    mut before_clearing: impl FnMut(usize),
) -> u64 {
    let file = open(path);
    let mut reaped = 0;
    for slot in (0..top).filter(|slot| lock(&file, *slot)) {
        before_clearing(slot);
        let cleared = mapped.ledger().gpus().filter(|gpu| gpu.clear(slot)).count();
        reaped += u64::from(cleared > 0);
        set_lock(&file, slot, libc::F_UNLCK);
    }
    reaped
}

/// Starts this test program again, for one of its tests alone, which finds `path` then.
pub fn start(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// In a process that [`start`] started: its file. It dies with the thread that started it, and leaves it time to look.
pub fn started() -> Option<std::path::PathBuf> {
    let path = std::env::var_os(FILE)?;
    // SAFETY: a number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: a number.
    unsafe { libc::nice(10) };
    Some(path.into())
}
