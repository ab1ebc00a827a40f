//! Where everything is in the file.

use core::num::NonZeroU64;

use crate::atomic::{AtomicU64, Ordering};
use crate::gpu_ledger::{GpuLedger, Slot};

/// The most processes of one job on one node that use a GPU at the same time.
pub const SLOTS: usize = 1024;

/// The most GPUs of one ledger.
pub const MAX_GPUS: usize = 32;

/// How this version lays out the file. The first process writes it; one of another version stays out.
pub(crate) const VERSION: u64 = 1;

#[repr(C, align(64))]
struct Line {
    /// The latest grant.
    grant: AtomicU64,
    /// The refusals after which their process was given memory.
    recovered: AtomicU64,
    /// What belongs to no slot.
    orphans: AtomicU64,
}

#[repr(C, align(64))]
struct Unused([AtomicU64; 40]);

/// The beginning of the file.
#[repr(C, align(64))]
struct Head {
    version: AtomicU64,
    /// Not zero once a process was refused memory.
    refused: AtomicU64,
    /// Slots from here on were never used.
    top: AtomicU64,
    /// Which GPU each part belongs to; zero for none yet.
    gpus: [AtomicU64; MAX_GPUS],
    /// What changes with the grants on each GPU.
    grants: [Line; MAX_GPUS],
    /// The job's own cap on each GPU's time.
    paces: [AtomicU64; MAX_GPUS],
    /// When a launch last waited for credit on each GPU.
    waits: [AtomicU64; MAX_GPUS],
    /// What older libraries write here says nothing any more.
    _unused: Unused,
    /// The most that was held of each GPU after a grant, in units.
    peaks: [AtomicU64; MAX_GPUS],
    /// The refusals on each GPU.
    refusals: [AtomicU64; MAX_GPUS],
    /// The time of late that the cap has charged on each GPU.
    charged: [AtomicU64; MAX_GPUS],
}

pub(crate) const HEAD: usize = 4096;
pub(crate) const OWNERS: usize = core::mem::offset_of!(Head, gpus);
/// And the distance from one to the next.
pub(crate) const RECOVERED: (usize, usize) = (
    core::mem::offset_of!(Head, grants) + core::mem::offset_of!(Line, recovered),
    size_of::<Line>(),
);
/// The same.
pub(crate) const ORPHANS: (usize, usize) = (
    core::mem::offset_of!(Head, grants) + core::mem::offset_of!(Line, orphans),
    size_of::<Line>(),
);
pub(crate) const PEAKS: usize = core::mem::offset_of!(Head, peaks);
pub(crate) const REFUSALS: usize = core::mem::offset_of!(Head, refusals);
const GPU: usize = SLOTS.saturating_mul(size_of::<Slot>());

const _: () = assert!(size_of::<Head>() <= HEAD && GPU == 65536);

/// The size of the file for this number of GPUs.
pub const fn size(gpus: usize) -> usize {
    let gpus = if gpus < MAX_GPUS { gpus } else { MAX_GPUS };
    HEAD.saturating_add(gpus.saturating_mul(GPU))
}

/// The byte of the file whose lock says that the process of this slot lives. It lies far beyond the file's end, where
/// locks may be as well.
pub const fn lock_offset(slot: usize) -> u64 {
    (1_u64 << 40).saturating_add(slot as u64)
}

/// The bytes whose locks say whose memory the supervisor of a pack keeps from the driver's hands, also after the process's end.
pub const KEPT: core::ops::Range<u64> = 1 << 41..(1 << 41) + (1 << 32);

/// The byte for this process, by its number in the machine's own PID namespace.
pub const fn kept_offset(process: u32) -> u64 {
    KEPT.start.saturating_add(process as u64)
}

/// The ledger, mapped.
#[derive(Clone, Copy)]
pub struct Ledger<'a> {
    head: &'a Head,
    slots: &'a [Slot],
}

impl<'a> Ledger<'a> {
    /// The ledger at an address; `None` if it is too small for one GPU, or of another version.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 64 bytes, and `length` bytes from there on stay mapped, readable and writable. Others may
    /// change them at any time, atomically.
    pub unsafe fn at(start: *const u8, length: usize) -> Option<Self> {
        if length < size(1) || !start.addr().is_multiple_of(align_of::<Head>()) {
            return None;
        }
        // SAFETY: long enough and aligned, see above; atomics may hold any bits, and may change.
        let head = unsafe { &*start.cast::<Head>() };
        let first = start.wrapping_add(HEAD).cast::<Slot>();
        let count = length.saturating_sub(HEAD).checked_div(size_of::<Slot>())?;
        // SAFETY: as many as there is room for; see above.
        let slots = unsafe { core::slice::from_raw_parts(first, count) };
        let version = head
            .version
            .compare_exchange(0, VERSION, Ordering::SeqCst, Ordering::SeqCst);
        matches!(version, Ok(_) | Err(VERSION)).then_some(Self { head, slots })
    }

    /// A GPU's part, by the GPU's key. The first process that asks takes a free part; `None` if no part is free.
    pub fn gpu(&self, key: NonZeroU64) -> Option<GpuLedger<'a>> {
        // None is ever given back, so all who ask for one GPU stop at the same.
        let (_, gpu) = self.parts().find(|(owner, _)| {
            let taken = match owner.load(Ordering::SeqCst) {
                0 => owner.compare_exchange(0, key.get(), Ordering::SeqCst, Ordering::SeqCst),
                other => Err(other),
            };
            taken.is_ok() || taken == Err(key.get())
        })?;
        Some(gpu)
    }

    /// A GPU's part, if a process has asked for it with [`Ledger::gpu`].
    pub fn known(&self, key: NonZeroU64) -> Option<GpuLedger<'a>> {
        let (_, gpu) = self
            .parts()
            .find(|(owner, _)| owner.load(Ordering::SeqCst) == key.get())?;
        Some(gpu)
    }

    /// The parts that belong to a GPU.
    pub fn gpus(&self) -> impl Iterator<Item = GpuLedger<'a>> {
        self.parts()
            .filter(|(owner, _)| owner.load(Ordering::SeqCst) != 0)
            .map(|(_, gpu)| gpu)
    }

    /// As many as the file has room for, and whose each is.
    fn parts(&self) -> impl Iterator<Item = (&'a AtomicU64, GpuLedger<'a>)> {
        let head = self.head;
        let owners = head.gpus.iter().zip(&head.grants).zip(&head.paces);
        let caps = head.charged.iter().zip(&head.waits);
        let records = head.peaks.iter().zip(&head.refusals).zip(caps);
        let slots = self.slots.chunks_exact(SLOTS);
        owners.zip(slots).zip(records).map(
            |((((owner, grant), pace), slots), ((peak, refusals), (charged, waits)))| {
                let gpu = GpuLedger {
                    grant: &grant.grant,
                    recovered: &grant.recovered,
                    orphans: &grant.orphans,
                    slots,
                    top: &head.top,
                    pace,
                    peak,
                    refusals,
                    charged,
                    waits,
                    all_waits: &head.waits,
                };
                (owner, gpu)
            },
        )
    }

    /// Says that this slot is in use. Before the first charge to it.
    pub fn use_slot(&self, slot: usize) {
        let top = (slot as u64).saturating_add(1);
        self.head.top.fetch_max(top, Ordering::SeqCst);
        // Older libraries leave it as it was.
        for gpu in self.gpus() {
            gpu.forget_exports(slot);
        }
    }

    /// Says whose slot it is: a name that no other process has, or 0. Before the first charge to it.
    pub fn set_process(&self, slot: usize, process: u64) {
        if let Some(slot) = self.slots.get(slot) {
            slot.process.store(process, Ordering::SeqCst);
        }
    }

    /// The name of the process whose slot it is or was; 0 for one without a name, or of an older library.
    pub fn process(&self, slot: usize) -> u64 {
        let slot = self.slots.get(slot);
        slot.map_or(0, |slot| slot.process.load(Ordering::SeqCst))
    }

    /// True for the first process that was refused memory.
    pub fn is_first_refusal(&self) -> bool {
        self.head.refused.swap(1, Ordering::SeqCst) == 0
    }
}

#[cfg(all(test, not(loom)))]
#[path = "layout_tests.rs"]
mod tests;
