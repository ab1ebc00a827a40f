//! The sampling thread: it looks from time to time whether the GPU has work of this process. No launch is measured.

use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_DEINITIALIZED, CUcontext,
};
use softmig_region::seat::Pacing;

use super::super::captures::{self, StreamGuard};
use super::super::streams::StreamSlot;
use super::cap::Cap;
use super::{ASLEEP, AWAKE, PacedGpu};
use crate::driver::context::within;
use crate::driver::cuda_queries;
use crate::driver::stream::relaxed;
use crate::identity::pack;
use crate::os::{self, Thread};

/// The interval of samples for a program that is at work.
const SAMPLE_EVERY_NS: u64 = 2_000_000;
/// Longest futex wait.
const FOR_EVER_NS: u64 = 3_600_000_000_000;
/// A stream that was not used for this long has no work.
const FORGET_AFTER_NS: u64 = 60_000_000_000;
/// A stream that cannot be asked has work for this long after it was used.
const ASSUME_WORK_NS: u64 = 50_000_000;
/// A stream that was busy within this time was so at the last samples.
const JUST_NOW_NS: u64 = 10_000_000;
/// How many streams are asked, each for a fifth of a microsecond.
const MAX_SAMPLED: usize = 64;
/// The first interval of samples after a launch woke the thread: this long, up to twice as long. Each later interval is
/// longer by half than the one before, up to the interval for a program that is at work.
const FIRST_INTERVAL_NS: u64 = 125_000;

/// How work comes to the GPU, by the samples until now.
///
/// A launch wakes the thread, so work that begins after a rest begins with a sample. Work that began or ended between two
/// samples counts as if it had done so in the middle. Intervals are partly random, so that samples do not depend on the
/// work, and no program can foresee them.
#[derive(Default)]
pub(super) struct Samples {
    /// Whether a launch woke the thread, and the interval after that has not begun.
    is_woken: bool,
    /// The time of the last sample, and whether it found work.
    at: u64,
    had_work: bool,
    /// The interval before it.
    interval: u64,
    /// The number of samples that found work, since the last one that found none.
    busy: u32,
}

impl Samples {
    /// A launch woke the thread.
    pub(super) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// The time until the next sample: on average `most`, or less after a launch woke the thread.
    pub(super) fn interval(&mut self, most: u64, now: u64) -> u64 {
        let random = scattered(now);
        let some = |time: u64| random.wrapping_mul(time) >> 32;
        let next = if core::mem::take(&mut self.is_woken) {
            FIRST_INTERVAL_NS.saturating_add(some(FIRST_INTERVAL_NS))
        } else {
            let longer = self.interval.saturating_add(self.interval / 2);
            longer.max(FIRST_INTERVAL_NS)
        };
        self.interval = next.min(most);
        if next < most {
            next
        } else {
            (most / 2).saturating_add(some(most))
        }
    }

    /// Since when there was no sample: since the last one, or since a launch called the thread, at `called`. The thread takes a while to
    /// wake, which does not count: neither does the launch's way to the GPU.
    fn passed(&self, now: u64, called: u64) -> u64 {
        const WAKES_IN_NS: u64 = 200_000;
        let since = if self.is_woken {
            called.saturating_add(WAKES_IN_NS)
        } else {
            self.at
        };
        now.saturating_sub(since.max(self.at))
    }

    /// How long work may have begun and ended without a sample, where one comes late.
    pub(super) fn unseen(&self, now: u64, called: u64) -> u64 {
        const LATE_NS: u64 = 1_000_000;
        let passed = self.passed(now, called);
        if self.is_woken || passed > self.interval.saturating_add(LATE_NS) {
            passed
        } else {
            0
        }
    }

    /// The part of the time since the last sample that counts as work. A launch on an idle GPU takes a while to get
    /// there, and its end is seen a while late; neither counts.
    pub(super) fn counted(&mut self, now: u64, called: u64, has_work: bool, launched: u32) -> u64 {
        /// Both times together, for each launch: less than was measured (research/gpu-time.md).
        const UNSEEN_PER_LAUNCH_NS: u64 = 3_000;
        /// After this many samples with work, there is always work before a launch.
        const MANY: u32 = 16;
        let passed = self.passed(now, called);
        self.at = now;
        let had_work = core::mem::replace(&mut self.had_work, has_work);
        let is_single = self.busy < MANY;
        self.busy = if has_work {
            self.busy.saturating_add(1)
        } else {
            0
        };
        let work = match (had_work, has_work) {
            (false, false) => 0,
            (true, true) => passed,
            // It begins with the launch that woke the thread.
            (false, true) if self.is_woken => passed,
            (true, false) | (false, true) => passed / 2,
        };
        let unseen = UNSEEN_PER_LAUNCH_NS.saturating_mul(launched.into());
        // Launches beside long work are also on their way. They must not make the long work free.
        let unseen = if is_single { unseen.min(work / 4) } else { 0 };
        work.saturating_sub(unseen)
    }
}

/// A time as a number below 2^32 that is as good as random: no program knows its nanosecond beforehand.
pub(super) fn scattered(now: u64) -> u64 {
    now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

impl Thread for PacedGpu {
    /// The sampling thread's work: it looks from time to time whether there is work, and sleeps while there is none.
    fn run(&'static self) {
        os::name_thread(c"softmig-samples");
        let _exact = os::Exact::timers();
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // This thread must spoil no capture of the program's.
        let _ = cuda_queries::cuThreadExchangeStreamCaptureMode(&mut mode);
        let mut samples = Samples::default();
        // A launch has started this thread: what was before is not work.
        samples.wake();
        loop {
            let pacing = self.arbiter.pacing();
            let is_free = pacing == Pacing::Free;
            self.is_free.store(is_free, Ordering::SeqCst);
            if self.sample(&mut samples, pacing) {
                let now = os::nanoseconds();
                // Without a seat since the arbiter was silent: a program whose work is long launches none that would ask.
                self.join();
                self.arbiter.want(now);
                let ends_soon = pacing == Pacing::OwnCap && self.cap().is_some_and(Cap::rests);
                let most = if ends_soon {
                    FIRST_INTERVAL_NS
                } else {
                    SAMPLE_EVERY_NS
                };
                os::nap(samples.interval(most, now));
                continue;
            }
            if is_free && self.stop_sampling() {
                samples.wake();
                continue;
            }
            self.arbiter.rest();
            self.sleep();
            samples.wake();
        }
    }
}

impl PacedGpu {
    /// Waits for a launch, unless there was one.
    fn sleep(&self) {
        let asleep =
            self.thread
                .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if asleep.is_ok() {
            os::wait_until_changed(&self.thread, ASLEEP, FOR_EVER_NS);
        }
        self.thread.store(AWAKE, Ordering::SeqCst);
    }

    /// Tells the arbiter whether there is work now, or charges it to the job's cap. Returns whether there is, or was since
    /// the last time.
    fn sample(&self, samples: &mut Samples, pacing: Pacing) -> bool {
        let now = os::nanoseconds();
        // Before the launches: one that waited is among these then.
        let waits = self.waiting.load(Ordering::SeqCst) > 0;
        let launched = self.take_launched(now);
        let cap = self.cap().filter(|_| pacing != Pacing::Free);
        let asked = self.has_work(samples.at, now, cap);
        let has_flights = cap.is_some_and(|cap| self.look_at_all(cap, now));
        // To look at all takes longer than a short kernel.
        let has_work = asked.unwrap_or(has_flights) || waits;
        // Captured launches do not run.
        let ran = if captures::are_any() { 0 } else { launched };
        let single = if cap.is_some_and(Cap::queues) { 0 } else { ran };
        // Relaxed: a time and nothing else.
        let called = self.called.load(Ordering::Relaxed);
        let unseen = samples.unseen(now, called);
        let counted = samples.counted(now, called, has_work, single);
        self.arbiter.tell_work(now, has_work, counted);
        match (cap, pacing) {
            (Some(cap), Pacing::OwnCap) => cap.charge(now, counted, unseen),
            (Some(cap), Pacing::Turn) => cap.learn(Some(counted)),
            (Some(cap), _) => cap.learn(None),
            (None, _) => {}
        }
        has_work || launched > 0
    }

    /// Looks what has ended in all streams where the cap holds. Returns whether any has work.
    pub(super) fn look_at_all(&self, cap: &Cap, now: u64) -> bool {
        let mut count = Some(0_u64);
        for slot in self.streams.each() {
            let more = slot.look(now, &cap.flights, || is_busy(slot, now, None));
            count = count
                .zip(more)
                .map(|(count, more)| count.saturating_add(more));
        }
        // What another thread looks at just now has work, and is counted the next time.
        if let Some(count) = count {
            cap.flights.recount(count);
        }
        count != Some(0)
    }

    /// From now on each launch calls the sampling thread. Returns whether a launch may have come too early to see that.
    fn stop_sampling(&self) -> bool {
        /// Far longer than a processor takes to show others what it wrote.
        const VISIBLE_AFTER_NS: u64 = 50_000;
        self.is_free.store(false, Ordering::SeqCst);
        os::nap(VISIBLE_AFTER_NS);
        self.streams.each().any(|slot| slot.launched() > 0)
    }

    /// The number of launches since the last sample. Notes when they were seen.
    fn take_launched(&self, now: u64) -> u32 {
        self.streams
            .each()
            .map(|slot| {
                let count = slot.take_launched();
                if count > 0 {
                    slot.note(now);
                }
                count
            })
            .fold(0, u32::saturating_add)
    }

    /// Whether any of the streams that this process used of late has work just now, as the driver says; `None` if none of those
    /// asked has, and there are more. The streams that launched since the last sample, or had work then, are asked before the others.
    fn has_work(&self, last: u64, now: u64, cap: Option<&Cap>) -> Option<bool> {
        let recently = now.saturating_sub(FORGET_AFTER_NS);
        let ask = |are_latest: bool| {
            let slots = || {
                self.streams
                    .each()
                    .filter(move |slot| (slot.since() >= last) == are_latest)
                    .filter(move |slot| slot.since() > recently)
            };
            // If there are too many streams, each sample asks others of them.
            let more = slots().count().saturating_sub(MAX_SAMPLED) as u64;
            let first = scattered(now).wrapping_mul(more.saturating_add(1)) >> 32;
            let mut asked = slots().skip(first as usize).take(MAX_SAMPLED);
            let has_work = asked.any(|slot| is_busy(slot, now, cap));
            (has_work || more == 0).then_some(has_work)
        };
        match ask(true) {
            Some(false) => ask(false),
            found => found,
        }
    }
}

/// Whether a slot's stream has work. Another thread's own stream cannot be asked, and neither can one that captures.
fn is_busy(slot: &StreamSlot, now: u64, cap: Option<&Cap>) -> bool {
    // Where the context ends, that thread is at work there.
    let Some(_held) = slot.try_hold() else {
        return true;
    };
    let Some(stream) = slot.stream() else {
        // Where the cap holds, there is an event behind each launch.
        let told = cap.and_then(|cap| slot.look(now, &cap.flights, || true));
        let is_assumed = || now.saturating_sub(slot.since()) < ASSUME_WORK_NS;
        return told.map_or_else(is_assumed, |count| count > 0);
    };
    let context = slot.context() as usize as CUcontext;
    // The default stream is the context's.
    let told = within(context, || {
        let guard = StreamGuard::acquire(slot, stream);
        guard.map_or(Ok(false), |_guard| relaxed(|| stream.busy()))
    });
    let is_busy = match told {
        Ok(is_busy) => is_busy,
        // Work that the process leaves behind at its exit goes on.
        Err(CUDA_ERROR_DEINITIALIZED) => now.saturating_sub(slot.since()) < JUST_NOW_NS,
        Err(error) => {
            pack::note_error(error);
            false
        }
    };
    if is_busy {
        slot.note(now);
    }
    is_busy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that has work for a while, again and again, in microseconds.
    #[derive(Clone, Copy)]
    struct Program {
        /// From one beginning of work to the next.
        period: u64,
        /// The time for which it is seen to have work.
        seen: u64,
        /// The launches of each period, evenly in that time.
        launches: u64,
    }

    impl Program {
        /// Bursts of one launch each.
        fn bursts(work: u64, pause: u64) -> Self {
            Self {
                period: work + pause,
                seen: work,
                launches: 1,
            }
        }

        /// When its period of this number begins, not in step with anything.
        fn begin(self, number: u64) -> u64 {
            number * self.period * 1_000 + number * number % 1_009
        }

        fn number(self, now: u64) -> u64 {
            let about = now / (self.period * 1_000);
            about - u64::from(self.begin(about) > now)
        }

        fn has_work(self, now: u64) -> bool {
            now - self.begin(self.number(now)) < self.seen * 1_000
        }

        /// The launches until then.
        fn launched(self, now: u64) -> u64 {
            let number = self.number(now);
            let since = now - self.begin(number);
            let own = 1 + since * self.launches / (self.seen * 1_000);
            number * self.launches + own.min(self.launches)
        }

        /// The part of ten seconds that counts as work, as the thread goes about it.
        fn counted(self) -> f64 {
            const ALL: u64 = 10_000_000_000;
            const WAKES_AFTER: u64 = 20_000;
            let mut samples = Samples::default();
            let (mut now, mut called, mut before, mut sum) = (0, 0, 0, 0);
            samples.wake();
            while now < ALL {
                let launched =
                    self.launched(now) - std::mem::replace(&mut before, self.launched(now));
                let has_work = self.has_work(now);
                sum += samples.counted(now, called, has_work, launched as u32);
                if has_work || launched > 0 {
                    now += samples.interval(2_000_000, now);
                } else {
                    called = self.begin(self.number(now) + 1);
                    now = called + WAKES_AFTER;
                    samples.wake();
                }
            }
            sum as f64 / ALL as f64
        }
    }

    #[test]
    fn the_way_of_single_launches_to_the_gpu_and_back_is_not_work() {
        // Kernels of 20 and of 4 us, of which each is waited for, take 8 us longer until that is seen.
        let waits = |period, seen| Program {
            period,
            seen,
            launches: 1,
        };
        let single = waits(31, 28).counted();
        assert!((0.78..0.88).contains(&single), "{single}");
        let short = waits(16, 12).counted();
        assert!((0.52..0.62).contains(&short), "{short}");
    }

    #[test]
    fn a_burst_of_work_counts_about_as_long_as_it_is() {
        for (work, pause) in [
            (100, 900),
            (300, 3_000),
            (500, 500),
            (500, 3_000),
            (1_000, 500),
            (1_000, 3_000),
            (1_000, 19_000),
            (1_500, 2_500),
            (3_000, 7_000),
            (10_000, 20_000),
        ] {
            let program = Program::bursts(work, pause);
            let of_truth = program.counted() * program.period as f64 / work as f64;
            assert!(
                (0.9..1.3).contains(&of_truth),
                "{work}, {pause}: {of_truth:.3}"
            );
        }
    }

    #[test]
    fn what_is_queued_is_work_all_the_time() {
        let queued = Program {
            period: 20,
            // Also where the next comes a little late.
            seen: 22,
            launches: 1,
        };
        assert!(queued.counted() > 0.998);
    }

    #[test]
    fn launches_beside_long_work_make_a_quarter_of_it_free_at_most() {
        let beside = Program {
            period: 40_000,
            seen: 36_000,
            launches: 12_000,
        };
        assert!(beside.counted() > 0.74 * 0.9, "{}", beside.counted());
    }
}
