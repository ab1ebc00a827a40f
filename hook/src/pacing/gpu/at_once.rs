//! Launches on a GPU without turns: they do not wait and are not measured. A thread looks from time to time whether
//! there is work.

use core::sync::atomic::{Ordering, fence};

use softmig_driver_sys::cuda::CUcontext;

use super::super::captures::Named;
use super::super::estimates::Key;
use super::super::streams::StreamSlot;
use super::super::work::RecordEvent;
use super::{PacedGpu, Ticket};
use crate::driver::context::within;
use crate::driver::stream::{Stream, relaxed};
use crate::os;

/// A stream that was not used for this long has no work.
const FORGET_AFTER_NS: u64 = 60_000_000_000;
/// A stream that cannot be asked has work for this long after it was used.
const ASSUME_WORK_NS: u64 = 50_000_000;
/// How many streams are asked, each for a fifth of a microsecond.
const MAX_SAMPLED: usize = 64;

/// How work comes to the GPU, by the latest samples.
#[derive(Default)]
pub(super) struct Samples {
    /// The number of samples that found work, since the last one that found none.
    busy: u32,
    /// The time for which the GPU was idle although there was work, as far as the arbiter was not told of it.
    idle: u64,
}

impl Samples {
    /// The time since the last sample for which the GPU only seemed to work. A launch that finds nothing before it is
    /// on its way to the GPU for a while, and its end is seen a while late.
    fn idle(&mut self, has_work: bool, launched: u32) -> u64 {
        /// Both times together, for each launch: less than was measured (docs/gpu-notes.md).
        const UNSEEN_PER_LAUNCH_NS: u64 = 3_000;
        /// After this many samples with work, there is always work before a launch.
        const MANY: u32 = 16;
        self.idle = if self.busy < MANY {
            self.idle
                .saturating_add(UNSEEN_PER_LAUNCH_NS.saturating_mul(launched.into()))
        } else {
            0
        };
        let had_work = self.busy > 0;
        self.busy = if has_work {
            self.busy.saturating_add(1)
        } else {
            0
        };
        if had_work {
            core::mem::take(&mut self.idle)
        } else {
            0
        }
    }
}

impl PacedGpu {
    /// Lets a launch go on, and notes its stream.
    #[inline]
    pub(super) fn admit_at_once(&'static self, stream: Stream, key: Key) -> Ticket {
        if let Some(slot) = self.streams.slot(stream, self.context()) {
            slot.launch();
        }
        if !self.turns.are_sampled() {
            // Either this thread sees that the sampling thread sleeps, or that thread sees this launch.
            fence(Ordering::SeqCst);
            self.turns.wake();
        }
        Ticket {
            gpu: self,
            slot: None,
            stream,
            key,
            cost: 0,
            event: RecordEvent::Never,
            stands_for: 1,
            is_sure: false,
        }
    }

    /// Tells the arbiter whether there is work now. Returns whether there is, or was since the last time.
    pub(super) fn sample(&self, samples: &mut Samples) -> bool {
        let launched = self.take_launched();
        let has_work = self.has_work();
        self.turns
            .tell_work(has_work, samples.idle(has_work, launched));
        has_work || launched > 0
    }

    /// From here on each launch wakes the thread that samples. Returns whether there was one that did not see this.
    pub(super) fn stop_sampling(&self) -> bool {
        /// Far longer than a processor takes to show others what it wrote.
        const VISIBLE_AFTER_NS: u64 = 50_000;
        self.turns.set_sampled(false);
        os::nap(VISIBLE_AFTER_NS);
        self.take_launched() > 0
    }

    /// Whether anything was launched since the last sample.
    pub(super) fn has_launched(&self) -> bool {
        self.streams.each().any(|slot| slot.launched() > 0)
    }

    /// The number of launches since the last sample. Notes when they were seen.
    fn take_launched(&self) -> u32 {
        let now = os::nanoseconds();
        let each = self.streams.each().map(|slot| {
            let count = slot.take_launched();
            if count > 0 {
                slot.note(now);
            }
            count
        });
        each.fold(0, u32::saturating_add)
    }

    /// Whether any of the streams that this process used of late has work just now, as the driver says.
    fn has_work(&self) -> bool {
        let recently = os::nanoseconds().saturating_sub(FORGET_AFTER_NS);
        let slots = self.streams.each();
        let slots = slots.filter(|slot| !slot.is_done() || slot.since() > recently);
        let mut slots = slots.take(MAX_SAMPLED);
        // A thread that has the events of a stream is at work there.
        slots.any(|slot| slot.try_marks(|slot, _| is_busy(slot)).unwrap_or(true))
    }
}

/// Whether a slot's stream has work. Another thread's own cannot be asked, nor one that captures.
fn is_busy(slot: &StreamSlot) -> bool {
    let Some(stream) = slot.stream() else {
        let age = os::nanoseconds().saturating_sub(slot.since());
        return !slot.is_done() || age < ASSUME_WORK_NS;
    };
    let context = slot.context() as usize as CUcontext;
    // The default stream is the context's.
    within(context, || {
        let named = Named::of(slot, stream);
        named.is_some_and(|_named| relaxed(|| stream.is_busy()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the time that counts as work, by samples each 2 ms of a program that launches each `period` us and
    /// is seen to have work for `seen` of it.
    fn counted(period: f64, seen: f64) -> f64 {
        const EACH: f64 = 2_000.0;
        let mut samples = Samples::default();
        let (mut sum, mut had_work) = (0.0, false);
        for number in 1..=20_000 {
            // Not in step with the program.
            let at = f64::from(number) * (EACH + 0.7);
            let has_work = at % period < seen;
            let idle = samples.idle(has_work, (EACH / period) as u32);
            if had_work {
                sum += (EACH - idle as f64 / 1_000.0).max(0.0);
            }
            had_work = has_work;
        }
        sum / 20_000.0 / EACH
    }

    #[test]
    fn the_way_of_single_launches_to_the_gpu_and_back_is_not_work() {
        // Kernels of 20 and of 4 us, of which each is waited for, take 8 us longer until that is seen.
        let single = counted(31.0, 28.0);
        assert!((0.78..0.88).contains(&single), "{single}");
        let short = counted(16.0, 12.0);
        assert!((0.52..0.62).contains(&short), "{short}");
    }

    #[test]
    fn what_is_queued_is_work_all_the_time() {
        assert!(counted(20.0, 20.0) > 0.998);
    }
}
