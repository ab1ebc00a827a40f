//! The cap on a job's time where nobody steers the GPU: without the monitor, on MIG instances, and where steering has no effect.
//!
//! The GPU's time that the job's processes use is sampled ([`samples`](super::samples)) and charged to a word in the job's ledger
//! ([`Pace`]). A launch goes on while the word has credit, and while no more is in flight than the credit pays for. As no
//! launch is measured, that is reckoned with the time that launches took of late.
//!
//! What is in flight may wait for the launch that waits here. So a launch also goes on when nothing ended for much longer than
//! it should take ([`Cap::patience`]). How long that is, is learned from the ends that are seen: a stream that is idle, or an
//! event behind what is in flight.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::WHOLE;
use softmig_region::{GpuLedger, Pace, Rate};

/// Credit of a job that was idle, on the clock.
const BURST_NS: u64 = 20_000_000;
/// A job without credit goes on with this much of it, on the clock: the GPU then does not wait for each launch.
const RESUME_CREDIT_NS: i64 = 10_000_000;
/// The most launches in flight.
const MOST_LAUNCHES: u64 = 64;
/// The bounds of [`Cap::patience`].
const PATIENCE_NS: [u64; 2] = [20_000_000, 1_000_000_000];
/// The same after some launches in a row that went on although they had to wait: the work in flight does wait for them.
const SHORT_PATIENCE_NS: u64 = 5_000_000;
/// A launch that waits longer has an event behind what is in flight.
const EVENT_AFTER_NS: u64 = 2_000_000;
/// The bounds of naps between two looks.
const SHORT_NAP_NS: u64 = 20_000;
const LONG_NAP_NS: u64 = 500_000;
/// How long a launch takes of which nothing is known: few kernels take longer.
const UNKNOWN_NS: u64 = 30_000_000;

/// The cap on one GPU.
pub(super) struct Cap {
    pace: Pace<'static>,
    rate: Rate,
    uuid: CUuuid,
    /// Whether the credit was used up, and launches wait for [`RESUME_CREDIT_NS`].
    rests: AtomicBool,
    /// Launches since the last end that was seen.
    in_flight: AtomicU32,
    /// How long each launch took between the last two ends that were seen; 0 while nothing is known.
    expected: AtomicU64,
    /// When the last end was seen, or the first launch that is in flight went on.
    begun: AtomicU64,
    /// Launches in a row that went on although they had to wait.
    overruns: AtomicU32,
    /// The launches of [`Cap::in_flight`] before the event that was recorded; 0 without one.
    before_event: AtomicU32,
    /// Whether the stream was busy when the most were in flight: launches do not wait for each other.
    queues: AtomicBool,
    /// GPU time of late in nanoseconds, and the launches in it, of which [`LAUNCH`] is one. Both fade alike.
    time: AtomicU64,
    launches: AtomicU64,
}

/// One launch in [`Cap::launches`].
const LAUNCH: u64 = 1 << 20;
/// The GPU time after which what was before counts for little.
const OF_LATE_NS: u64 = 16_000_000;

/// A launch's stream, as far as its work was launched.
pub(super) trait StreamEnd {
    /// Whether it has work.
    fn is_busy(&self) -> bool;
    /// Records an event behind its work, of which there is one for the GPU; false if that cannot be done.
    fn record(&self) -> bool;
    /// Whether the event that was recorded last was reached, in whichever stream.
    fn is_reached(&self) -> bool;
}

/// Since when a launch waits.
pub(super) struct Since {
    begun: u64,
    /// The same, without what was only a wait for credit.
    time: u64,
    /// Whether it did not go on at once.
    pub(super) has_napped: bool,
    /// Whether it went on although it had to wait.
    pub(super) has_overrun: bool,
}

impl Since {
    pub(super) fn now(now: u64) -> Self {
        Self {
            begun: now,
            time: now,
            has_napped: false,
            has_overrun: false,
        }
    }
}

/// Whether a launch may go on.
enum Admission {
    /// It may.
    Now,
    /// Not before its stream is idle.
    WhenIdle,
    /// Not before this many nanoseconds.
    After(u64),
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
            in_flight: AtomicU32::new(0),
            expected: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            overruns: AtomicU32::new(0),
            before_event: AtomicU32::new(0),
            queues: AtomicBool::new(false),
            time: AtomicU64::new(0),
            launches: AtomicU64::new(0),
        }
    }

    /// The UUID of the GPU.
    pub(super) fn uuid(&self) -> &CUuuid {
        &self.uuid
    }

    /// Whether a launch may go on, which is counted then.
    fn admit(&self, now: u64) -> Admission {
        let credit = self.pace.credit(now, self.rate);
        // Relaxed: one thread more or less that rests.
        let rests = self.rests.load(Ordering::Relaxed);
        let least = if rests { RESUME_CREDIT_NS } else { 1 };
        if credit < least {
            self.rests.store(true, Ordering::Relaxed);
            return Admission::After(RESUME_CREDIT_NS.saturating_sub(credit).unsigned_abs());
        }
        if rests {
            self.rests.store(false, Ordering::Relaxed);
        }
        let time = self.rate.on_gpu(credit.unsigned_abs());
        // One at a time until it is known how long they take.
        let each = match self.expected.load(Ordering::Relaxed) {
            0 => u64::MAX,
            known => known.max(self.launch_time()),
        };
        let most = time.checked_div(each).unwrap_or(0).clamp(1, MOST_LAUNCHES);
        // Relaxed: a number and nothing else.
        let counted = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (u64::from(count) < most).then(|| count.saturating_add(1))
            });
        match counted {
            Ok(before) => {
                if before == 0 {
                    self.begun.store(now, Ordering::Relaxed);
                }
                Admission::Now
            }
            Err(_) => Admission::WhenIdle,
        }
    }

    /// One look of a launch that waits since `since`, which moves on while only time is missing. Returns how long it naps before
    /// the next, or `None` if it goes on.
    pub(super) fn look(&self, now: u64, since: &mut Since, stream: &impl StreamEnd) -> Option<u64> {
        let nap = match self.admit(now) {
            Admission::Now => return None,
            Admission::WhenIdle if !stream.is_busy() => {
                self.ended(now, u32::MAX, since.has_napped);
                self.in_flight.store(1, Ordering::Relaxed);
                return None;
            }
            Admission::WhenIdle => {
                (now.saturating_sub(since.begun) / 4).clamp(SHORT_NAP_NS, LONG_NAP_NS)
            }
            Admission::After(time) => time.clamp(SHORT_NAP_NS, LONG_NAP_NS),
        };
        since.has_napped = true;
        if !self.pace.is_at_work(now) {
            // Only time is missing, or the work has just begun.
            since.time = now;
            self.overruns.store(0, Ordering::Relaxed);
            if !stream.is_busy() {
                self.in_flight.store(0, Ordering::Relaxed);
                self.before_event.store(0, Ordering::Relaxed);
            }
        } else if now.saturating_sub(since.begun) > EVENT_AFTER_NS {
            self.look_for_end(now, stream);
        }
        if now.saturating_sub(since.time) > self.patience() {
            // Relaxed, and below: estimates and nothing else.
            self.overruns.fetch_add(1, Ordering::Relaxed);
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            since.has_overrun = true;
            return None;
        }
        Some(nap)
    }

    /// Whether the event was reached, or there is a new one behind what is in flight.
    fn look_for_end(&self, now: u64, stream: &impl StreamEnd) {
        match self.before_event.load(Ordering::Relaxed) {
            0 if stream.is_busy() && stream.record() => {
                let in_flight = self.in_flight.load(Ordering::Relaxed);
                self.before_event.store(in_flight, Ordering::Relaxed);
            }
            0 => {}
            count if stream.is_reached() => self.ended(now, count, true),
            _ => {}
        }
    }

    /// The first launches in flight have ended, so many of them. `waited` tells whether they kept the GPU busy until now.
    fn ended(&self, now: u64, count: u32, waited: bool) {
        let begun = self.begun.swap(now, Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let count = in_flight.min(count);
        self.before_event.store(0, Ordering::Relaxed);
        self.in_flight.fetch_sub(count, Ordering::Relaxed);
        self.queues.store(waited, Ordering::Relaxed);
        let time = now.saturating_sub(begun).checked_div(count.into());
        if let Some(time) = time.filter(|_| waited) {
            self.expected.store(time.max(1), Ordering::Relaxed);
            if time > SHORT_PATIENCE_NS {
                self.overruns.store(0, Ordering::Relaxed);
            }
        }
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

    /// For how long nothing may end while a launch waits: much longer than what is in flight should take, and less after launches
    /// in a row went on without that.
    pub(super) fn patience(&self) -> u64 {
        let [least, most] = PATIENCE_NS;
        let expected = match self.expected.load(Ordering::Relaxed) {
            0 => UNKNOWN_NS,
            known => known,
        };
        let in_flight = self.in_flight.load(Ordering::Relaxed).saturating_add(1);
        let long = expected.saturating_mul(4).saturating_mul(in_flight.into());
        let in_row = self.overruns.load(Ordering::Relaxed);
        let shorter = long
            .clamp(least, most)
            .checked_shr(in_row.saturating_sub(1))
            .unwrap_or(0);
        shorter.max(SHORT_PATIENCE_NS)
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
