//! The events in a stream that tell when its work was done.

use softmig_driver_sys::cuda::{CU_EVENT_DEFAULT, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUevent};

use super::streams::{Pending, StreamSlot};
use crate::driver::context::in_context_of;
use crate::driver::cuda_queries;
use crate::driver::stream::Stream;
use crate::os;
use crate::os::cells::zeroed;

/// Events that are under way in a stream at a time.
const MAX_MARKS: usize = 32;

/// An event that was not reached this long after it was recorded is behind work that runs.
const REACHED_SOON_NS: u64 = 20_000;

/// The time that two events in an idle stream measure with nothing between them, and the GPU time that an event behind
/// other work costs (research/gpu-time.md).
const EMPTY_INTERVAL_NS: u64 = 400;
const EVENT_COST_NS: u64 = 1_400;

/// Work after a rest takes at most this much longer, or seems to: no cache holds anything of it, on the GPU or on the host
/// (research/gpu-time.md).
const AFTER_REST_NS: u64 = 6_000;

/// The GPU waited for an event that is reached within this time after it was recorded: launch latency, and some more.
const REACHED_AT_ONCE_NS: u64 = 2_000;

/// The events of a stream, oldest first.
pub(super) struct StreamEvents {
    ring: [StreamEvent; MAX_MARKS],
    first: usize,
    count: usize,
    /// When an event was last reached, on the GPU's clock; 0 for never.
    reached: u64,
    /// The work behind that event may have begun later.
    was_early: bool,
    /// When an event was last asked for that could wait, on the host's clock.
    asked: u64,
}

/// An event.
#[derive(Clone, Copy)]
pub(super) struct StreamEvent {
    /// Null until it was made.
    event: CUevent,
    /// The work between it and the one before it.
    pub(super) work: Pending,
    /// Nothing lies between: time begins here.
    pub(super) is_begin: bool,
    /// The work behind it may have begun later.
    pub(super) is_early: bool,
    /// The work before it ended at some earlier time: it took its estimate at most.
    pub(super) is_late: bool,
    /// It measures this one launch.
    alone: Option<Alone>,
    /// The number of launches that it measures: its own, and those without an event.
    pub(super) stands_for: u64,
    /// When the work behind it began at the earliest, and when it was recorded, on the host's clock.
    pub(super) since: u64,
    recorded: u64,
    /// It was asked for later, and was not reached: the work before it ended no earlier.
    pub(super) was_awaited: bool,
}

/// The circumstances of a launch that is measured by itself.
#[derive(Clone, Copy)]
pub(super) struct Alone {
    /// The time for which the GPU waited for it; `None` if it came behind other work.
    pub(super) lead: Option<u64>,
    /// When it had been handed over, on the host's clock.
    pub(super) handed_over: u64,
    /// Nothing had been launched for a while.
    pub(super) has_rested: bool,
    /// By then it was over.
    pub(super) was_over: bool,
}

zeroed! { StreamEvents { ring, first, count, reached, was_early, asked } }
zeroed! { StreamEvent { event, work, is_begin, is_early, is_late, alone, stands_for, since, recorded, was_awaited } }
zeroed! { Alone { lead, handed_over, has_rested, was_over } }
zeroed! { Base { event, context, time } }

/// An event that was reached.
pub(super) struct Reached {
    /// The event.
    pub(super) mark: StreamEvent,
    /// When the event before it was reached, on the GPU's clock.
    pub(super) start: u64,
    /// The work may have begun later.
    pub(super) is_start_early: bool,
    /// When this one was.
    pub(super) end: u64,
}

impl Reached {
    /// When its work began: the time that the GPU waited for it is not charged.
    pub(super) fn began(&self) -> u64 {
        let lead = self.mark.alone.map_or(0, |alone| match alone.lead {
            Some(lead) => lead.saturating_add(EMPTY_INTERVAL_NS),
            None => EVENT_COST_NS,
        });
        self.start.saturating_add(lead).min(self.end)
    }

    /// Whether its time is only an upper bound: the work may have ended before the event was there, or it took a little
    /// longer than it should, after a rest. A time far longer than that is believed in any case.
    pub(super) fn is_bound(&self) -> bool {
        let took = self.end.saturating_sub(self.began());
        let cost = self.mark.work.cost;
        let bounds = |alone: &Alone| {
            let behind = self.mark.recorded.saturating_sub(alone.handed_over);
            took <= behind.saturating_add(REACHED_AT_ONCE_NS)
                || alone.has_rested && took <= cost.saturating_add(AFTER_REST_NS)
                || alone.was_over
        };
        took <= far_beyond(cost) && self.mark.alone.as_ref().is_some_and(bounds)
    }
}

/// Work that takes longer than this is other work than that of which `cost` is the estimate.
pub(super) fn far_beyond(cost: u64) -> u64 {
    const SOME: u64 = 20_000;
    cost.saturating_mul(2).saturating_add(SOME)
}

/// The GPU's clock: events tell only the time between two of them.
pub(super) struct Base {
    event: CUevent,
    context: u64,
    time: u64,
}

impl Base {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self {
            event: core::ptr::null_mut(),
            context: 0,
            time: 0,
        }
    }

    /// Its context is about to end.
    pub(super) fn forget(&mut self, context: u64) {
        if self.context == context {
            *self = Self::new();
        }
    }
}

/// Age at which another event becomes the base: differences come as a `float` of milliseconds.
const MAX_BASE_AGE_NS: u64 = 1_000_000_000;

impl StreamEvents {
    /// How many events were not reached.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Hands the events to another stream. None of them is under way.
    pub(super) fn pass_on(&mut self) {
        self.reached = 0;
    }

    /// Whether all events were reached.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The estimate of the work before the first event that was not reached.
    pub(super) fn first_cost(&self) -> Option<u64> {
        let first = self.ring.get(self.first).filter(|_| self.count > 0)?;
        Some(first.work.cost)
    }

    /// Whether it is time to ask again, if that can wait: asking takes as long as a launch.
    pub(super) fn is_to_be_asked(&mut self, now: u64) -> bool {
        const PAUSE: u64 = 20_000;
        let is_due = now.saturating_sub(self.asked) >= PAUSE;
        if is_due {
            self.asked = now;
        }
        is_due
    }

    /// When the event was recorded behind which the oldest work under way begins; `None` if that work has begun.
    fn begins_behind(&self) -> Option<u64> {
        let oldest = self.ring.get(self.first).filter(|_| self.count > 0)?;
        oldest.is_begin.then_some(oldest.recorded)
    }

    /// Whether the oldest work that is under way can have begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begins_behind().is_none()
    }

    /// Whether the stream waits for something else before the oldest work that is under way. Until a while has passed it
    /// may be the last work of the job that had the turn before.
    pub(super) fn is_blocked(&self, now: u64) -> bool {
        const WHILE: u64 = 1_500_000;
        let since = self.begins_behind();
        since.is_some_and(|since| now.saturating_sub(since) > WHILE)
    }

    /// Records that time begins; maybe while another job's last work runs, which no event in this stream waits for.
    pub(super) fn begin(&mut self, stream: Stream, is_early: bool) -> bool {
        self.record(stream, |mark| {
            mark.is_begin = true;
            mark.is_early = is_early;
        })
    }

    /// Records the end of all that was launched.
    pub(super) fn end(
        &mut self,
        slot: &StreamSlot,
        stream: Stream,
        alone: Option<Alone>,
        stands_for: u64,
    ) -> bool {
        self.end_as(slot, stream, |mark| {
            // Another thread may have launched there too.
            mark.alone = alone.filter(|_| mark.work.count == 1);
            mark.stands_for = stands_for;
        })
    }

    /// The same for work that may have ended before; then time begins here.
    pub(super) fn end_late(&mut self, slot: &StreamSlot, stream: Stream) -> bool {
        self.end_as(slot, stream, |mark| mark.is_late = true)
    }

    /// The same for work that began just now. All work before it is over.
    pub(super) fn end_begun(&mut self, slot: &StreamSlot, stream: Stream) -> bool {
        self.end_as(slot, stream, |mark| {
            mark.is_late = true;
            mark.was_awaited = true;
        })
    }

    fn end_as(
        &mut self,
        slot: &StreamSlot,
        stream: Stream,
        describe: impl FnOnce(&mut StreamEvent),
    ) -> bool {
        let is_full = self.count >= MAX_MARKS;
        if is_full {
            return false;
        }
        let expected = slot.expected();
        let work = slot.take_pending();
        let since = slot.since();
        let done = self.record(stream, |mark| {
            mark.work = work;
            // No event marks where it began.
            mark.is_late = expected != 0;
            mark.since = since;
            describe(mark);
        });
        if !done {
            slot.put_back(work, expected);
        }
        done
    }

    fn record(&mut self, stream: Stream, describe: impl FnOnce(&mut StreamEvent)) -> bool {
        if self.count >= MAX_MARKS {
            return false;
        }
        let at = self.first.wrapping_add(self.count) % MAX_MARKS;
        let Some(mark) = self.ring.get_mut(at) else {
            return false;
        };
        if !mark.has_event(stream) {
            return false;
        }
        if stream.record(mark.event) != CUDA_SUCCESS {
            return false;
        }
        *mark = StreamEvent {
            event: mark.event,
            recorded: os::nanoseconds(),
            ..StreamEvent::default()
        };
        describe(mark);
        self.count = self.count.saturating_add(1);
        // The next may be recorded by a thread that has no context to make events in.
        if let Some(next) = self.ring.get_mut(at.wrapping_add(1) % MAX_MARKS) {
            next.has_event(stream);
        }
        true
    }

    /// The next event, if it was reached.
    pub(super) fn next(&mut self, base: &mut Base, context: u64, now: u64) -> Option<Reached> {
        let mark = self.ring.get_mut(self.first).filter(|_| self.count > 0)?;
        let state = cuda_queries::cuEventQuery(mark.event);
        if state == CUDA_ERROR_NOT_READY {
            mark.was_awaited |= now.saturating_sub(mark.recorded) > REACHED_SOON_NS;
            return None;
        }
        let end = if state == CUDA_SUCCESS {
            time(mark, base, context, now)
        } else {
            0
        };
        let reached = Reached {
            mark: *mark,
            start: self.reached,
            is_start_early: self.was_early,
            end,
        };
        self.reached = end;
        self.was_early = mark.is_early;
        self.first = self.first.wrapping_add(1) % MAX_MARKS;
        self.count = self.count.saturating_sub(1);
        Some(reached)
    }

    /// Gives the events back, none of which is under way.
    pub(super) fn destroy(&mut self) {
        for mark in &mut self.ring {
            if !mark.event.is_null() {
                let _ = cuda_queries::cuEventDestroy_v2(mark.event);
            }
        }
        self.forget();
    }

    /// The events are gone; returns what was in flight.
    pub(super) fn forget(&mut self) -> u64 {
        let mut lost: u64 = 0;
        for at in 0..self.count {
            let mark = self.ring.get(self.first.wrapping_add(at) % MAX_MARKS);
            lost = lost.saturating_add(mark.map_or(0, |mark| mark.work.cost));
        }
        for mark in &mut self.ring {
            mark.event = core::ptr::null_mut();
        }
        (self.first, self.count, self.reached) = (0, 0, 0);
        self.was_early = false;
        lost
    }
}

impl Default for StreamEvent {
    fn default() -> Self {
        Self {
            event: core::ptr::null_mut(),
            work: Pending::default(),
            is_begin: false,
            is_early: false,
            is_late: false,
            alone: None,
            stands_for: 1,
            since: 0,
            recorded: 0,
            was_awaited: false,
        }
    }
}

impl StreamEvent {
    /// Makes its event in the stream's context, if it has none yet; false if that fails.
    fn has_event(&mut self, stream: Stream) -> bool {
        if self.event.is_null() {
            let made = in_context_of(stream.handle, || {
                cuda_queries::cuEventCreate(&mut self.event, CU_EVENT_DEFAULT)
            });
            if made != CUDA_SUCCESS {
                self.event = core::ptr::null_mut();
            }
        }
        !self.event.is_null()
    }
}

/// When an event was reached, on the GPU's clock. From time to time it becomes the base, and the base takes its place.
fn time(mark: &mut StreamEvent, base: &mut Base, context: u64, now: u64) -> u64 {
    let mut milliseconds = 0_f32;
    let known = !base.event.is_null()
        && base.context == context
        && cuda_queries::cuEventElapsedTime(&mut milliseconds, base.event, mark.event)
            == CUDA_SUCCESS;
    // Times of two contexts cannot be compared by events. They are compared by the host's clock.
    let time = if known {
        let since = (milliseconds * 1e6) as i64;
        base.time.saturating_add_signed(since)
    } else {
        now
    };
    if !known || time.saturating_sub(base.time) > MAX_BASE_AGE_NS {
        let event = if base.context == context {
            base.event
        } else {
            // Another context's, which has not ended: see `forget`.
            let _ = cuda_queries::cuEventDestroy_v2(base.event);
            core::ptr::null_mut()
        };
        *base = Base {
            event: mark.event,
            context,
            time,
        };
        mark.event = event;
    }
    time
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
