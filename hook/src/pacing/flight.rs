//! The launches in flight, of one stream and of all, and what is known of their times.
//!
//! Events behind the first, the second, the fourth and so on tell when they end.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::os::cells::zeroed;

/// The bounds of [`Flight::patience`].
const PATIENCE_NS: [u64; 2] = [20_000_000, 1_000_000_000];
/// The same after some launches in a row that went on although they had to wait: the work in flight does wait for them.
const SHORT_PATIENCE_NS: u64 = 10_000_000;
/// Work that ends this soon after such a launch, or before it is looked at later, may have waited for it.
const SOON_NS: u64 = 2_000_000;
/// The sampling thread looks at least as often.
const LOOK_EVERY_NS: u64 = 3_500_000;
/// How long a launch takes of which nothing is known: few kernels take longer.
const UNKNOWN_NS: u64 = 30_000_000;
/// The events of a stream.
pub(super) const EVENTS: usize = 8;

/// The launches of a stream.
#[derive(Clone, Copy, Default)]
pub(super) struct Flight {
    /// The number of launches.
    launched: u64,
    /// The first so many are with the driver: their calls have returned.
    settled: u64,
    /// The first so many have ended.
    ended: u64,
    /// When the last end was seen, or the first launch that is in flight went on.
    since: u64,
    /// When it was last seen that no more had ended.
    unended: u64,
    /// How long each launch took between the last two ends; 0 while nothing is known.
    expected: u64,
    /// The launches before each event; 0 for one that is free.
    events: [u64; EVENTS],
}

zeroed! { Flight { launched, settled, ended, since, unended, expected, events } }

/// The launches of all streams on one GPU. Relaxed: each is a figure of its own, and counted anew at each sample.
#[derive(Default)]
pub(super) struct Flights {
    /// How many are in flight.
    count: AtomicU64,
    /// How many have ended since they were last asked for, and when one was last seen to end.
    new_ends: AtomicU64,
    ended: AtomicU64,
    /// Launches in a row that went on although they had to wait, and when the last did.
    overruns: AtomicU32,
    overran: AtomicU64,
}

impl Flights {
    /// How many are in flight.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// So many are in flight, as all streams say.
    pub(super) fn recount(&self, count: u64) {
        self.count.store(count, Relaxed);
    }

    fn end(&self, now: u64, count: u64) {
        if count > 0 {
            self.ended.store(now, Relaxed);
            self.new_ends.fetch_add(count, Relaxed);
            let less = |before: u64| Some(before.saturating_sub(count));
            let _ = self.count.fetch_update(Relaxed, Relaxed, less);
        }
    }

    /// How many have ended since the last time.
    pub(super) fn take_new_ends(&self) -> u64 {
        self.new_ends.swap(0, Relaxed)
    }

    /// When one was last seen to end.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// Some work was seen to end, or there was none: who waits does not wait in vain.
    pub(super) fn go_on(&self) {
        self.overruns.store(0, Relaxed);
    }
}

/// A stream, and its events.
pub(super) trait StreamEnd {
    /// Whether it has work.
    fn is_busy(&self) -> bool;
    /// Records the event of this number behind its work; false if that cannot be done.
    fn record(&mut self, event: usize) -> bool;
    /// Whether that event was reached.
    fn is_reached(&self, event: usize) -> bool;
}

impl Flight {
    /// How many are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.launched.saturating_sub(self.ended)
    }

    /// One more.
    pub(super) fn launch(&mut self, now: u64, all: &Flights) {
        if self.in_flight() == 0 {
            self.since = now;
        }
        self.launched = self.launched.saturating_add(1);
        all.count.fetch_add(1, Relaxed);
    }

    /// The first so many launches have ended. `was_busy` tells whether they kept the GPU busy until now.
    fn end(&mut self, now: u64, all: &Flights, ended: u64, was_busy: bool) {
        let count = ended.saturating_sub(self.ended);
        all.end(now, count);
        let time = now.saturating_sub(self.since).checked_div(count);
        self.ended = self.ended.max(ended);
        self.since = now;
        for event in &mut self.events {
            if *event <= ended {
                *event = 0;
            }
        }
        // Nobody may have looked when it ended.
        let is_seen = was_busy && now.saturating_sub(self.unended) <= LOOK_EVERY_NS;
        let overran = all.overran.load(Relaxed);
        let is_own = self.unended.saturating_sub(overran) > SOON_NS;
        if let Some(time) = time.filter(|_| is_seen && is_own) {
            self.expected = time.max(1);
            if time > SHORT_PATIENCE_NS {
                all.go_on();
            }
        }
    }

    /// Looks which events were reached.
    pub(super) fn look(&mut self, now: u64, all: &Flights, is_reached: impl Fn(usize) -> bool) {
        let recorded = self
            .events
            .iter()
            .enumerate()
            .filter(|(_, launches)| **launches > 0);
        let reached = recorded.filter(|(event, _)| is_reached(*event));
        if let Some(ended) = reached.map(|(_, launches)| *launches).max() {
            self.end(now, all, ended, true);
        } else {
            self.unended = now;
        }
    }

    /// The same from another thread, for a stream that may have no event left. Returns how many are in flight that the driver has.
    pub(super) fn look_over(
        &mut self,
        now: u64,
        all: &Flights,
        is_reached: impl Fn(usize) -> bool,
        is_busy: impl FnOnce() -> bool,
    ) -> u64 {
        self.look(now, all, is_reached);
        if self.in_flight() == 0 || self.is_marked() || is_busy() {
            return self.in_flight();
        }
        if self.settled == self.launched {
            self.end_all(now, all, false);
        }
        0
    }

    /// For how long nothing may end while a launch waits: much longer than what is in flight should take, and less after launches
    /// in a row went on without that.
    pub(super) fn patience(&self, all: &Flights) -> u64 {
        let [least, most] = PATIENCE_NS;
        let expected = if self.expected == 0 {
            UNKNOWN_NS
        } else {
            self.expected
        };
        let events = self.events.iter().copied();
        let next = events.filter(|launches| *launches > self.ended).min();
        let until_next = next.map_or(1, |next| next.saturating_sub(self.ended));
        let next = expected.saturating_mul(until_next).saturating_mul(2);
        let long = expected.saturating_mul(4).clamp(least, most).max(next);
        let shorter = long.checked_shr(all.overruns.load(Relaxed).saturating_sub(1));
        shorter.unwrap_or(0).max(SHORT_PATIENCE_NS)
    }

    /// How long each launch took of late, if that is known.
    pub(super) fn expected(&self) -> Option<u64> {
        (self.expected > 0).then_some(self.expected)
    }

    /// All have ended: the stream is idle. `was_busy` tells whether it had work until now.
    pub(super) fn end_all(&mut self, now: u64, all: &Flights, was_busy: bool) {
        self.end(now, all, self.launched, was_busy);
    }

    /// A launch goes on although it had to wait.
    pub(super) fn overrun(&mut self, now: u64, all: &Flights) {
        all.overruns.fetch_add(1, Relaxed);
        all.overran.store(now, Relaxed);
        self.launch(now, all);
    }

    /// After a launch: records an event behind the first, the second, the fourth and so on of those in flight, and behind each that
    /// went on although it had to wait. Behind each launch of a thread's own stream, since no other thread can ask that.
    pub(super) fn launched(
        &mut self,
        all: &Flights,
        stream: &mut impl StreamEnd,
        is_threads_own: bool,
    ) {
        self.settled = self.launched;
        let have_overrun = all.overruns.load(Relaxed) > 0;
        if !self.in_flight().is_power_of_two() && !have_overrun && !is_threads_own {
            return;
        }
        let launched = self.launched;
        let free = self.events.iter().position(|launches| *launches == 0);
        let last = self.events.iter().enumerate();
        let last = last.max_by_key(|(_, launches)| **launches);
        let last = last.map(|(event, _)| event).filter(|_| is_threads_own);
        if let Some(event) = free.or(last)
            && let Some(launches) = self.events.get_mut(event)
            && stream.record(event)
        {
            *launches = launched;
        }
    }

    /// Whether some are in flight, and an event tells when they end.
    pub(super) fn is_marked(&self) -> bool {
        self.events.iter().any(|launches| *launches > self.ended)
    }
}
