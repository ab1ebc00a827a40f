//! A process's seat, as the arbiter has it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softmig_rm::{Channel, Group, set_time_slice};

use super::bell::Bell;
use super::gpu::now;
use super::page::Page;
use crate::turns::Nanos;

/// A process's seat.
#[derive(Debug)]
pub(super) struct Chair {
    pub(super) page: Page,
    pub(super) pid: u32,
    /// The process, where the kernel knows such files.
    process: Option<OwnedFd>,
    has_left: AtomicBool,
    /// Its job's.
    pub(super) bell: Arc<Bell>,
    channels: Mutex<Channels>,
    /// The version of the page's channels that these are.
    version: AtomicU32,
    /// The time slice that its groups are to have, and have, in microseconds.
    slice: AtomicU64,
    has_slice: AtomicU64,
    /// For how long it had work when that was last asked.
    pending: AtomicU64,
    /// Whether it launches as it likes.
    pub(super) is_loose: AtomicBool,
    /// Counts it, as long as a thread listens here.
    _count: Arc<()>,
}

/// What is known of a process's channels.
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

impl Chair {
    pub(super) fn new(
        page: Page,
        pid: u32,
        process: Option<OwnedFd>,
        bell: Arc<Bell>,
        count: Arc<()>,
    ) -> Self {
        Self {
            page,
            pid,
            process,
            has_left: AtomicBool::new(false),
            bell,
            channels: Mutex::default(),
            version: AtomicU32::new(0),
            slice: AtomicU64::new(0),
            has_slice: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            is_loose: AtomicBool::new(false),
            _count: count,
        }
    }

    /// Its bell was rung. Tells for how long nobody is to listen here.
    pub(super) fn ring(&self) -> Duration {
        self.bell.ring(now(), Arc::strong_count(&self.bell))
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(SeqCst)
    }

    /// Lets the thread end that listens here.
    pub(super) fn close(&self) {
        self.has_left.store(true, SeqCst);
        self.page.ring();
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

    /// Its groups are to have another time slice; the thread that listens here sets it.
    pub(super) fn wish_slice(&self, micros: u64) {
        if micros != 0 && self.slice.swap(micros, SeqCst) != micros {
            self.page.ring();
        }
    }

    /// Sees to what only the thread that listens here does, since it can take long: the process's files are used for it.
    pub(super) fn see_to_channels(&self) {
        let version = self.page.version();
        let slice = self.slice.load(SeqCst);
        let is_new = self.version.load(SeqCst) != version;
        if is_new || self.has_slice.load(SeqCst) != slice {
            self.know(self.prove(slice));
            self.has_slice.store(slice, SeqCst);
            self.version.store(version, SeqCst);
        }
    }

    /// Its channels are these. If they are others than before they are to be steered as its job's.
    pub(super) fn know(&self, channels: Channels) {
        let before = std::mem::replace(&mut *self.channels(), channels);
        if before != *self.channels() {
            self.is_loose.store(false, SeqCst);
        }
    }

    /// Whether it has told of channels that nobody has seen to yet.
    pub(super) fn is_telling(&self) -> bool {
        self.version.load(SeqCst) != self.page.version()
    }

    /// Finds out which of the channels that it tells of are its own: those of groups whose time slice can be set by its files.
    fn prove(&self, slice: u64) -> Channels {
        /// What the driver asks for.
        const DEFAULT: u64 = 2048;
        let (Some(process), Some(told)) = (&self.process, self.page.channels()) else {
            return Channels::Not;
        };
        let slice = if slice == 0 { DEFAULT } else { slice };
        let group = |it: &softmig_region::seat::Channel| Group {
            file: it.file,
            client: it.client,
            handle: it.group,
        };
        let mut groups: Vec<Group> = told.iter().map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|&group| set_time_slice(process.as_fd(), group, slice).is_ok());
        let own = told.iter().filter(|it| groups.contains(&group(it)));
        let own: Vec<Channel> = own
            .map(|it| Channel {
                client: it.client,
                handle: it.handle,
            })
            .collect();
        if own.is_empty() {
            Channels::Not
        } else {
            Channels::Known(own)
        }
    }

    /// For how long it had work since this was last asked.
    pub(super) fn new_pending(&self) -> Nanos {
        let pending = self.page.pending();
        let before = self.pending.swap(pending, SeqCst);
        Nanos::try_from(pending.saturating_sub(before)).unwrap_or(0)
    }
}
