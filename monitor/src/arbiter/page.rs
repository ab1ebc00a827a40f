//! The page that the arbiter and one process share.

use memmap2::{Advice, MmapRaw, UncheckedAdvice};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::futex;
use rustix::time::Timespec;
use softmig_policy::node::limits::Share;
use softmig_region::seat::{Channel, MOST_CHANNELS, Seat, WHOLE};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::schedule::turns::{Nanos, Order, Said};

/// A seat's page as the arbiter has it.
#[derive(Debug)]
pub(super) struct Page {
    map: MmapRaw,
}

impl Page {
    /// Makes one, and the file by which the process gets it.
    pub(super) fn new(share: Share) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"softmig-seat", flags)?;
        ftruncate(&file, Seat::SIZE as u64)?;
        // Else the process could make it shorter, and reading it would end this process.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Self {
            map: MmapRaw::map_raw(&file)?,
        };
        // A process can map its page thousands of times, and a child's mapping would wait for all of them (`closer`).
        page.map.advise(Advice::DontFork)?;
        let part = u64::from(WHOLE) * u64::from(share.shards()) / u64::from(share.per_gpu());
        let part = u32::try_from(part).unwrap_or(WHOLE);
        page.seat()?.share().store(part, Relaxed);
        Ok((page, file))
    }

    fn seat(&self) -> io::Result<&Seat> {
        let start = self.map.as_ptr();
        // SAFETY: the page is mapped as long as `self` lives, and its file is sealed; the process changes atomics only, or
        // what it likes, which is the same to atomics.
        let seat = unsafe { Seat::at(start) };
        seat.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The state of the process, as it says.
    pub(super) fn state(&self) -> Said {
        let Ok(seat) = self.seat() else {
            return Said::default();
        };
        Said {
            // The use of a turn is written before the turn is given back: so it is read after it.
            wishes: seat.wants_gpu().load(SeqCst) != 0,
            done: seat.done().load(SeqCst),
            used: seat.used().load(SeqCst),
            over: seat.over().load(SeqCst),
            together: seat.together().load(Relaxed) != 0,
        }
    }

    /// How often the process launched without a turn, as it says.
    pub(super) fn overruns(&self) -> u32 {
        self.seat().map_or(0, |seat| seat.overruns().load(Relaxed))
    }

    /// Tells the process about its turn.
    pub(super) fn write(&self, order: &Order) {
        let Ok(seat) = self.seat() else { return };
        if let Some(terms) = order.terms {
            seat.budget().store(terms.budget, Relaxed);
            seat.from().store(terms.from, Relaxed);
            seat.ahead().store(terms.ahead, Relaxed);
            seat.until().store(terms.until, Relaxed);
        }
        // After the terms, so that a process that sees this word sees them too.
        seat.turn().store(order.word, SeqCst);
        // Wakes all threads that wait there. It can only fail for an invalid address, and this one is valid.
        let _ = futex::wake(seat.turn(), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Tells the process that the arbiter is there.
    pub(super) fn heartbeat(&self, now: Nanos) {
        if let Ok(seat) = self.seat() {
            seat.heartbeat()
                .store(u64::try_from(now).unwrap_or(0), Relaxed);
        }
    }

    /// Tells the process whether it is steered from outside, so that it need not keep to turns.
    pub(super) fn set_free(&self, is_free: bool) {
        if let Ok(seat) = self.seat() {
            seat.free().store(is_free.into(), SeqCst);
        }
    }

    /// For how long it has had work while there were no turns, as it says.
    pub(super) fn pending(&self, now: u64) -> u64 {
        self.seat().map_or(0, |seat| seat.pending(now))
    }

    /// How often the process told of its channels.
    pub(super) fn version(&self) -> u32 {
        self.seat().map_or(0, |seat| seat.version().load(SeqCst))
    }

    /// The channels that it tells of; `None` where they are too many.
    pub(super) fn channels(&self) -> Option<Vec<Channel>> {
        let (count, channels) = self.seat().ok()?.channels();
        (usize::try_from(count).ok()? <= MOST_CHANNELS).then(|| channels.collect())
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
