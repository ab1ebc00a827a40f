//! The launches of one stream in flight, and what is known of their times.
//!
//! Events behind the first, the second, the fourth and so on tell when they end.

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
    /// The first so many have ended.
    ended: u64,
    /// When the last end was seen, or the first launch that is in flight went on.
    since: u64,
    /// When it was last seen that no more had ended.
    unended: u64,
    /// How long each launch took between the last two ends; 0 while nothing is known.
    expected: u64,
    /// Launches in a row that went on although they had to wait, and when the last did.
    overruns: u32,
    overran: u64,
    /// The launches before each event; 0 for one that is free.
    events: [u64; EVENTS],
}

zeroed! { Flight { launched, ended, since, unended, expected, overruns, overran, events } }

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
    pub(super) fn launch(&mut self, now: u64) {
        if self.in_flight() == 0 {
            self.since = now;
        }
        self.launched = self.launched.saturating_add(1);
    }

    /// The first so many launches have ended. `was_busy` tells whether they kept the GPU busy until now.
    fn end(&mut self, now: u64, ended: u64, was_busy: bool) {
        let count = ended.saturating_sub(self.ended);
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
        let is_own = self.unended.saturating_sub(self.overran) > SOON_NS;
        if let Some(time) = time.filter(|_| is_seen && is_own) {
            self.expected = time.max(1);
            if time > SHORT_PATIENCE_NS {
                self.overruns = 0;
            }
        }
    }

    /// Looks which events were reached.
    pub(super) fn look(&mut self, now: u64, is_reached: impl Fn(usize) -> bool) {
        let recorded = self
            .events
            .iter()
            .enumerate()
            .filter(|(_, launches)| **launches > 0);
        let reached = recorded.filter(|(event, _)| is_reached(*event));
        if let Some(ended) = reached.map(|(_, launches)| *launches).max() {
            self.end(now, ended, true);
        } else {
            self.unended = now;
        }
    }

    /// For how long nothing may end while a launch waits: much longer than what is in flight should take, and less after launches
    /// in a row went on without that.
    pub(super) fn patience(&self) -> u64 {
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
        let shorter = long.checked_shr(self.overruns.saturating_sub(1));
        shorter.unwrap_or(0).max(SHORT_PATIENCE_NS)
    }

    /// How long each launch took of late, if that is known.
    pub(super) fn expected(&self) -> Option<u64> {
        (self.expected > 0).then_some(self.expected)
    }

    /// All have ended: the stream is idle. `was_busy` tells whether it had work until now.
    pub(super) fn end_all(&mut self, now: u64, was_busy: bool) {
        self.end(now, self.launched, was_busy);
    }

    /// Some work was seen to end, or there was none: who waits does not wait in vain.
    pub(super) fn goes_on(&mut self) {
        self.overruns = 0;
    }

    /// A launch goes on although it had to wait.
    pub(super) fn overrun(&mut self, now: u64) {
        self.overruns = self.overruns.saturating_add(1);
        self.overran = now;
        self.launch(now);
    }

    /// After a launch: records an event behind the first, the second, the fourth and so on of those in flight, and behind each that
    /// went on although it had to wait. Behind each launch of a thread's own stream, since no other thread can ask that.
    pub(super) fn launched(&mut self, stream: &mut impl StreamEnd, is_threads_own: bool) {
        if !self.in_flight().is_power_of_two() && self.overruns == 0 && !is_threads_own {
            return;
        }
        let launched = self.launched;
        let free = self.events.iter().position(|launches| *launches == 0);
        let all = self.events.iter().enumerate();
        let last = all.max_by_key(|(_, launches)| **launches);
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
