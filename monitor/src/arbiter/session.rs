//! A process's seat, as the arbiter has it.

mod proving;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softmig_region::seat::{Pacing, Version};
use softmig_rm::Channel;

use super::borrower::Borrower;
use super::clock::now;
use super::page::Page;
use super::rate_limit::RateLimit;
use super::scheduler::Scheduler;
use super::tenant::NotSteered;
use crate::jobs::pidfd::has_ended;
use crate::packs::PackMember;
use crate::schedule::Nanos;

/// A process that comes.
pub(super) struct Newcomer {
    pub(super) pid: u32,
    /// Where the kernel knows such files.
    pub(super) process: Option<OwnedFd>,
    /// What its library can do.
    pub(super) version: Version,
    /// The count of its user's seats.
    pub(super) user: Arc<Borrower>,
    /// Its place in a pack.
    pub(super) pack: Option<PackMember>,
}

/// A process's seat.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) page: Page,
    pub(super) pid: u32,
    /// The process, where the kernel knows such files.
    process: Option<OwnedFd>,
    has_left: AtomicBool,
    is_unruly: AtomicBool,
    /// The limits that all processes of its job share on this GPU.
    pub(super) rate_limit: Arc<RateLimit>,
    channels: Mutex<Channels>,
    /// Channels that it tells of and that this GPU does not have: those of another GPU.
    elsewhere: Mutex<BTreeSet<Channel>>,
    /// How many those were in all.
    refused: AtomicUsize,
    /// The version of the page's channels that these are.
    version: AtomicU32,
    /// The version that its pack's supervisor was told of last.
    told: AtomicU32,
    /// It is not told before.
    tells_from: AtomicI64,
    /// Whether none of the channels that it told of was left when they were to be held.
    had_none: AtomicBool,
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
    /// Since when all of its channels are held; 0 for not.
    held: AtomicI64,
    /// How often it was on the GPU since then.
    escaped: AtomicU32,
    /// Since when it uses the GPU and none of its channels are known; 0 for not.
    silent: AtomicI64,
    /// Why the driver says that channels are not its own.
    refusal: Mutex<Option<String>>,
    /// Whether it was warned of that it cannot be steered.
    is_told: AtomicBool,
    /// Whether its library launches as it likes for as long as it has this seat.
    pub(super) is_old: bool,
    /// How it was told to launch: a [`Pacing`].
    pacing: AtomicU32,
    /// Its user, whose seats this counts as long as a thread listens here.
    user: Arc<Borrower>,
    /// Its place in a pack, whose supervisor is told of its channels.
    pack: Option<PackMember>,
}

/// The state of a process's channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Channels {
    /// It has told of none yet.
    #[default]
    Unknown,
    /// These are its own.
    Known(Vec<Channel>),
    /// It cannot be steered.
    Not(NotSteered),
}

impl Channels {
    fn from_own(own: Vec<Channel>) -> Self {
        if own.is_empty() {
            Self::Not(NotSteered::NotOwn)
        } else {
            Self::Known(own)
        }
    }
}

impl Session {
    pub(super) fn new(page: Page, newcomer: Newcomer, rate_limit: Arc<RateLimit>) -> Self {
        Self {
            page,
            pid: newcomer.pid,
            process: newcomer.process,
            has_left: AtomicBool::new(false),
            is_unruly: AtomicBool::new(false),
            rate_limit,
            channels: Mutex::default(),
            elsewhere: Mutex::default(),
            refused: AtomicUsize::new(0),
            version: AtomicU32::new(0),
            told: AtomicU32::new(0),
            tells_from: AtomicI64::new(0),
            had_none: AtomicBool::new(false),
            has_worked: AtomicBool::new(false),
            slice: AtomicU64::new(0),
            has_slice: AtomicU64::new(0),
            had_slice: AtomicU64::new(0),
            has_new_slice: AtomicBool::new(false),
            pending: AtomicU64::new(0),
            proved: AtomicI64::new(0),
            unproven: AtomicI64::new(0),
            held: AtomicI64::new(0),
            escaped: AtomicU32::new(0),
            silent: AtomicI64::new(0),
            refusal: Mutex::default(),
            is_told: AtomicBool::new(false),
            is_old: newcomer.version == Version::Turns,
            pacing: AtomicU32::new(Pacing::OwnCap as u32),
            user: newcomer.user,
            pack: newcomer.pack,
        }
    }

    /// Its process woke the thread here. Tells for how long no thread is to listen here.
    pub(super) fn woken(&self) -> Duration {
        self.rate_limit
            .wake(now(), Arc::strong_count(&self.rate_limit) - 1)
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

    fn elsewhere(&self) -> MutexGuard<'_, BTreeSet<Channel>> {
        let elsewhere = self.elsewhere.lock();
        elsewhere.unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are known to be its own.
    pub(super) fn known(&self) -> Vec<Channel> {
        match &*self.channels() {
            Channels::Known(channels) => channels.clone(),
            Channels::Unknown | Channels::Not(_) => Vec::new(),
        }
    }

    /// See [`Scheduler::may_release`].
    pub(super) fn may_be_released(&self, scheduler: &Scheduler) -> bool {
        match &*self.channels() {
            Channels::Known(channels) => scheduler.may_release(channels),
            Channels::Unknown | Channels::Not(_) => false,
        }
    }

    /// How many are known to be its own.
    pub(super) fn known_count(&self) -> usize {
        match &*self.channels() {
            Channels::Known(channels) => channels.len(),
            Channels::Unknown | Channels::Not(_) => 0,
        }
    }

    /// Why it cannot be steered, if it uses the GPU and is not just about to tell of its channels.
    pub(super) fn not_steered(&self, now: Nanos) -> Option<NotSteered> {
        /// The longest time until a process that uses the GPU has told of its channels, and they are proven.
        const COMING: Nanos = 200_000_000;
        match *self.channels() {
            _ if !self.uses_gpu() => None,
            Channels::Known(_) => None,
            Channels::Not(why) => Some(why),
            Channels::Unknown => {
                let begun = self.silent.compare_exchange(0, now, SeqCst, SeqCst);
                let since = begun.err().unwrap_or(now);
                (now - since >= COMING).then_some(NotSteered::Silent)
            }
        }
    }

    /// Whether none of its channels is known by its own doing: it told of none, of none that are there, or of more than its job has
    /// paid for.
    pub(super) fn hides(&self, now: Nanos) -> bool {
        let is_unpaid = || {
            self.version.load(SeqCst) != self.page.version() && self.rate_limit.until_proof(now) > 0
        };
        *self.channels() == Channels::Unknown
            && self.uses_gpu()
            && (self.had_none.load(SeqCst) || self.page.tells_none() || is_unpaid())
    }

    /// Why the driver says that channels are not its own, the last time that it did.
    pub(super) fn refusal(&self) -> MutexGuard<'_, Option<String>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a warning is due that it cannot be steered.
    pub(super) fn is_to_be_told(&self) -> bool {
        !self.is_told.swap(true, SeqCst)
    }

    /// Tells the process how to launch. Once it is steered, its groups are to have this time slice.
    pub(super) fn set_pacing(&self, pacing: Pacing, slice: u64) {
        let before = self.pacing.swap(pacing as u32, SeqCst);
        if before == pacing as u32 {
            return;
        }
        if before == Pacing::OwnCap as u32 {
            self.request_slice(slice);
        }
        if !self.is_old {
            self.page.set_pacing(pacing);
        }
    }

    /// Channels were told to wait: `new` ones, of which those in `gone` no longer exist. Its own are proven again, since another
    /// process may have come to have their handles before. Without that they are let go.
    pub(super) fn was_held(&self, new: &BTreeSet<Channel>, gone: &BTreeSet<Channel>, now: Nanos) {
        /// The longest time of a proof, and for each channel.
        const PROOF: Nanos = 100_000_000;
        const EACH: Nanos = 100_000;
        let mut longest = PROOF;
        let mut channels = self.channels();
        if let Channels::Known(channels) = &mut *channels {
            longest += EACH * channels.len() as Nanos;
            let (elsewhere, here): (Vec<Channel>, _) =
                channels.iter().partition(|channel| gone.contains(channel));
            *channels = here;
            if !elsewhere.is_empty() {
                self.refused.fetch_add(elsewhere.len(), SeqCst);
                self.rate_limit.pay_for_proof(now, elsewhere.len());
                self.elsewhere().extend(elsewhere);
            }
            if channels.iter().any(|channel| new.contains(channel)) {
                self.unproven.store(now, SeqCst);
                self.escaped.store(0, SeqCst);
                self.had_none.store(false, SeqCst);
                self.page.wake();
            }
        }
        if *channels == Channels::Known(Vec::new()) {
            *channels = Channels::Unknown;
            self.had_none.store(true, SeqCst);
        }
        let unproven = self.unproven.load(SeqCst);
        if unproven != 0 && now - unproven > longest {
            // Where the machine is busy, their proof comes late.
            *channels = Channels::Unknown;
        }
    }

    /// Its groups are to have another time slice. The thread that listens here sets it.
    pub(super) fn request_slice(&self, micros: u64) {
        let is_other = micros != 0 && self.slice.swap(micros, SeqCst) != micros;
        if is_other && self.uses_gpu() {
            self.page.wake();
        }
    }

    /// It was on the GPU.
    pub(super) fn note_work(&self) {
        if !self.has_worked.swap(true, SeqCst) {
            self.page.wake();
        }
    }

    /// Whether it uses the GPU, or did. A process that only has a context needs no slice: to set one takes as long as a kernel, and
    /// keeps the driver from other calls.
    fn uses_gpu(&self) -> bool {
        self.has_worked.load(SeqCst) || self.page.wants_gpu()
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

    /// Whether the process has ended, as far as that is known.
    pub(super) fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(has_ended)
    }

    /// Its place in a pack.
    pub(super) fn pack(&self) -> Option<&PackMember> {
        self.pack.as_ref()
    }

    /// Whether it may have work, as far as it has told. One that never told anything may not have heard that it has a seat.
    pub(super) fn may_have_work(&self) -> bool {
        self.page.wants_gpu() || self.page.version() == 0
    }

    /// Whether it tells of its work. One that has some does so every few milliseconds, unless it is stopped.
    pub(super) fn tells_of_work(&self, now: Nanos) -> bool {
        const STOPPED: u64 = 300_000_000;
        let since = self.page.has_work_since();
        since == 0 || now.unsigned_abs().saturating_sub(since) < STOPPED
    }

    /// Whether it has told of channels that were not proven yet.
    pub(super) fn has_news(&self) -> bool {
        self.version.load(SeqCst) != self.page.version()
    }

    /// Whether it has no channels, and does nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.known_count() == 0 && !self.has_news() && !self.uses_gpu()
    }

    /// All of its channels were held by this time, or not all are.
    pub(super) fn note_hold(&self, by: Option<Nanos>) {
        match by {
            Some(by) => drop(self.held.compare_exchange(0, by, SeqCst, SeqCst)),
            None => {
                self.held.store(0, SeqCst);
                self.escaped.store(0, SeqCst);
            }
        }
    }

    /// Whether all of its channels had been held at this time for long enough to be off the GPU.
    pub(super) fn is_surely_held(&self, at: Nanos) -> bool {
        /// The GPU needs a moment, and the log's times are not exact.
        const SURE: Nanos = 8_000_000;
        let since = self.held.load(SeqCst);
        since != 0 && at - since >= SURE
    }

    /// It was on the GPU for so long, while it was surely held. A process that does so twice cannot be held, unless it has told of more
    /// channels that are not held yet.
    pub(super) fn note_stay_while_held(&self, resident: Nanos) {
        /// A shorter one is no sign.
        const SHORT: Nanos = 3_000_000;
        let has_news = self.has_news();
        if resident > SHORT && !has_news && self.escaped.fetch_add(1, SeqCst) > 0 {
            self.is_unruly.store(true, SeqCst);
            self.set_channels(Channels::Not(NotSteered::Runs));
        }
    }

    /// Notes which channels are its own.
    pub(super) fn set_channels(&self, channels: Channels) {
        // One that tells anew of none is silent all the time.
        if channels != Channels::Unknown {
            self.silent.store(0, SeqCst);
        }
        *self.channels() = channels;
    }

    /// For how long it had work until now, since this was last asked.
    pub(super) fn new_pending(&self, now: Nanos) -> Nanos {
        let pending = self.page.pending(now.unsigned_abs());
        // A figure that was read while the process wrote may be less than before.
        let before = self.pending.fetch_max(pending, SeqCst);
        Nanos::try_from(pending.saturating_sub(before)).unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
