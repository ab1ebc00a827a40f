//! This process's place in its job's ledger.
//!
//! The lock that says that the process lives belongs to the mapping: the file is closed again, so that programs which
//! close all files keep their place. `exec` and death end it. A child of a fork keeps the mapping and with it the lock,
//! though it never uses either: it has the driver's files too, and the driver keeps the memory of a process as long as
//! anybody has these.

use core::mem::size_of;
use core::num::NonZeroU64;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use softmig_region::{Ledger, MAX_GPUS, SLOTS, lock_offset, size};

use super::allocations::Holdings;
use super::state::Place;
use crate::identity::host::{Node, ThisNode};
use crate::identity::resolve::{Finding, Standing};
use crate::identity::{gate, neighbours};
use crate::os::fixed_str::{Text, text};
use crate::os::once::Once;
use crate::os::{self, Error, File};

/// All that the account knows of this process; empty when all zero, which it is again in the child of a fork.
pub(crate) struct Private {
    member: Once<Member>,
    /// The process it belongs to, where the kernel cannot wipe it for children; else zero.
    owner: AtomicU32,
    /// The GPUs, by their number in CUDA's order.
    pub(crate) places: [Place; MAX_GPUS],
    /// What it holds.
    pub(crate) holdings: Holdings,
    /// When it first saw that the process of a slot is no more, in milliseconds; 0 for not.
    pub(crate) dead_since: [AtomicU64; SLOTS],
}

/// The process's place.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// The ledger.
    pub(crate) ledger: Ledger<'static>,
    /// The process's slot in it.
    pub(crate) slot: usize,
    /// Whether others are in it.
    is_shared: bool,
}

/// Where what is known is, once anything is.
static PRIVATE: AtomicPtr<Private> = AtomicPtr::new(core::ptr::null_mut());

impl Private {
    /// This process's; the first time it takes a place in the ledger.
    #[inline]
    pub(crate) fn get() -> Result<&'static Self, Error> {
        match Self::known() {
            Some(private) => Ok(private),
            None => Self::make(),
        }
    }

    /// The same, if it has one.
    #[inline]
    pub(crate) fn known() -> Option<&'static Self> {
        // Acquire: what was written there before is seen.
        let private = NonNull::new(PRIVATE.load(Ordering::Acquire))?;
        // SAFETY: whatever is stored there is never given back.
        let private: &'static Self = unsafe { private.as_ref() };
        private.member.get()?;
        private.is_ours().then_some(private)
    }

    /// Of a process that cannot have a place: it gets no memory.
    pub(crate) fn nowhere() -> &'static Self {
        static NOWHERE: Private = Private {
            member: Once::new(),
            owner: AtomicU32::new(0),
            places: [const { Place::new() }; MAX_GPUS],
            holdings: Holdings::new(),
            dead_since: [const { AtomicU64::new(0) }; SLOTS],
        };
        &NOWHERE
    }

    /// The place, if there is one.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.get()
    }

    /// Takes a place. Threads that come here at the same time each take one; the first to keep it keeps it for all.
    #[cold]
    fn make() -> Result<&'static Self, Error> {
        let _errno = os::Errno::save();
        let this = Self::placed()?;
        let (member, mapping) = gate::with_finding(Member::join)?;
        if !this.member.keep(member) {
            mapping.give_back();
            this.member.wait();
        }
        Self::known().ok_or(Error::AGAIN)
    }

    /// What is stored for this process, with a place or still without.
    fn placed() -> Result<&'static Self, Error> {
        let before = PRIVATE.load(Ordering::Acquire);
        let stored = match NonNull::new(before).filter(|private| {
            // SAFETY: see `known`.
            unsafe { private.as_ref() }.is_ours()
        }) {
            Some(private) => private,
            None => Self::store(before)?,
        };
        // SAFETY: see `known`.
        Ok(unsafe { stored.as_ref() })
    }

    /// Stores a new one, or gives the one that another thread has stored before.
    fn store(before: *mut Self) -> Result<NonNull<Self>, Error> {
        let new = fresh()?;
        let stored =
            PRIVATE.compare_exchange(before, new.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
        let Some(other) = stored.err().and_then(NonNull::new) else {
            return Ok(new);
        };
        os::unmap(new.cast(), size_of::<Self>());
        Ok(other)
    }

    /// Whether it is this process's: a child of a fork has it empty, or as its parent's where the kernel cannot wipe it.
    fn is_ours(&self) -> bool {
        // Relaxed: the value does not change once it is stored.
        let owner = self.owner.load(Ordering::Relaxed);
        owner == 0 || owner == os::process_id()
    }
}

/// New memory for it.
fn fresh() -> Result<NonNull<Private>, Error> {
    let start = os::map(size_of::<Private>())?;
    let private = start.cast::<Private>();
    if !os::is_wiped_in_children(start, size_of::<Private>()) {
        // SAFETY: mapped, all zero, and nobody else's yet.
        let private: &Private = unsafe { private.as_ref() };
        private.owner.store(os::process_id(), Ordering::Relaxed);
    }
    Ok(private)
}

/// A ledger's memory.
struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

impl Mapping {
    fn give_back(self) {
        os::unmap(self.start, self.size);
    }
}

impl Member {
    /// Takes a place in the ledger of this process's job.
    fn join(finding: &Finding) -> Result<(Self, Mapping), Error> {
        match path(finding) {
            // The job's ledger may be another user's.
            Some(path) if finding.standing == Standing::Neighbours => {
                Self::in_file(&path).or_else(|_| Self::alone())
            }
            Some(path) => Self::in_file(&path),
            None => Self::alone(),
        }
    }

    /// In a ledger that nobody else has.
    fn alone() -> Result<(Self, Mapping), Error> {
        let size = size(MAX_GPUS);
        let start = os::map(size)?;
        let (member, mapping) = Self::at(start, size, 0, false)?;
        member.ledger.use_slot(0);
        Ok((member, mapping))
    }

    fn in_file(path: &Path) -> Result<(Self, Mapping), Error> {
        let file = open(path)?;
        let size = file.status()?.size.min(size(MAX_GPUS));
        let start = os::map_shared(&file, size)?;
        let (mut member, mapping) = Self::at(start, size, 0, true)?;
        let taken = member.free_slot(&file).and_then(|slot| {
            // From here on the lock is the mapping's alone. Some file systems, such as overlays, end it now.
            drop(file);
            if open(path)?.lock_byte(lock_offset(slot))? {
                return Err(Error(libc::EOPNOTSUPP));
            }
            Ok(slot)
        });
        match taken {
            Ok(slot) => {
                member.slot = slot;
                member.ledger.use_slot(slot);
                Ok((member, mapping))
            }
            Err(error) => {
                mapping.give_back();
                Err(error)
            }
        }
    }

    /// Takes the first slot that nobody has, and in which nothing is left of a process that has just ended.
    fn free_slot(&self, file: &File) -> Result<usize, Error> {
        for slot in 0..SLOTS {
            // What is left of a dead process is not locked even for a moment: it is not to look alive.
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
        slot: usize,
        is_shared: bool,
    ) -> Result<(Self, Mapping), Error> {
        let mapping = Mapping { start, size };
        // SAFETY: mapped for as long as the process uses the member, and only read and written as atomics.
        match unsafe { Ledger::at(start.as_ptr(), size) } {
            Some(ledger) => {
                let member = Self {
                    ledger,
                    slot,
                    is_shared,
                };
                Ok((member, mapping))
            }
            None => {
                mapping.give_back();
                Err(Error(libc::EINVAL))
            }
        }
    }

    /// Clears the slots of processes that have been no more for [`SETTLING`].
    pub(crate) fn reap(&self, dead_since: &[AtomicU64; SLOTS]) -> Reaped {
        let mut reaped = Reaped::default();
        let Some(path) = gate::with_finding(path).filter(|_| self.is_shared) else {
            return reaped;
        };
        // Another open file: the lock of a slot that somebody has cannot be had by it, our own neither.
        let Ok(file) = open(&path) else {
            return reaped;
        };
        let now = os::milliseconds();
        for (slot, since) in dead_since.iter().enumerate() {
            let lock = lock_offset(slot);
            let seen = since.load(Ordering::Relaxed);
            if !self.holds_any(slot) {
                since.store(0, Ordering::Relaxed);
                continue;
            }
            // Who waits as well must not look alive, so this takes no lock.
            if file.is_locked(lock) {
                since.store(0, Ordering::Relaxed);
                continue;
            }
            let age = now.saturating_sub(seen);
            // What was seen so long ago may have been another process.
            let is_new = seen == 0 || age > SETTLING.saturating_mul(2);
            if is_new {
                since.store(now.max(1), Ordering::Relaxed);
            }
            if is_new || age < SETTLING {
                reaped.is_waiting = true;
            } else if file.share_byte(lock) == Ok(true) {
                // Whoever wants the slot while it is locked takes another. Who clears it as well may.
                for gpu in self.ledger.gpus() {
                    reaped.is_any |= gpu.clear(slot);
                }
                since.store(0, Ordering::Relaxed);
                file.unlock_byte(lock);
            } else {
                reaped.is_waiting = true;
            }
        }
        reaped
    }

    fn holds_any(&self, slot: usize) -> bool {
        self.ledger.gpus().any(|gpu| gpu.held_by(slot) > 0)
    }
}

/// How long after a process's death its memory may still be the driver's, in milliseconds: the kernel gives up the lock
/// first. Longer than what was seen of processes with many contexts (docs/gpu-notes.md).
const SETTLING: u64 = 1000;

/// What became of the dead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    /// Some held memory, and hold it no more.
    pub(crate) is_any: bool,
    /// Some hold memory that will soon be free.
    pub(crate) is_waiting: bool,
}

/// What this process holds, if it has an account.
#[inline]
pub(crate) fn holdings() -> Option<&'static Holdings> {
    Private::known().map(|private| &private.holdings)
}

/// What is known of each GPU, if this process has an account.
pub(super) fn places() -> Option<&'static [Place]> {
    Private::known().map(|private| private.places.as_slice())
}

/// What the living processes of this process's job hold of a GPU, in units. A process that has no place in the ledger
/// takes none, and maps it for this look alone.
pub(crate) fn held(key: NonZeroU64) -> u64 {
    let ledger = Private::known()
        .and_then(Private::member)
        .map(|member| member.ledger);
    let file = gate::with_finding(path).and_then(|path| open(&path).ok());
    match (ledger, file) {
        (Some(ledger), Some(file)) => held_by_living(ledger, &file, key),
        (Some(ledger), None) => ledger.known(key).map_or(0, |gpu| gpu.held()),
        (None, Some(file)) => seen_by_passer(&file, key).unwrap_or(0),
        (None, None) => 0,
    }
}

fn seen_by_passer(file: &File, key: NonZeroU64) -> Result<u64, Error> {
    let size = file.status()?.size.min(size(MAX_GPUS));
    let start = os::map_shared(file, size)?;
    // SAFETY: mapped until it is given back below, and only read and written as atomics.
    let ledger = unsafe { Ledger::at(start.as_ptr(), size) };
    let held = ledger.map_or(0, |ledger| held_by_living(ledger, file, key));
    os::unmap(start, size);
    Ok(held)
}

fn held_by_living(ledger: Ledger<'_>, file: &File, key: NonZeroU64) -> u64 {
    let Some(gpu) = ledger.known(key) else {
        return 0;
    };
    let held = |slot| {
        let held = gpu.held_by(slot);
        // Ours is another open file than any that holds a lock.
        let is_living = held > 0 && file.is_locked(lock_offset(slot));
        if is_living { held.into() } else { 0 }
    };
    (0..SLOTS).map(held).fold(0, u64::saturating_add)
}

/// The longest path of a ledger.
type Path = Text<256>;

/// Where the ledger is; `None` for a process that counts for itself.
fn path(finding: &Finding) -> Option<Path> {
    match &finding.standing {
        // Root in a user's job; in a user namespace anybody can be root.
        Standing::Job(conf)
            if conf.uid != 0 && os::real_uid() == 0 && ThisNode.is_in_first_user_namespace() =>
        {
            None
        }
        Standing::Job(_) => Some(of_job(finding.job?)),
        Standing::Neighbours => neighbours::neighbour().map(of_job),
        // Of the environment nothing is believed by a program with other rights than its user's.
        Standing::Own(_) if os::is_secure() => None,
        Standing::Own(_) => os::variable(c"SOFTMIG_RUN").map(|path| text(&[path])),
        Standing::Passive | Standing::Denied(_) => None,
    }
}

/// Where a job's ledger is.
fn of_job(job: u32) -> Path {
    let mut path = text(&[b"/var/run/softmig/jobs/"]);
    path.push_number(job.into(), 1);
    path.push(b"/ledger");
    path
}

/// Opens a ledger: a plain file that this user alone can write to, so that nobody else can make it shorter.
fn open(path: &Path) -> Result<File, Error> {
    let path = path.as_path().ok_or(Error::TOO_LONG)?;
    let file = File::open(path, libc::O_RDWR)?;
    let status = file.status()?;
    if !status.is_kept_by_owner() || status.owner != os::real_uid() {
        return Err(Error(libc::EPERM));
    }
    Ok(file)
}
