//! The work of the GPU for this process: it is measured, charged, and taken off the work in flight.

use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::{CUcontext, CUstream};

use super::super::captures::{StreamGuard, wait_for_others};
use super::super::estimates::{Key, UNKNOWN_NS};
use super::super::events::{Alone, Reached, StreamEvents, far_beyond};
use super::super::streams::StreamSlot;
use super::{CHARGE_LIGHT_NS, PacedGpu, Ticket};
use crate::driver::stream::{Stream, relaxed};
use crate::os::{self, Errno};

/// Interval of a full scan of all streams.
const FULL_SCAN_EVERY_NS: u64 = 2_000_000;

/// A stream whose work is overdue by this much is asked whether it is idle.
const ASK_AFTER_NS: u64 = 300_000;

impl PacedGpu {
    /// Charges the work that has ended in a stream, and from time to time in all.
    pub(super) fn look_back(&self, slot: Option<&StreamSlot>) {
        let now = os::nanoseconds();
        // Relaxed: a time and nothing else.
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) > FULL_SCAN_EVERY_NS {
            self.looked.store(now, Ordering::Relaxed);
            self.settle();
        } else if let Some(slot) = slot {
            relaxed(|| {
                slot.try_marks(|slot, marks| {
                    if marks.is_to_be_asked(now) {
                        self.settle_marks(slot, marks);
                    }
                });
            });
        }
    }

    /// Charges work without an event behind it as estimated, if it is over by the estimate. Launches that are known
    /// well are not measured each time, since that takes longer than they do. The stream is asked if the work could
    /// have taken far longer.
    pub(super) fn settle_by_time(
        &self,
        slot: &StreamSlot,
        marks: &mut StreamEvents,
        stream: Option<Stream>,
    ) {
        if !marks.is_empty() || !slot.has_pending() {
            return;
        }
        let now = os::nanoseconds();
        let Some(time) = slot.over_for(now) else {
            return;
        };
        if let Some(stream) = stream.filter(|_| time > ASK_AFTER_NS)
            && let Some(_guard) = StreamGuard::acquire(slot, stream)
            && stream.is_busy()
        {
            marks.end_late(slot, stream);
            return;
        }
        let cost = slot.take_pending().cost;
        self.count(cost, now);
        self.give_back(cost);
    }

    /// Charges work without an event behind it as estimated, if at most the last of it still runs. False if more of it
    /// may run, or if another thread has the events.
    pub(super) fn settle_light(&self, slot: &StreamSlot, now: u64) -> bool {
        if slot.backlog(now) > CHARGE_LIGHT_NS {
            return false;
        }
        let cost = slot.try_marks(|slot, marks| {
            let is_alone = marks.is_empty() && slot.is_expected();
            is_alone.then(|| slot.take_pending().cost)
        });
        let Some(cost) = cost.flatten() else {
            return false;
        };
        self.count(cost, now);
        self.give_back(cost);
        true
    }

    /// Charges a launch that was taken for captured and runs: the capture had ended before, or had not begun.
    #[cold]
    pub(super) fn look_after_captured(&'static self, ticket: &Ticket) {
        let _errno = Errno::save();
        let stream = ticket.stream;
        if stream.is_capturing() {
            return;
        }
        let known = self.estimates.find(ticket.key);
        let cost = known.map_or(UNKNOWN_NS, |known| known.time);
        self.in_flight.fetch_add(cost, Ordering::SeqCst);
        let Some(slot) = self.streams.slot(stream, self.context()) else {
            self.count(cost, os::nanoseconds());
            self.give_back(cost);
            return;
        };
        if slot.is_idle() {
            slot.note(os::nanoseconds());
        }
        slot.add_unsure(ticket.key, cost);
        relaxed(|| {
            slot.try_marks(|slot, marks| {
                self.settle_marks(slot, marks);
                marks.end_begun(slot, stream);
            });
        });
    }

    /// Records an event behind the launches.
    pub(super) fn mark(
        &'static self,
        slot: &StreamSlot,
        stream: Stream,
        alone: Option<Alone>,
        stands_for: u64,
    ) {
        let _errno = Errno::save();
        relaxed(|| {
            slot.try_marks(|slot, marks| {
                // Work that is measured by itself is over soon, and an event that comes later than that tells little.
                let is_marked = alone.is_some() && marks.end(slot, stream, alone, stands_for);
                self.settle_marks(slot, marks);
                if !is_marked {
                    marks.end(slot, stream, alone, stands_for);
                }
            });
        });
    }

    /// The same for a stream that may be captured.
    fn mark_end(&'static self, slot: &StreamSlot, stream: Stream) {
        if let Some(_guard) = StreamGuard::acquire(slot, stream) {
            self.mark(slot, stream, None, 1);
        }
    }

    /// See [`crate::pacing::before_pause`].
    pub(in crate::pacing) fn break_off(&'static self, stream: Stream) {
        let Some(slot) = self.streams.find(stream, self.context()) else {
            return;
        };
        // Only this thread's program can begin to capture it just now.
        if slot.has_pending() && !stream.is_capturing() {
            self.mark(slot, stream, None, 1);
        }
        slot.break_off();
    }

    /// Notes that the program has waited for a stream, or for all. Work that is known so well that it has no event took
    /// as long as the wait, if that was far longer than expected.
    pub(in crate::pacing) fn note_wait(&'static self, stream: Option<Stream>, waited: u64) {
        if let Some(cap) = self.job_cap().filter(|it| it.coscheduling.is_several()) {
            self.settle();
            if self.in_flight.load(Ordering::Relaxed) == 0 {
                cap.coscheduling.moved(os::nanoseconds(), None);
            }
        }
        if waited < ASK_AFTER_NS {
            return;
        }
        let context = self.context() as u64;
        let slots = self.streams.each();
        for slot in slots.filter(|slot| slot.context() == context) {
            if stream.is_none_or(|stream| slot.is_of(stream)) {
                slot.try_marks(|slot, marks| {
                    let cost = slot.light_cost().filter(|_| marks.is_empty());
                    if cost.is_some_and(|cost| {
                        waited > cost.saturating_mul(2).saturating_add(ASK_AFTER_NS)
                    }) {
                        let work = slot.take_pending();
                        self.count(waited, os::nanoseconds());
                        self.give_back(work.cost);
                        if let Some((key, time)) = work.key.zip(waited.checked_div(work.count)) {
                            self.estimates.learn(key, time);
                        }
                    }
                });
            }
        }
    }

    /// See `crate::pacing::waiting`.
    pub(in crate::pacing) fn mark_ends(&'static self, stream: Option<Stream>) {
        // A little work that is known well is not worth an event.
        let slots = self.streams.each().filter(|slot| slot.has_much_pending());
        let context = self.context() as u64;
        for slot in slots.filter(|slot| slot.context() == context) {
            let is_meant = stream.is_none_or(|stream| slot.is_of(stream));
            let Some(stream) = slot.stream().filter(|_| is_meant) else {
                continue;
            };
            self.mark_end(slot, stream);
        }
    }

    /// Marks the ends of the work in flight in all streams that this thread can name.
    pub(super) fn mark_all_ends(&'static self) {
        for slot in self.streams.each().filter(|slot| slot.has_pending()) {
            if let Some(stream) = slot.stream() {
                self.mark_end(slot, stream);
            }
        }
    }

    /// Charges the work that has ended in all streams.
    pub(super) fn settle(&self) {
        relaxed(|| {
            for slot in self.streams.each() {
                slot.try_marks(|slot, marks| {
                    self.settle_marks(slot, marks);
                    self.settle_by_time(slot, marks, slot.stream());
                    slot.free_if_done(marks);
                });
            }
        });
    }

    /// The same by events alone, which can be asked for in any context.
    fn settle_reached(&self) {
        relaxed(|| {
            for slot in self.streams.each() {
                slot.try_marks(|slot, marks| self.settle_marks(slot, marks));
            }
        });
    }

    /// The same, on all GPUs of this process: no other thread may look at those.
    pub(super) fn settle_several(&'static self) {
        self.settle();
        if self
            .job_cap()
            .is_some_and(|cap| cap.coscheduling.is_several())
        {
            let others = |gpu: &'static Self| {
                if !core::ptr::eq(gpu, self) {
                    gpu.settle_reached();
                }
            };
            Self::each(others);
        }
    }

    pub(super) fn settle_marks(&self, slot: &StreamSlot, marks: &mut StreamEvents) {
        if marks.is_empty() {
            return;
        }
        let Some(mut base) = self.times.base.try_hold() else {
            return;
        };
        let now = os::nanoseconds();
        let mut is_any = false;
        while let Some(reached) = marks.next(&mut base, slot.context(), now) {
            self.charge(&reached, now);
            slot.note(now);
            is_any = true;
        }
        if is_any && let Some(cap) = self.job_cap() {
            let in_flight = self.time_in_flight();
            let here = marks.first_cost().unwrap_or_else(|| slot.pending_cost());
            let next = if here > 0 { here } else { in_flight };
            cap.coscheduling.moved(now, (in_flight > 0).then_some(next));
        }
    }

    fn charge(&self, reached: &Reached, now: u64) {
        let mark = &reached.mark;
        let work = mark.work;
        if mark.is_begin {
            return;
        }
        let start = reached.began();
        let is_early = reached.is_start_early || mark.is_late && self.arbiter.is_new(mark.since);
        let start = if is_early {
            start.max(reached.end.saturating_sub(work.cost))
        } else {
            start
        };
        let is_timed = reached.start > 0 && reached.end > 0;
        let is_bound = reached.is_bound();
        let is_exact = is_timed && !mark.is_late && !is_bound;
        let end = if is_exact || mark.was_awaited {
            reached.end
        } else {
            reached.end.min(start.saturating_add(work.cost))
        };
        let time = if is_timed {
            self.times.busy_intervals.hold().add(start, end)
        } else {
            work.cost
        };
        let time = if is_timed && mark.is_late {
            since_launched(time, now.saturating_sub(mark.since), work.cost)
        } else {
            time
        };
        let time = if self.is_unsteady.load(Ordering::Relaxed) {
            time
        } else {
            time.saturating_add(unseen(reached, time))
        };
        // Without turns, others' work is between the events as well.
        let is_mixed = self.arbiter.is_steered();
        let teaches = is_timed && !mark.is_late && !is_early && !is_mixed;
        if let Some(key) = work.key.filter(|_| teaches)
            && let Some(each) = reached.end.saturating_sub(start).checked_div(work.count)
        {
            let each = if is_bound {
                self.estimates.within(key, each)
            } else {
                // The time beyond that was charged for the other launches that this mark measures.
                each.min(most_learned(mark.stands_for, work.cost))
            };
            self.estimates.learn(key, self.without_waiting(key, each));
        }
        if is_exact && !is_early {
            // An estimate that is not sure teaches nothing, but the earlier value must not be kept for ever.
            let estimated = if work.is_unsure { time } else { work.cost };
            self.concurrency.note(estimated, time);
        }
        self.count(time, now);
        self.give_back(work.cost);
    }

    /// The time that a launch took, without time in which it may have waited for another GPU.
    fn without_waiting(&self, key: Key, time: u64) -> u64 {
        let known = self.estimates.find(key);
        match known.filter(|_| self.is_unsteady.load(Ordering::Relaxed)) {
            Some(known) => time.min(known.time.saturating_mul(2)),
            None => time,
        }
    }

    /// Counts this time, in which the GPU worked.
    pub(super) fn count(&self, time: u64, now: u64) {
        let used = self
            .used
            .fetch_add(time, Ordering::Relaxed)
            .saturating_add(time);
        self.arbiter.used(used);
        self.stalled.store(0, Ordering::Relaxed);
        if let Some(cap) = self.job_cap() {
            cap.charge(now, time, self.time_in_flight());
            let is_unsteady = cap.is_together(now);
            self.is_unsteady.store(is_unsteady, Ordering::Relaxed);
        }
        // Less is left.
        let left = self.left(now, used);
        self.ceiling.fetch_min(self.apart(left), Ordering::SeqCst);
    }

    /// A stream is about to end.
    pub(in crate::pacing) fn forget_stream(&'static self, handle: CUstream) {
        let stream = Stream::plain(handle);
        for slot in self.streams.each().filter(|slot| slot.is_of(stream)) {
            if slot.has_pending() {
                self.mark_end(slot, stream);
            }
            let lost = relaxed(|| slot.end_stream());
            wait_for_others();
            // Work without an event behind it is charged as estimated.
            self.count(lost, os::nanoseconds());
            self.give_back(lost);
        }
    }

    /// A context may be about to end.
    pub(in crate::pacing) fn close_context(&'static self, context: CUcontext) {
        self.mark_all_ends();
        self.settle();
        for slot in self.of_context(context) {
            slot.close();
        }
    }

    /// It has not ended.
    pub(in crate::pacing) fn reopen_context(&self, context: CUcontext) {
        for slot in self.of_context(context) {
            slot.reopen();
        }
    }

    /// It has ended, and its work with it. The time since that work began is charged.
    pub(in crate::pacing) fn forget_context(&self, context: CUcontext) {
        let now = os::nanoseconds();
        let mut longest = 0;
        for slot in self.of_context(context) {
            let (lost, time) = slot.end(now);
            longest = time.max(longest);
            self.give_back(lost);
        }
        self.count(longest, now);
        self.context.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.times.base.hold().forget(context as u64);
    }

    fn of_context(&self, context: CUcontext) -> impl Iterator<Item = &StreamSlot> {
        let context = context as u64;
        let slots = self.streams.each();
        slots.filter(move |slot| slot.context() == context)
    }
}

/// The time of work whose beginning no event marks: that since the event before it, and not more than that since its
/// launch. It may have been over for a while before its end was seen, so work that can have taken its estimate is
/// charged that.
fn since_launched(time: u64, most: u64, cost: u64) -> u64 {
    let is_plausible = time > most && most <= far_beyond(cost);
    let expected = if is_plausible { cost } else { u64::MAX };
    time.min(most).min(expected)
}

/// The longest time that is learned from a launch that is measured for `stands_for` launches and should take `cost`.
fn most_learned(stands_for: u64, cost: u64) -> u64 {
    if stands_for > 1 {
        far_beyond(cost)
    } else {
        u64::MAX
    }
}

/// The time of the launches that this one is measured for, and that were not measured, if it took far more than expected.
fn unseen(reached: &Reached, time: u64) -> u64 {
    let (mark, work) = (&reached.mark, reached.mark.work);
    let is_alone = !mark.is_late && work.count == 1;
    if is_alone && time > far_beyond(work.cost) {
        time.saturating_sub(work.cost)
            .saturating_mul(mark.stands_for.saturating_sub(1))
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_with_an_unseen_beginning_costs_its_estimate() {
        // The first of a turn: the event before it was the last of the one before.
        let first = |most, cost| since_launched(9_000_000, most, cost);
        assert_eq!(first(190_000, 120_000), 120_000);
        assert_eq!(first(100_000, 120_000), 100_000);
        let far = far_beyond(120_000);
        assert_eq!(
            [first(far, 120_000), first(far + 1, 120_000)],
            [120_000, far + 1]
        );
        // The event before it was reached while it was in the queue.
        assert_eq!(since_launched(150_000, 190_000, 120_000), 150_000);
        assert_eq!(since_launched(190_000, 190_000, 120_000), 190_000);
    }
}
