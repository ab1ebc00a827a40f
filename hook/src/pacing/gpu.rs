//! One GPU whose time is limited: the work that this process has in flight there, and the work that it may have.

mod at_once;
mod charging;
mod registry;
mod waiting;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUcontext, CUctx_st, CUresult};

use super::arbiter_client::{ArbiterClient, WorkInFlight};
use super::busy_intervals::BusyIntervals;
use super::captures;
use super::concurrency::Concurrency;
use super::estimates::{Estimate, Estimates, Key};
use super::events::{Alone, Base, StreamEvents};
use super::job_cap::JobCap;
use super::streams::{StreamSlot, Streams};
use super::work::{RecordEvent, Work};
use crate::driver::context::{self, are_several_contexts};
use crate::driver::stream::{Stream, relaxed};
use crate::os::cells::{Kept, Locked, zeroed};
use crate::os::{self, Errno, processor};

/// The most that is in flight: enough that the GPU never waits for the program.
const WINDOW_NS: u64 = 1_000_000;
/// The same where a thread may launch on one GPU for a while before it launches on another, for which the first one waits.
const WIDE_WINDOW_NS: u64 = 4_000_000;
/// With less in flight than this, or some 20 us after the last launch, the GPU may be done before the next launch comes: then its
/// time is watched closely.
const CLOSE_TO_IDLE_NS: u64 = 100_000;
/// Upper bound on launch latency when the GPU is idle.
const LAUNCH_LATENCY_NS: u64 = 20_000;
/// Charge this much predictable work, or this many launches, without recording an event.
const CHARGE_LIGHT_NS: u64 = 50_000;
const CHARGE_LIGHT_LAUNCHES: u64 = 32;
/// Record an event after this much work: the GPU loses some 1.6 us with each.
const EVENT_EVERY_NS: u64 = 400_000;
/// Record an event after this many launches, too.
const EVENT_EVERY_LAUNCHES: u64 = 64;

/// One GPU; nothing is known of it when all is zero. The fields of each launch come first, in one line of the processor's
/// cache: what a program did since the launch before has pushed most of them out.
#[repr(C, align(64))]
pub(super) struct PacedGpu {
    /// Work that was launched and not seen to end, in estimated nanoseconds of each launch by itself.
    in_flight: AtomicU64,
    /// Launches go on while less than this is in flight.
    ceiling: AtomicU64,
    /// When the last launch was, in the processor's ticks.
    last: AtomicU64,
    /// Its context, where it has one only.
    context: AtomicPtr<CUctx_st>,
    /// The job's cap; none while nothing is known.
    job_cap: Kept<JobCap>,
    /// Whether nothing is known well: work may wait for other GPUs', for as long as those take.
    is_unsteady: AtomicBool,
    arbiter: ArbiterClient,
    /// How long it worked for this process, as measured, in nanoseconds.
    used: AtomicU64,
    /// When all streams were looked at last, on the host's clock.
    looked: AtomicU64,
    /// How many launches went on since anything ended, although they had to wait.
    stalled: AtomicU32,
    /// Launches that went on although they had to wait.
    overruns: AtomicU32,
    /// Whether a thread looks after the turns.
    is_attended: AtomicBool,
    concurrency: Concurrency,
    estimates: Estimates,
    streams: Streams,
    times: Times,
}

/// The times that were charged.
struct Times {
    busy_intervals: Locked<BusyIntervals>,
    /// Held by the thread that settles.
    base: Locked<Base>,
}

zeroed! { Times { busy_intervals, base } }
zeroed! { PacedGpu {
    in_flight, ceiling, last, context, job_cap, is_unsteady, arbiter, used, looked, stalled, overruns, is_attended, concurrency,
    estimates, streams, times
} }

impl PacedGpu {
    /// Before a launch: waits until the job may have the GPU.
    pub(super) fn admit(&'static self, stream: Stream, work: Work) -> Ticket {
        let key = Key::from_work(work);
        if self.arbiter.is_sampling() || self.arbiter.is_steered() {
            return self.admit_at_once(stream, key);
        }
        let known = self.estimates.find(key);
        let ticket = Ticket {
            gpu: self,
            slot: None,
            stream,
            key,
            cost: known.map_or(work.guess, |known| known.time),
            event: if work.is_chained {
                RecordEvent::Rare
            } else {
                RecordEvent::Periodic
            },
            stands_for: 1,
            is_sure: known.is_some_and(|known| known.is_sure),
        };
        // SeqCst: the thread that ends the turn sees this, or this sees the end.
        let before = self.in_flight.fetch_add(ticket.cost, Ordering::SeqCst);
        let goes_on = before < self.ceiling.load(Ordering::SeqCst) && self.arbiter.goes_on();
        let now = processor::ticks();
        // Relaxed: a time and nothing else.
        let since = now.wrapping_sub(self.last.load(Ordering::Relaxed));
        self.last.store(now, Ordering::Relaxed);
        // Captured work does not run.
        let is_plain = since < processor::SOME_TICKS && !stream.is_own() && !captures::are_any();
        if let Some(known) = known.filter(|_| goes_on && is_plain) {
            let slot = self.streams.slot(stream, self.context());
            // The work in flight may be in other streams.
            if let Some(slot) = slot.filter(|slot| !slot.is_idle()) {
                let is_near = before < CLOSE_TO_IDLE_NS;
                if !is_near && !slot.is_expected() {
                    return Ticket {
                        slot: Some(slot),
                        ..ticket
                    };
                }
                let is_light = is_near && slot.is_light() && self.is_light(known);
                if is_light && !work.is_chained && !is_drawn(now, known.one_of()) {
                    return Ticket {
                        slot: Some(slot),
                        event: RecordEvent::UnlessAlone,
                        ..ticket
                    };
                }
            }
        }
        self.admit_watched(ticket, known, goes_on, [now.wrapping_sub(since), now])
    }

    /// The job's cap; `None` in a fork's child in which nothing was launched yet.
    #[inline]
    fn job_cap(&self) -> Option<&'static JobCap> {
        self.job_cap.get()
    }

    /// Whether a launch is known so well that it needs no event of its own.
    #[inline]
    fn is_light(&self, known: Estimate) -> bool {
        // Relaxed: a hint and nothing else.
        known.is_light() && !self.is_unsteady.load(Ordering::Relaxed)
    }

    /// The calling thread's context: handles of streams mean something in it alone. Asked once where there is only one.
    #[inline]
    fn context(&self) -> CUcontext {
        // Relaxed: an address and nothing else.
        let known = self.context.load(Ordering::Relaxed);
        if !known.is_null() && !are_several_contexts() {
            return known;
        }
        let context = context::current() as usize as CUcontext;
        self.context.store(context, Ordering::Relaxed);
        context
    }

    /// Admits a launch for which the fast path is not enough: the GPU may be idle, or the launch has to wait, is not
    /// known, or is to be measured. It came at the latter of two times, and the launch before it at the other, in the
    /// processor's ticks.
    #[cold]
    #[inline(never)]
    fn admit_watched(
        &'static self,
        ticket: Ticket,
        known: Option<Estimate>,
        goes_on: bool,
        [last, now]: [u64; 2],
    ) -> Ticket {
        let _errno = Errno::save();
        self.arbiter.wake();
        let stream = ticket.stream;
        if stream.is_capturing() {
            self.give_back(ticket.cost);
            return Ticket { cost: 0, ..ticket };
        }
        let slot = self.streams.slot(stream, self.context());
        if goes_on {
            self.look_back(slot);
        }
        // The work that has ended may have taken more time than was left.
        if !goes_on || self.ceiling.load(Ordering::SeqCst) == 0 {
            self.give_back(ticket.cost);
            self.wait(ticket.cost, known.is_some());
        }
        if let Some(slot) = slot.filter(|slot| slot.is_idle()) {
            slot.note(os::nanoseconds());
        }
        let light = known.filter(|&known| self.is_light(known));
        let one_of = light.map_or(1, Estimate::one_of);
        let is_sample = one_of > 1 && is_drawn(now, one_of);
        // Behind much other work its end cannot be predicted, and little is gained.
        // Relaxed: a sum and nothing else.
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let is_behind = in_flight.saturating_sub(ticket.cost) >= CLOSE_TO_IDLE_NS;
        let is_light =
            light.is_some() && matches!(ticket.event, RecordEvent::Periodic) && !is_behind;
        if let Some(slot) = slot.filter(|_| is_light && !is_sample)
            && slot.try_marks(|slot, marks| {
                if marks.is_to_be_asked(os::nanoseconds()) {
                    self.settle_marks(slot, marks);
                }
                relaxed(|| self.settle_by_time(slot, marks, Some(stream)));
            }) == Some(())
        {
            return Ticket {
                slot: Some(slot),
                event: RecordEvent::UnlessAlone,
                ..ticket
            };
        }
        let has_rested = processor::ticks().wrapping_sub(last) > processor::MANY_TICKS;
        // Time begins where nothing was under way, and ends before what nothing is known of.
        let begin = |slot: &StreamSlot, marks: &mut StreamEvents| {
            self.settle_marks(slot, marks);
            let is_early = self.arbiter.is_new(os::nanoseconds());
            let has_pending = slot.has_pending();
            let is_broken = !has_pending && slot.take_break();
            match (has_pending, marks.is_empty()) {
                (false, _) if is_broken => {
                    marks.begin(stream, is_early);
                    None
                }
                (false, false) => None,
                (false, true) => Some(stream.is_busy()).filter(|_| marks.begin(stream, is_early)),
                // The work may have ended long ago.
                (true, true) => Some(stream.is_busy()).filter(|_| marks.end_late(slot, stream)),
                // It must not be taken for work that is known so well.
                (true, false) if slot.is_expected() => {
                    marks.end_late(slot, stream);
                    None
                }
                (true, false) => {
                    if known.is_none() {
                        marks.end(slot, stream, None, 1);
                    }
                    None
                }
            }
        };
        let begun = slot.and_then(|slot| relaxed(|| slot.try_marks(begin)));
        if let Some(cap) = self.job_cap() {
            cap.coscheduling.launched(os::nanoseconds(), ticket.cost);
        }
        let event = match begun {
            // The work that comes next has the event that it needs.
            Some(_) if is_behind && ticket.is_sure && !is_sample => ticket.event,
            // Before the first there is nothing to overlap with.
            Some(Some(is_behind)) => RecordEvent::AlwaysFrom {
                begun: os::nanoseconds() as u32,
                is_behind,
                has_rested,
            },
            // Another thread has the events just now: time that was not begun is charged as estimated.
            None if slot.is_some_and(StreamSlot::is_idle) => RecordEvent::UnlessAlone,
            _ if matches!(ticket.event, RecordEvent::Rare) => RecordEvent::Rare,
            _ => RecordEvent::Always,
        };
        Ticket {
            slot,
            event,
            stands_for: if is_sample { one_of as u16 } else { 1 },
            ..ticket
        }
    }

    /// Whether nothing of what is in flight has begun: its streams wait for something else.
    fn is_blocked(&self) -> bool {
        let mut is_any = false;
        let now = os::nanoseconds();
        let all = self.streams.each().all(|slot| {
            let state = slot.try_marks(|_, marks| (marks.is_empty(), marks.is_blocked(now)));
            is_any |= state.is_some_and(|(_, is_blocked)| is_blocked);
            state.is_some_and(|(is_empty, is_blocked)| is_empty || is_blocked)
        });
        is_any && all
    }

    /// How long the GPU should be busy with what is in flight.
    fn time_in_flight(&self) -> u64 {
        let in_flight = self.in_flight.load(Ordering::SeqCst);
        self.concurrency
            .together(in_flight, || self.streams_since(u64::MAX))
    }

    /// The work that may be in flight if the GPU may be busy for `time`, in as many streams as of late.
    fn apart(&self, time: u64) -> u64 {
        const OF_LATE_NS: u64 = 50_000_000;
        self.concurrency.apart(time, || {
            self.streams_since(os::nanoseconds().saturating_sub(OF_LATE_NS))
        })
    }

    /// The number of streams with work under way now or since `time`, as far as this process has seen.
    fn streams_since(&self, time: u64) -> usize {
        let is_busy = |slot: &&StreamSlot| !slot.is_done() || slot.since() >= time;
        self.streams.each().filter(is_busy).count()
    }

    /// This process's work as the turns want to know it, with `in_flight` of it in flight.
    fn with_flight<T>(&self, in_flight: u64, tell: impl FnOnce(&WorkInFlight<'_>) -> T) -> T {
        tell(&WorkInFlight {
            used: self.used.load(Ordering::Relaxed),
            time: in_flight,
            left: &|| self.left_of(in_flight),
            is_stuck: &|| self.is_stuck(),
        })
    }

    /// The rest of the work in flight, if it takes as long as estimated: it goes on although no event tells.
    fn left_of(&self, in_flight: u64) -> u64 {
        // Relaxed: a count and nothing else.
        if self.stalled.load(Ordering::Relaxed) > 0 {
            return in_flight;
        }
        let mut since = 0;
        for slot in self.streams.each().filter(|slot| !slot.is_done()) {
            let began = slot.try_marks(|slot, marks| marks.has_begun().then(|| slot.since()));
            match began.flatten() {
                Some(time) => since = time.max(since),
                None => return in_flight,
            }
        }
        let time = os::nanoseconds().saturating_sub(since);
        in_flight.saturating_sub(time)
    }

    /// Whether what is in flight may not end before something is launched that waits for a turn.
    fn is_stuck(&self) -> bool {
        // Relaxed: a count and nothing else.
        self.stalled.load(Ordering::Relaxed) > 0 || self.is_blocked()
    }

    /// The most that is in flight. A turn that ends is handed over soon; without turns, programs launch ahead as they like.
    fn window(&self) -> u64 {
        if self.arbiter.is_steered() {
            return u64::MAX;
        }
        // Relaxed: a hint and nothing else.
        let is_wide = self.is_unsteady.load(Ordering::Relaxed) && !self.arbiter.is_connected();
        if is_wide { WIDE_WINDOW_NS } else { WINDOW_NS }
    }

    /// The GPU time that may still be used.
    fn left(&self, now: u64, used: u64) -> u64 {
        let turn = self.arbiter.left(used);
        turn.or_else(|| Some(self.job_cap()?.left(now)))
            .unwrap_or(u64::MAX)
    }

    /// Counts a launch in if less than `most` is in flight.
    fn count_in(&self, cost: u64, most: u64) -> bool {
        let counted = |in_flight: u64| {
            let has_room = in_flight == 0 || in_flight < most;
            has_room.then(|| in_flight.saturating_add(cost))
        };
        self.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted)
            .is_ok()
    }

    fn give_back(&self, cost: u64) {
        self.in_flight.fetch_sub(cost, Ordering::SeqCst);
    }
}

/// A launch that may go on.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    gpu: &'static PacedGpu,
    /// Its stream.
    slot: Option<&'static StreamSlot>,
    stream: Stream,
    key: Key,
    /// Its estimate in nanoseconds; 0 where it is captured and does not run.
    cost: u64,
    event: RecordEvent,
    /// The number of launches that its measurement is for.
    stands_for: u16,
    /// It is known how long it takes.
    is_sure: bool,
}

impl Ticket {
    /// Where it is launched.
    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// After the launch: counts it, or not if it failed.
    #[inline]
    pub(super) fn launched(self, result: CUresult) {
        if matches!(self.event, RecordEvent::Never) {
            return self.gpu.launched_at_once(self.slot);
        }
        let Some(slot) = self.slot.filter(|_| result == CUDA_SUCCESS) else {
            if result == CUDA_SUCCESS && self.cost > 0 {
                self.gpu.count(self.cost, os::nanoseconds());
            } else if result == CUDA_SUCCESS {
                self.gpu.look_after_captured(&self);
            }
            self.gpu.give_back(self.cost);
            return;
        };
        let pending = if self.is_sure {
            slot.add(self.key, self.cost)
        } else {
            slot.add_unsure(self.key, self.cost)
        };
        let alone = match self.event {
            RecordEvent::Periodic
                if pending.cost < EVENT_EVERY_NS && pending.count < EVENT_EVERY_LAUNCHES =>
            {
                return;
            }
            RecordEvent::Rare
                if pending.cost < WINDOW_NS / 2 && pending.count < EVENT_EVERY_LAUNCHES =>
            {
                return;
            }
            RecordEvent::UnlessAlone => {
                // Relaxed: of this launch, or of another thread's just now.
                let now = os::nanoseconds_at(self.gpu.last.load(Ordering::Relaxed));
                slot.expect(now, self.cost);
                if pending.cost < CHARGE_LIGHT_NS && pending.count < CHARGE_LIGHT_LAUNCHES {
                    return;
                }
                if self.gpu.settle_light(slot, now) {
                    return;
                }
                // The GPU is behind: only an event tells by how much.
                if pending.cost < EVENT_EVERY_NS && pending.count < EVENT_EVERY_LAUNCHES {
                    return;
                }
                None
            }
            RecordEvent::AlwaysFrom {
                begun,
                is_behind,
                has_rested,
            } => Some(self.alone(begun, is_behind, has_rested)),
            _ => None,
        };
        let gpu = self.gpu;
        gpu.mark(slot, self.stream, alone, self.stands_for.into());
    }

    /// It was launched just now, and is measured by itself.
    #[cold]
    fn alone(&self, begun: u32, is_behind: bool, has_rested: bool) -> Alone {
        let _errno = Errno::save();
        let now = os::nanoseconds();
        let time = (now as u32).wrapping_sub(begun);
        // Some programs have the driver's call last as long as the kernel.
        let was_over = !is_behind && !relaxed(|| self.stream.is_busy());
        let lead = if was_over {
            0
        } else {
            u64::from(time).min(LAUNCH_LATENCY_NS)
        };
        Alone {
            lead: (!is_behind).then_some(lead),
            handed_over: now,
            has_rested,
            was_over,
        }
    }
}

/// Whether to measure a launch that is known well. An unpredictable number, the last digits of a clock, draws one of
/// `one_of`.
#[inline]
fn is_drawn(ticks: u64, one_of: u64) -> bool {
    let mixed = ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    mixed & one_of.wrapping_sub(1) == 0
}
