//! The pages that the arbiter and one process share.

use memmap2::{Advice, MmapRaw, UncheckedAdvice};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::futex;
use rustix::time::Timespec;
use softmig_policy::node::limits::Share;
use softmig_region::seat::{Channel, MOST_CHANNELS, Pacing, Seat, WHOLE};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::schedule::Nanos;

/// A seat's pages as the arbiter has them.
#[derive(Debug)]
pub(super) struct Page {
    map: MmapRaw,
}

impl Page {
    /// Makes them, and the file by which the process gets them.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"softmig-seat", flags)?;
        ftruncate(&file, Seat::SIZE as u64)?;
        // Else the process could make it shorter, and reading it would end this process.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Self {
            map: MmapRaw::map_raw(&file)?,
        };
        // A process can map its pages thousands of times, and a child's mapping would wait for all of them (`closer`).
        page.map.advise(Advice::DontFork)?;
        Ok((page, file))
    }

    /// For a process with an old library: it launches as it likes, as long as it has this seat.
    pub(super) fn set_free_for_good(&self, share: Share) {
        let part = share.part_of(WHOLE.into());
        if let Ok(seat) = self.seat() {
            seat.give_endless_turn(u32::try_from(part).unwrap_or(WHOLE));
        }
        self.set_pacing(Pacing::Free);
    }

    fn seat(&self) -> io::Result<&Seat> {
        let start = self.map.as_ptr();
        // SAFETY: the pages are mapped as long as `self` lives, and its file is sealed; the process changes atomics only, or
        // what it likes, which is the same to atomics.
        let seat = unsafe { Seat::at(start) };
        seat.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether the process wants the GPU, as it says.
    pub(super) fn wants_gpu(&self) -> bool {
        self.seat()
            .is_ok_and(|seat| seat.wants_gpu().load(SeqCst) != 0)
    }

    /// Tells the process that the arbiter is there.
    pub(super) fn heartbeat(&self, now: Nanos) {
        if let Ok(seat) = self.seat() {
            seat.heartbeat()
                .store(u64::try_from(now).unwrap_or(0), Relaxed);
        }
    }

    /// Tells the process how it is to launch.
    pub(super) fn set_pacing(&self, pacing: Pacing) {
        if let Ok(seat) = self.seat() {
            seat.set_pacing(pacing);
        }
    }

    /// For how long it has had work, as it says.
    pub(super) fn pending(&self, now: u64) -> u64 {
        self.seat().map_or(0, |seat| seat.pending(now))
    }

    /// When it told last that it has work; 0 if it told that it has none.
    pub(super) fn has_work_since(&self) -> u64 {
        self.seat().map_or(0, Seat::has_work_since)
    }

    /// How often the process told of its channels.
    pub(super) fn version(&self) -> u32 {
        self.seat().map_or(0, |seat| seat.version().load(SeqCst))
    }

    /// Tells the process that its channels of this version were heard of.
    pub(super) fn hear(&self, version: u32) {
        if let Ok(seat) = self.seat() {
            seat.heard().store(version, Relaxed);
        }
    }

    /// The channels that it tells of; `None` where they are too many.
    pub(super) fn channels(&self) -> Option<Vec<Channel>> {
        let (count, channels) = self.seat().ok()?.channels();
        (usize::try_from(count).ok()? <= MOST_CHANNELS).then(|| channels.collect())
    }

    /// Whether it tells of none.
    pub(super) fn tells_none(&self) -> bool {
        self.seat().is_ok_and(|seat| seat.channels().0 == 0)
    }

    /// How often the process woke the arbiter.
    pub(super) fn wakes(&self) -> u32 {
        self.seat().map_or(0, |seat| seat.wakes().load(SeqCst))
    }

    /// Waits until it was woken more often than that, or for a minute: a process can take away who waits there.
    pub(super) fn wait_for_wake(&self, wakes: u32) {
        const LONGEST: Timespec = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        if let Ok(seat) = self.seat() {
            // Whatever ends it, the caller looks.
            let _ = futex::wait(seat.wakes(), futex::Flags::empty(), wakes, Some(&LONGEST));
        }
    }

    /// Wakes the thread that listens here, in the process's place.
    pub(super) fn wake(&self) {
        let Ok(seat) = self.seat() else { return };
        seat.wakes().fetch_add(1, SeqCst);
        let _ = futex::wake(seat.wakes(), futex::Flags::empty(), i32::MAX as u32);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A process can keep the file, but not the arbiter's memory: if it writes there again, that is its own.
        // SAFETY: all bytes become zero, which atomics may be at any time.
        let _ = unsafe { self.map.unchecked_advise(UncheckedAdvice::Remove) };
    }
}
