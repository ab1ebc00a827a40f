//! This process's place in its job's ledger.
//!
//! The lock that says that the process lives belongs to the mapping: the file is closed again, so that programs which
//! close all files keep their place. `exec` and death end it. A child of a fork keeps the mapping and with it the lock,
//! though it never uses either: it has the driver's files too, and the driver keeps the memory of a process as long as
//! any process has these.

#![expect(unsafe_code, reason = "maps the ledger, which processes share")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softmig_policy::node::identity::{Finding, ProcessRules, job_file};
use softmig_policy::node::process_view::ProcessView;
use softmig_region::{KEPT, Ledger, MAX_GPUS, SLOTS, kept_offset, lock_offset, size};

use super::allocations::Holdings;
use super::state::GpuState;
use crate::driver::nvml_queries;
use crate::identity::host::ThisNode;
use crate::identity::{gate, neighbours};
use crate::os::cells::{Fresh, Kept, Once, zeroed};
use crate::os::fixed_str::{Text, text};
use crate::os::{self, Error, File};

/// All that is known of this process and of what it holds; empty when all zero, which it is again in the child of a fork.
pub(crate) struct ProcessLedger {
    slot: Once<Slot>,
    /// The process it belongs to, where the kernel cannot wipe it for children; else zero.
    owner: AtomicU32,
    /// The GPUs, by their number in CUDA's order.
    pub(crate) gpus: [GpuState; MAX_GPUS],
    /// The memory that it holds.
    pub(crate) holdings: Holdings,
    /// The dead that it has seen, by their slots.
    pub(crate) dead: [Dead; SLOTS],
}

/// A dead process that this one has seen in a slot.
pub(crate) struct Dead {
    /// When it was first seen, in milliseconds; 0 for not.
    since: AtomicU64,
    /// Its name; 0 for one without.
    name: AtomicU64,
}

impl Dead {
    const fn none() -> Self {
        Self {
            since: AtomicU64::new(0),
            name: AtomicU64::new(0),
        }
    }
}

/// The process's slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// The ledger.
    pub(crate) ledger: Ledger<'static>,
    /// Its number there.
    pub(crate) number: usize,
    /// Whether others are in it.
    is_shared: bool,
}

/// The place of this process's data, once there is any.
static PROCESS: Kept<ProcessLedger> = Kept::new();

zeroed! { ProcessLedger { slot, owner, gpus, holdings, dead } }
zeroed! { Dead { since, name } }

impl ProcessLedger {
    /// This process's; the first time it takes a place in the ledger.
    #[inline]
    pub(crate) fn get() -> Result<&'static Self, Error> {
        match Self::known() {
            Some(process) => Ok(process),
            None => Self::make(),
        }
    }

    /// The same, if it has one.
    #[inline]
    pub(crate) fn known() -> Option<&'static Self> {
        let process = PROCESS.get()?;
        process.slot.get()?;
        process.is_ours().then_some(process)
    }

    /// The data of a process that cannot have a slot: it gets no memory.
    pub(crate) fn nowhere() -> &'static Self {
        static NOWHERE: ProcessLedger = ProcessLedger {
            slot: Once::new(),
            owner: AtomicU32::new(0),
            gpus: [const { GpuState::new() }; MAX_GPUS],
            holdings: Holdings::new(),
            dead: [const { Dead::none() }; SLOTS],
        };
        &NOWHERE
    }

    /// The place, if there is one.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slot.get()
    }

    /// Takes a place. Threads that come here at the same time each take one; the first to keep it keeps it for all.
    #[cold]
    fn make() -> Result<&'static Self, Error> {
        let _errno = os::Errno::save();
        let this = Self::placed()?;
        let (slot, mapping) = gate::with_finding(Slot::join)?;
        if this.slot.keep(slot) {
            // Who is dead now is dead for some time when memory is short.
            slot.reap(&this.dead);
        } else {
            mapping.give_back();
            this.slot.wait();
        }
        Self::known().ok_or(Error::AGAIN)
    }

    /// The memory for this process's state, with a place in the ledger or still without.
    fn placed() -> Result<&'static Self, Error> {
        let before = PROCESS.get();
        if let Some(process) = before.filter(|process| process.is_ours()) {
            return Ok(process);
        }
        let (new, is_wiped) = Fresh::<Self>::zeroed()?;
        if !is_wiped {
            new.owner.store(os::process_id(), Ordering::Relaxed);
        }
        PROCESS.exchange(before, new).ok_or(Error::AGAIN)
    }

    /// Whether it is this process's: a child of a fork has it empty, or as its parent's where the kernel cannot wipe it.
    fn is_ours(&self) -> bool {
        // Relaxed: the value does not change once it is stored.
        let owner = self.owner.load(Ordering::Relaxed);
        owner == 0 || owner == os::process_id()
    }
}

/// A ledger's memory.
struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

impl Mapping {
    fn give_back(self) {
        // SAFETY: mapped for a slot that is not kept.
        unsafe { os::unmap(self.start, self.size) };
    }
}

impl Slot {
    /// Takes a place in the ledger of this process's job.
    fn join(finding: &Finding) -> Result<(Self, Mapping), Error> {
        match path(finding) {
            // The job's ledger may be another user's.
            Some(path) if finding.standing == ProcessRules::Neighbours => {
                Self::in_file(&path).or_else(|_| Self::alone())
            }
            Some(path) => Self::in_file(&path),
            None => Self::alone(),
        }
    }

    /// In a ledger that no other process has.
    fn alone() -> Result<(Self, Mapping), Error> {
        let size = size(MAX_GPUS);
        let start = os::map(size)?;
        let (slot, mapping) = Self::at(start, size, 0, false)?;
        slot.ledger.set_process(0, os::process_name());
        slot.ledger.use_slot(0);
        Ok((slot, mapping))
    }

    fn in_file(path: &Path) -> Result<(Self, Mapping), Error> {
        let file = open(path)?;
        let size = file.status()?.size.min(size(MAX_GPUS));
        let start = os::map_shared(&file, size)?;
        let (mut own, mapping) = Self::at(start, size, 0, true)?;
        let taken = own.take_slot(path, &file).and_then(|slot| {
            // From here on the lock is the mapping's alone. Some file systems, such as overlays, end it now.
            drop(file);
            if open(path)?.lock_byte(lock_offset(slot))? {
                return Err(Error(libc::EOPNOTSUPP));
            }
            Ok(slot)
        });
        match taken {
            Ok(slot) => {
                own.number = slot;
                own.ledger.set_process(slot, os::process_name());
                own.ledger.use_slot(slot);
                Ok((own, mapping))
            }
            Err(error) => {
                mapping.give_back();
                Err(error)
            }
        }
    }

    /// Takes a free slot. If all are taken, those of dead processes are cleared: the job may have had room all the time.
    fn take_slot(&self, path: &Path, file: &File) -> Result<usize, Error> {
        let taken = self.free_slot(file);
        if taken != Err(Error(libc::EUSERS)) {
            return taken;
        }
        let (dead, _) = Fresh::<[Dead; SLOTS]>::zeroed()?;
        let others = open(path)?;
        let deadline = os::milliseconds().saturating_add(longest_wait());
        loop {
            let reaped = self.clear_dead(&others, &dead);
            let taken = self.free_slot(file);
            let is_over = !reaped.is_waiting || os::milliseconds() > deadline;
            if taken != Err(Error(libc::EUSERS)) || is_over {
                return taken;
            }
            os::pause();
        }
    }

    /// Takes the first free slot in which nothing is left of a process that has just ended.
    fn free_slot(&self, file: &File) -> Result<usize, Error> {
        for slot in 0..SLOTS {
            // The slot of a dead process is not locked even for a moment: the lock would make it look alive.
            if self.holds_any(slot) || !file.lock_byte(lock_offset(slot))? {
                continue;
            }
            if !self.holds_any(slot) {
                return Ok(slot);
            }
            file.unlock_byte(lock_offset(slot));
        }
        Err(Error(libc::EUSERS))
    }

    fn at(
        start: NonNull<u8>,
        size: usize,
        number: usize,
        is_shared: bool,
    ) -> Result<(Self, Mapping), Error> {
        let mapping = Mapping { start, size };
        // SAFETY: mapped for as long as the process uses the slot, and only read and written as atomics.
        match unsafe { Ledger::at(start.as_ptr(), size) } {
            Some(ledger) => {
                let slot = Self {
                    ledger,
                    number,
                    is_shared,
                };
                Ok((slot, mapping))
            }
            None => {
                mapping.give_back();
                Err(Error(libc::EINVAL))
            }
        }
    }

    /// Clears the slots of processes that have been dead for [`SETTLING`], or gone for [`SETTLING_GONE`], and are not kept.
    pub(crate) fn reap(&self, dead: &[Dead; SLOTS]) -> Reaped {
        let path = gate::with_finding(path).filter(|_| self.is_shared);
        match path.map(|path| open(&path)) {
            Some(Ok(file)) => self.clear_dead(&file, dead),
            _ => Reaped::default(),
        }
    }

    /// The same by another open file than this process's: it cannot get the lock of a slot that a process has, not even our own.
    fn clear_dead(&self, file: &File, dead: &[Dead; SLOTS]) -> Reaped {
        let mut reaped = Reaped::default();
        let now = os::milliseconds();
        for (slot, Dead { since, name }) in dead.iter().enumerate() {
            let lock = lock_offset(slot);
            let seen = since.load(Ordering::Relaxed);
            if !self.holds_any(slot) {
                since.store(0, Ordering::Relaxed);
                continue;
            }
            let process = self.ledger.process(slot);
            let is_gone = os::is_gone(process);
            // A pack's supervisor has the driver's files open after a process's end, for the time that its kernels take. It says so by
            // the number outside, which may not be known here.
            let is_outermost = os::is_outermost(process);
            let is_kept = file.is_any_held(match is_outermost {
                true => os::one_byte(kept_offset(process as u32)),
                false => KEPT,
            });
            // Another process that looks must not look alive, so this takes no lock.
            if file.is_locked(lock) {
                since.store(0, Ordering::Relaxed);
                // The kernel may end the lock of one that is gone a moment later.
                reaped.is_waiting |= is_gone && is_kept;
                // A child has its mapping, and may have the driver's files. Asked again: it may be another one's slot by now.
                let has_child = is_gone && !is_kept && self.ledger.process(slot) == process;
                if has_child && nvml_queries::lists_all() {
                    self.ledger.gpus().for_each(|gpu| gpu.orphan_all(slot));
                }
                continue;
            }
            let age = now.saturating_sub(seen);
            let settling = match is_gone {
                // However long that is, unless it may be for the program that the process has become.
                _ if is_kept && is_outermost && !self.lives(file, slot, process) => u64::MAX,
                _ if is_kept => SETTLING_KEPT,
                true => SETTLING_GONE,
                false => SETTLING,
            };
            let is_other = name.swap(process, Ordering::Relaxed) != process;
            // One without a name that was seen that long ago may have been another one.
            let is_unsure = !is_gone && age > settling.saturating_mul(2);
            let is_new = seen == 0 || is_other || is_unsure;
            if is_new {
                since.store(now.max(1), Ordering::Relaxed);
            }
            if is_new || age < settling {
                reaped.is_waiting = true;
            } else if file.share_byte(lock) == Ok(true) {
                // A process that wants the slot while it is locked takes another. Several may clear it.
                for gpu in self.ledger.gpus() {
                    if gpu.exported_by(slot) > 0 && os::is_outermost(process) {
                        gpu.orphan_exported(slot);
                    } else {
                        gpu.clear(slot);
                    }
                }
                since.store(0, Ordering::Relaxed);
                // A process of an older library has no name.
                self.ledger.set_process(slot, 0);
                file.unlock_byte(lock);
            } else {
                reaped.is_waiting = true;
            }
        }
        reaped
    }

    /// Whether another slot is that of a living process with this name.
    fn lives(&self, file: &File, slot: usize, process: u64) -> bool {
        let others = (0..SLOTS).filter(|it| *it != slot && self.ledger.process(*it) == process);
        others.map(lock_offset).any(|lock| file.is_locked(lock))
    }

    fn holds_any(&self, slot: usize) -> bool {
        self.ledger.gpus().any(|gpu| gpu.held_by(slot) > 0)
    }
}

/// How long after a process's death its memory may still be the driver's, in milliseconds: the kernel gives up the lock
/// first. Longer than what was seen of processes with many contexts (research/gpu-memory.md).
const SETTLING: u64 = 1000;

/// The same after its death was first seen, of one that is gone: when its parent knew of its end, the driver mostly had the memory
/// already, and 16 ms later in all deaths that were watched.
const SETTLING_GONE: u64 = 50;

/// The same of one whose files its pack's supervisor may have open, where it is not known for whom it has some: mostly no longer than
/// this (monitor/src/packs/kept.rs).
const SETTLING_KEPT: u64 = 21_000;

/// For so long it is waited for: for 20 s, and for the ends before it, each of which may keep the driver for 2 s.
const LONGEST_KEPT: u64 = 30_000;

/// How many milliseconds the memory and the slots of dead processes are waited for.
pub(super) fn longest_wait() -> u64 {
    match gate::is_packed() {
        true => LONGEST_KEPT,
        false => SETTLING.saturating_mul(2),
    }
}

/// The outcome of a look at dead processes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    /// Some hold memory that will soon be free.
    pub(crate) is_waiting: bool,
}

/// The memory that this process holds, if it has a place in a ledger.
#[inline]
pub(crate) fn holdings() -> Option<&'static Holdings> {
    ProcessLedger::known().map(|process| &process.holdings)
}

/// The state of each GPU, if this process has a place in a ledger.
pub(super) fn gpu_states() -> Option<&'static [GpuState]> {
    ProcessLedger::known().map(|process| process.gpus.as_slice())
}

/// A ledger of a test's own.
#[cfg(test)]
pub(crate) fn ledger_of_test() -> Ledger<'static> {
    Slot::alone().unwrap().0.ledger
}

/// The longest path of a ledger.
pub(super) type Path = Text<256>;

/// Where the ledger is; `None` for a process that counts for itself.
pub(super) fn path(finding: &Finding) -> Option<Path> {
    match &finding.standing {
        // Root in a user's job; in a user namespace any user can be root.
        ProcessRules::Job(conf) if conf.uid != 0 && ThisNode.is_root() => None,
        ProcessRules::Job(_) => Some(job_file(finding.job?, b"ledger")),
        ProcessRules::Neighbours => neighbours::neighbour().map(|job| job_file(job, b"ledger")),
        // A program with other rights than its user's believes nothing of the environment.
        ProcessRules::Own(_) if os::is_secure() => None,
        ProcessRules::Own(_) => os::variable(c"SOFTMIG_RUN").map(|path| text(&[path])),
        ProcessRules::Passive | ProcessRules::Denied(_) => None,
    }
}

/// Opens a ledger: a plain file that this user alone can write to, so that no other user can make it shorter.
pub(super) fn open(path: &Path) -> Result<File, Error> {
    let path = path.as_path().ok_or(Error::TOO_LONG)?;
    let file = File::open(path, libc::O_RDWR)?;
    let status = file.status()?;
    if !status.is_kept_by_owner() || status.owner != os::real_uid() {
        return Err(Error(libc::EPERM));
    }
    Ok(file)
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
