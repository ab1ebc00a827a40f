//! The cap on a job's time where nobody steers the GPU: without the monitor, on MIG instances, and where steering has no effect.
//!
//! The GPU's time that the job's processes use is sampled ([`samples`](super::samples)) and charged to a word in the job's ledger
//! ([`Pace`]). A launch goes on while the word has credit, and while no more is in flight than the credit pays for. As no
//! launch is measured, that is reckoned with the time that launches took of late.
//!
//! What is in flight may wait for the launch that waits here. So a launch also goes on when nothing ended for much longer than it
//! should take ([`Flight::patience`]). How long that is, is learned from the ends that are seen: of events behind some of the
//! launches, or when the GPU is idle. An end just after a launch that went on so teaches nothing: it may have waited for that.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::WHOLE;
use softmig_region::{GpuLedger, Pace, Rate};

use crate::os::cells::Locked;

/// Credit of a job that was idle, on the clock.
const BURST_NS: u64 = 20_000_000;
/// A job without credit goes on with this much of it, on the clock: the GPU then does not wait for each launch.
const RESUME_CREDIT_NS: i64 = 10_000_000;
/// The most launches in flight.
const MOST_LAUNCHES: u64 = 32;
/// The bounds of [`Flight::patience`].
const PATIENCE_NS: [u64; 2] = [20_000_000, 1_000_000_000];
/// The same after some launches in a row that went on although they had to wait: the work in flight does wait for them.
const SHORT_PATIENCE_NS: u64 = 10_000_000;
/// Work that ends this soon after such a launch may have waited for it.
const SOON_NS: u64 = 4_000_000;
/// How long a launch takes of which nothing is known: few kernels take longer.
const UNKNOWN_NS: u64 = 30_000_000;
/// The bounds of naps between two looks.
const SHORT_NAP_NS: u64 = 20_000;
const LONG_NAP_NS: u64 = 500_000;
/// The events of a GPU.
pub(super) const EVENTS: usize = 16;

/// The cap on one GPU.
pub(super) struct Cap {
    pace: Pace<'static>,
    rate: Rate,
    uuid: CUuuid,
    /// Whether the credit was used up, and launches wait for [`RESUME_CREDIT_NS`].
    rests: AtomicBool,
    flight: Locked<Flight>,
    /// Whether launches were queued behind each other of late, so that the GPU does not wait for each.
    queues: AtomicBool,
    /// GPU time of late in nanoseconds, and the launches in it, of which [`LAUNCH`] is one. Both fade alike.
    time: AtomicU64,
    launches: AtomicU64,
}

/// One launch in [`Cap::launches`].
const LAUNCH: u64 = 1 << 20;
/// The GPU time after which what was before counts for little.
const OF_LATE_NS: u64 = 16_000_000;

/// The launches in flight, and what is known of their times.
#[derive(Clone, Copy, Default)]
struct Flight {
    /// The number of launches.
    launched: u64,
    /// The first so many have ended.
    ended: u64,
    /// When the last end was seen, or the first launch that is in flight went on.
    since: u64,
    /// How long each launch took between the last two ends; 0 while nothing is known.
    expected: u64,
    /// Launches in a row that went on although they had to wait, and when the last did.
    overruns: u32,
    overran: u64,
    /// The launches before each event; 0 for one that is free.
    events: [u64; EVENTS],
}

/// A launch's stream, and the GPU's events.
pub(super) trait StreamEnd {
    /// Whether it has work.
    fn is_busy(&self) -> bool;
    /// Records the event of this number behind its work; false if that cannot be done.
    fn record(&self, event: usize) -> bool;
    /// Whether that event was reached, in whichever stream it is.
    fn is_reached(&self, event: usize) -> bool;
}

/// The wait of a launch.
pub(super) struct Wait {
    /// Since when, without what was only a wait for credit.
    since: u64,
    nap: u64,
    /// Whether it went on although it had to wait.
    pub(super) has_overrun: bool,
}

impl Wait {
    pub(super) fn new(now: u64) -> Self {
        Self {
            since: now,
            nap: 0,
            has_overrun: false,
        }
    }
}

impl Flight {
    fn in_flight(&self) -> u64 {
        self.launched.saturating_sub(self.ended)
    }

    fn launch(&mut self, now: u64) {
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
        let is_own = now.saturating_sub(self.overran) > SOON_NS;
        if let Some(time) = time.filter(|_| was_busy && is_own) {
            self.expected = time.max(1);
            if time > SHORT_PATIENCE_NS {
                self.overruns = 0;
            }
        }
    }

    /// Looks which events were reached.
    fn look(&mut self, now: u64, stream: &impl StreamEnd) {
        let recorded = self
            .events
            .iter()
            .enumerate()
            .filter(|(_, launches)| **launches > 0);
        let reached = recorded.filter(|(event, _)| stream.is_reached(*event));
        if let Some(ended) = reached.map(|(_, launches)| *launches).max() {
            self.end(now, ended, true);
        }
    }

    /// For how long nothing may end while a launch waits: much longer than what is in flight should take, and less after launches
    /// in a row went on without that.
    fn patience(&self) -> u64 {
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
}

impl Cap {
    /// For a share of [`WHOLE`].
    pub(super) fn new(gpu: GpuLedger<'static>, share: u32, uuid: CUuuid) -> Self {
        Self {
            pace: gpu.pace(),
            rate: Rate {
                share: share.clamp(1, WHOLE),
                burst: BURST_NS,
            },
            uuid,
            rests: AtomicBool::new(false),
            flight: Locked::new(Flight::default()),
            queues: AtomicBool::new(false),
            time: AtomicU64::new(0),
            launches: AtomicU64::new(0),
        }
    }

    /// The UUID of the GPU.
    pub(super) fn uuid(&self) -> &CUuuid {
        &self.uuid
    }

    /// One look of a launch that waits. Returns how long it naps before the next, or `None` if it goes on.
    pub(super) fn look(&self, now: u64, wait: &mut Wait, stream: &impl StreamEnd) -> Option<u64> {
        let mut flight = self.flight.hold();
        let credit = self.pace.credit(now, self.rate);
        let least = if self.rests() { RESUME_CREDIT_NS } else { 1 };
        let has_credit = credit >= least;
        self.rests.store(!has_credit, Ordering::Relaxed);
        if has_credit {
            if flight.in_flight() >= self.most(&flight, credit.unsigned_abs()) && !stream.is_busy()
            {
                let launched = flight.launched;
                flight.end(now, launched, wait.nap > 0);
                self.queues.store(wait.nap > 0, Ordering::Relaxed);
            }
            if flight.in_flight() < self.most(&flight, credit.unsigned_abs()) {
                flight.launch(now);
                return None;
            }
        }
        if self.pace.is_at_work(now) {
            flight.look(now, stream);
        } else {
            // Only time is missing, or the work has just begun.
            wait.since = now;
            flight.overruns = 0;
        }
        if now.saturating_sub(wait.since) > flight.patience() {
            flight.overruns = flight.overruns.saturating_add(1);
            flight.overran = now;
            flight.launch(now);
            wait.has_overrun = true;
            return None;
        }
        let missing = RESUME_CREDIT_NS.saturating_sub(credit).unsigned_abs();
        wait.nap = match has_credit {
            true => wait.nap.saturating_mul(2).clamp(SHORT_NAP_NS, LONG_NAP_NS),
            false => missing.clamp(SHORT_NAP_NS, LONG_NAP_NS),
        };
        Some(wait.nap)
    }

    /// The launches that may be in flight: what the credit pays for, one at a time until it is known how long they take.
    fn most(&self, flight: &Flight, credit: u64) -> u64 {
        let each = if flight.expected == 0 {
            u64::MAX
        } else {
            flight.expected
        };
        let most = self
            .rate
            .on_gpu(credit)
            .checked_div(each.max(self.launch_time()));
        most.unwrap_or(0).clamp(1, MOST_LAUNCHES)
    }

    /// After a launch: an event behind the first, the second, the fourth and so on of those in flight tells when it ends.
    pub(super) fn launched(&self, stream: &impl StreamEnd) {
        let mut flight = self.flight.hold();
        let launched = flight.launched;
        if !flight.in_flight().is_power_of_two() && flight.overruns == 0 {
            return;
        }
        let free = flight
            .events
            .iter_mut()
            .enumerate()
            .find(|(_, launches)| **launches == 0);
        if let Some((event, launches)) = free
            && stream.record(event)
        {
            *launches = launched;
        }
    }

    /// The sampling thread found no work: nothing is in flight.
    pub(super) fn idle(&self) {
        let mut flight = self.flight.hold();
        flight.ended = flight.launched;
        flight.events = [0; EVENTS];
    }

    /// Whether launches were queued behind each other of late, so that the GPU does not wait for each.
    pub(super) fn queues(&self) -> bool {
        self.queues.load(Ordering::Relaxed)
    }

    /// Whether launches wait for credit. The end of what is in flight is then near.
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    /// How long a launch took of late: longer than any, while nothing is known.
    fn launch_time(&self) -> u64 {
        let time = self.time.load(Ordering::Relaxed).saturating_mul(LAUNCH);
        let launches = self.launches.load(Ordering::Relaxed);
        time.checked_div(launches).unwrap_or(u64::MAX)
    }

    /// For how long a stream that is to end is waited for.
    pub(super) fn patience(&self) -> u64 {
        self.flight.hold().patience()
    }

    /// Charges the `time` before `now` in which the GPU worked for this process, and notes the launches since the last time.
    pub(super) fn charge(&self, now: u64, time: u64, launched: u32) {
        self.pace.charge(now, self.rate, time);
        if self.pace.credit(now, self.rate) <= 0 {
            self.rests.store(true, Ordering::Relaxed);
        }
        let left = OF_LATE_NS.saturating_sub(time);
        let fade = |word: &AtomicU64, more: u64| {
            // Relaxed: one thread writes.
            let before = word.load(Ordering::Relaxed);
            let after = (before / OF_LATE_NS).saturating_mul(left);
            let after =
                after.saturating_add((before % OF_LATE_NS).saturating_mul(left) / OF_LATE_NS);
            word.store(after.saturating_add(more), Ordering::Relaxed);
        };
        fade(&self.time, time);
        fade(&self.launches, u64::from(launched).saturating_mul(LAUNCH));
    }
}

#[cfg(test)]
#[path = "cap_tests.rs"]
mod tests;
