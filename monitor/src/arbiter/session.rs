//! A process's seat, as the arbiter has it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softmig_rm::{Channel, Group, set_time_slice, time_slice};

use super::clock::now;
use super::page::Page;
use super::rate_limit::RateLimit;
use crate::schedule::turns::Nanos;

/// A process's seat.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) page: Page,
    pub(super) pid: u32,
    /// The process, where the kernel knows such files.
    process: Option<OwnedFd>,
    has_left: AtomicBool,
    is_unruly: AtomicBool,
    /// The limit to how often its job wakes the arbiter.
    pub(super) wake_limit: Arc<RateLimit>,
    channels: Mutex<Channels>,
    /// The version of the page's channels that these are.
    version: AtomicU32,
    /// Whether it was on the GPU, by the GPU's log.
    has_worked: AtomicBool,
    /// The time slice that its groups are to have, in microseconds; 0 for the driver's own.
    slice: AtomicU64,
    /// The one that all have; 0 for the driver's own, or if they differ.
    has_slice: AtomicU64,
    /// `has_slice` when that was last asked.
    had_slice: AtomicU64,
    /// Whether a group was given another since that was last asked.
    has_new_slice: AtomicBool,
    /// For how long it had work when that was last asked.
    pending: AtomicU64,
    /// When its channels were proven last.
    proved: AtomicI64,
    /// Since when its channels are held and not proven again; 0 for not.
    unproven: AtomicI64,
    /// When it came.
    since: Nanos,
    /// Whether it launches as it likes.
    pub(super) is_free: AtomicBool,
    /// Counts it, as long as a thread listens here.
    _count: Arc<()>,
}

/// Channels are not proven more often than this.
const PAUSE: Nanos = 20_000_000;

/// The state of a process's channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Channels {
    /// It has told of none yet.
    #[default]
    Unknown,
    /// These are its own.
    Known(Vec<Channel>),
    /// They are too many, or not its own: it cannot be steered.
    Not,
}

impl Channels {
    fn from_own(own: Vec<Channel>) -> Self {
        if own.is_empty() {
            Self::Not
        } else {
            Self::Known(own)
        }
    }
}

impl Session {
    pub(super) fn new(
        page: Page,
        pid: u32,
        process: Option<OwnedFd>,
        wake_limit: Arc<RateLimit>,
        count: Arc<()>,
    ) -> Self {
        Self {
            page,
            pid,
            process,
            has_left: AtomicBool::new(false),
            is_unruly: AtomicBool::new(false),
            wake_limit,
            channels: Mutex::default(),
            version: AtomicU32::new(0),
            has_worked: AtomicBool::new(false),
            slice: AtomicU64::new(0),
            has_slice: AtomicU64::new(0),
            had_slice: AtomicU64::new(0),
            has_new_slice: AtomicBool::new(false),
            pending: AtomicU64::new(0),
            proved: AtomicI64::new(0),
            unproven: AtomicI64::new(0),
            since: now(),
            is_free: AtomicBool::new(false),
            _count: count,
        }
    }

    /// Its process woke the thread here. Tells for how long no thread is to listen here.
    pub(super) fn woken(&self) -> Duration {
        self.wake_limit
            .wake(now(), Arc::strong_count(&self.wake_limit))
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(SeqCst)
    }

    /// Lets the thread end that listens here.
    pub(super) fn close(&self) {
        self.has_left.store(true, SeqCst);
        self.page.wake();
    }

    pub(super) fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are known to be its own.
    pub(super) fn known(&self) -> Vec<Channel> {
        match &*self.channels() {
            Channels::Known(channels) => channels.clone(),
            Channels::Unknown | Channels::Not => Vec::new(),
        }
    }

    /// Whether it can be steered, or may just be about to tell how.
    pub(super) fn can_be_steered(&self, now: Nanos) -> bool {
        /// The longest time until a process that comes has told of its channels, and they are proven.
        const COMING: Nanos = 200_000_000;
        match *self.channels() {
            Channels::Known(_) => true,
            Channels::Unknown => now - self.since < COMING,
            Channels::Not => false,
        }
    }

    /// Channels were told to wait: `new` ones, of which those in `gone` no longer exist. Its own are proven again, since another
    /// process may have come to have their handles before. Without that they are let go.
    pub(super) fn was_held(&self, new: &BTreeSet<Channel>, gone: &BTreeSet<Channel>, now: Nanos) {
        /// The longest time of a proof.
        const PROOF: Nanos = 100_000_000;
        let mut channels = self.channels();
        if let Channels::Known(channels) = &mut *channels {
            channels.retain(|channel| !gone.contains(channel));
            if channels.iter().any(|channel| new.contains(channel)) {
                self.unproven.store(now, SeqCst);
                self.page.wake();
            }
        }
        let unproven = self.unproven.load(SeqCst);
        if unproven != 0 && now - unproven > PROOF {
            *channels = Channels::Not;
        }
    }

    /// Its groups are to have another time slice. The thread that listens here sets it.
    pub(super) fn request_slice(&self, micros: u64) {
        let is_other = micros != 0 && self.slice.swap(micros, SeqCst) != micros;
        if is_other && self.needs_slice() {
            self.page.wake();
        }
    }

    /// It was on the GPU.
    pub(super) fn note_work(&self) {
        if !self.has_worked.swap(true, SeqCst) {
            self.page.wake();
        }
    }

    /// To set a slice takes as long as a kernel, and keeps the driver from other calls. A process that only has a context needs
    /// none.
    fn needs_slice(&self) -> bool {
        self.has_worked.load(SeqCst) || self.page.state().wishes
    }

    /// The shortest time slice that its groups had since this was last asked, in microseconds; 0 for the driver's own.
    pub(super) fn shortest_slice(&self) -> u64 {
        let has = self.has_slice.load(SeqCst);
        has.min(self.had_slice.swap(has, SeqCst))
    }

    /// Whether a group was given another slice since this was last asked.
    pub(super) fn has_new_slice(&self) -> bool {
        self.has_new_slice.swap(false, SeqCst)
    }

    /// Proves its channels and sets the time slice of its groups, where that is due. Only the thread that listens here does
    /// it: the driver is asked through the process's own files, which can take long.
    pub(super) fn update_channels(&self) {
        let version = self.page.version();
        let is_new = self.version.load(SeqCst) != version;
        let unproven = self.unproven.load(SeqCst);
        let slice = if self.needs_slice() {
            self.slice.load(SeqCst)
        } else {
            0
        };
        let is_other = slice != 0 && slice != self.has_slice.load(SeqCst);
        if is_new || unproven != 0 || is_other {
            // It may change them as often as it likes.
            let rest = PAUSE - (now() - self.proved.swap(now(), SeqCst)).clamp(0, PAUSE);
            std::thread::sleep(Duration::from_nanos(rest.unsigned_abs()));
            // Until all groups have it.
            self.has_slice.fetch_min(slice, SeqCst);
            let mut is_set = true;
            // If the driver is busy, the next wake-up tries again.
            let Some(channels) = self.prove(slice, &mut is_set) else {
                return;
            };
            self.set_channels(channels);
            let has = if is_set { slice } else { 0 };
            self.has_slice.store(has, SeqCst);
            self.version.store(version, SeqCst);
            // Channels that were held since then are still to be proven.
            let _ = (self.unproven).compare_exchange(unproven, 0, SeqCst, SeqCst);
        }
    }

    /// Its channels run although they are held.
    pub(super) fn cannot_be_held(&self) {
        self.is_unruly.store(true, SeqCst);
        self.set_channels(Channels::Not);
    }

    /// Notes which channels are its own.
    pub(super) fn set_channels(&self, channels: Channels) {
        *self.channels() = channels;
    }

    /// Finds out which of the channels that it tells of are its own: those of groups for which the driver answers through the
    /// process's own file. Sets this slice, unless it is 0; `is_set` becomes false if a group has another. `None` if an answer was
    /// an error that passes.
    fn prove(&self, slice: u64, is_set: &mut bool) -> Option<Channels> {
        if self.is_unruly.load(SeqCst) {
            return Some(Channels::Not);
        }
        let Some(process) = &self.process else {
            // The rest was not told by it.
            return Some(Channels::from_own(self.known()));
        };
        let Some(told) = self.page.channels() else {
            return Some(Channels::Not);
        };
        let group = |it: &softmig_region::seat::Channel| Group {
            file: it.file,
            client: it.client,
            handle: it.group,
        };
        let mut groups: Vec<Group> = told.iter().map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut is_busy = false;
        groups.retain(|&group| {
            let has = match time_slice(process.as_fd(), self.pid, group) {
                Ok(has) => has,
                Err(error) => {
                    is_busy |= error.may_pass();
                    return false;
                }
            };
            if slice != 0 && slice != has {
                *is_set &= set_time_slice(process.as_fd(), self.pid, group, slice).is_ok();
                self.has_new_slice.store(true, SeqCst);
            }
            true
        });
        let own = told
            .iter()
            .filter(|it| groups.contains(&group(it)))
            .map(|it| Channel {
                client: it.client,
                handle: it.handle,
            });
        (!is_busy).then(|| Channels::from_own(own.collect()))
    }

    /// For how long it had work since this was last asked.
    pub(super) fn new_pending(&self) -> Nanos {
        let pending = self.page.pending(now().unsigned_abs());
        // A figure that was read while the process wrote may be less than before.
        let before = self.pending.fetch_max(pending, SeqCst);
        Nanos::try_from(pending.saturating_sub(before)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapRaw;
    use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_open, setrlimit};
    use softmig_policy::node::limits::Share;
    use softmig_region::seat::Seat;
    use std::os::fd::AsRawFd;

    #[test]
    fn channels_are_asked_for_again_after_an_error_that_passes() {
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("nvidiactl")).unwrap();
        let (page, shared) = Page::new(Share::new(1, 2).unwrap()).unwrap();
        let map = MmapRaw::map_raw(&shared).unwrap();
        // SAFETY: mapped as long as `map` lives, and sealed.
        let seat = unsafe { Seat::at(map.as_ptr()) }.unwrap();
        seat.tell_channels(std::iter::once(softmig_region::seat::Channel {
            file: file.as_raw_fd(),
            client: 0xc1d0_0001,
            group: 5,
            handle: 6,
        }));
        let (wake_limit, count) = (Arc::default(), Arc::default());
        let session = Session::new(page, std::process::id(), Some(process), wake_limit, count);
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..limit
        };
        setrlimit(Resource::Nofile, none).unwrap();
        session.update_channels();
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(*session.channels(), Channels::Unknown);
        // The file is not the driver's.
        session.update_channels();
        assert_eq!(*session.channels(), Channels::Not);
    }
}
