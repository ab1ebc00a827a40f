//! One GPU whose time is limited.

mod cap;
mod registry;
mod samples;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{CUcontext, CUctx_st, CUstream};
use softmig_region::seat::Pacing;

use super::arbiter_client::ArbiterClient;
use super::captures::wait_for_others;
use super::events::Events;
use super::flight::{Flight, Flights, StreamEnd};
use super::streams::{Capped, StreamSlot, Streams};
use crate::driver::context::{self, are_several_contexts, in_context_of};
use crate::driver::stream::{Stream, relaxed};
use crate::identity::message::Message;
use crate::identity::{gate, log, pack};
use crate::os::cells::{Kept, zeroed};
use crate::os::{self, Errno};
use cap::{Cap, Wait};

/// One GPU; nothing is known of it when all is zero. The fields of each launch come first, in one line of the processor's
/// cache: what a program did since the launch before has pushed most of them out.
#[repr(C, align(64))]
pub(super) struct PacedGpu {
    /// Whether launches go on at once and the sampling thread is awake.
    is_free: AtomicBool,
    /// Its context, where it has one only.
    context: AtomicPtr<CUctx_st>,
    /// The job's cap; none while nothing is known.
    cap: Kept<Cap>,
    arbiter: ArbiterClient,
    /// Whether there is a sampling thread.
    is_sampled: AtomicBool,
    /// What the sampling thread does, as a futex: [`AWAKE`], [`ASLEEP`] or [`CALLED`].
    thread: AtomicU32,
    /// When a launch last woke or started it.
    called: AtomicU64,
    /// Launches that went on although they had to wait.
    overruns: AtomicU32,
    /// Launches that wait for a turn, or for room in theirs: the program has work, which the driver does not have yet.
    waiting: AtomicU32,
    streams: Streams,
}

zeroed! { PacedGpu { is_free, context, cap, arbiter, is_sampled, thread, called, overruns, waiting, streams } }

/// In [`PacedGpu::thread`]: it samples.
const AWAKE: u32 = 0;
/// It waits for a launch.
const ASLEEP: u32 = 1;
/// There was a launch since it last looked.
const CALLED: u32 = 2;

impl PacedGpu {
    /// Before a launch: waits until the job may have the GPU.
    pub(super) fn admit(&'static self, stream: Stream) -> Ticket {
        let slot = self.streams.slot(stream, self.context());
        // Relaxed: a hint and nothing else.
        let is_free = self.is_free.load(Ordering::Relaxed);
        let mut has_waited = !is_free && self.wait(stream, slot);
        if let Some(slot) = slot {
            slot.launch();
        }
        self.end_wait(&mut has_waited);
        if !is_free {
            self.wake();
        }
        Ticket {
            gpu: self,
            stream,
            slot,
        }
    }

    /// Waits until a launch may go on, where the sampling thread sleeps, or the cap holds or turns do. The first starts that thread.
    /// Returns whether it counts as waiting for a turn, which its caller ends.
    #[cold]
    #[inline(never)]
    fn wait(&'static self, stream: Stream, slot: Option<&StreamSlot>) -> bool {
        let _errno = Errno::save();
        self.take_seat();
        if self.cap().is_some() && !self.is_sampled.swap(true, Ordering::SeqCst) {
            self.called.store(os::nanoseconds(), Ordering::Relaxed);
            // Without it nothing is charged. There was no memory for it.
            let _ = os::start_thread(self);
        }
        // Captured work does not run.
        if let (Some(cap), Some(slot)) = (self.cap(), slot)
            && !stream.is_capturing()
        {
            return self.wait_for_room(cap, stream, slot);
        }
        false
    }

    /// After the launch.
    #[inline]
    fn launched(&self, stream: Stream, slot: Option<&StreamSlot>) {
        if !self.is_free.load(Ordering::Relaxed) {
            self.launched_watched(stream, slot);
        }
    }

    /// The same where the sampling thread sleeps, or the cap holds or turns do. If the call took long, that thread may have found no work.
    #[cold]
    fn launched_watched(&self, stream: Stream, slot: Option<&StreamSlot>) {
        let _errno = Errno::save();
        self.wake();
        if let (Some(flights), Some(slot)) = (self.flights(), slot)
            && self.arbiter.pacing() != Pacing::Free
            && !stream.is_capturing()
        {
            let is_threads_own = slot.is_threads_own();
            self.with_flight(stream, slot, |flight, end| {
                flight.launched(flights, end, is_threads_own);
            });
        }
    }

    /// Waits until the cap, or the job's turn, lets a launch go on. Returns whether it counts as waiting for a turn.
    fn wait_for_room(&self, cap: &Cap, stream: Stream, slot: &StreamSlot) -> bool {
        let mut wait = Wait::new(os::nanoseconds());
        let (mut exact, mut is_counted) = (None, false);
        loop {
            let pacing = self.arbiter.pacing();
            // An arbiter that has come meanwhile steers the work that is in flight.
            if pacing == Pacing::Free {
                break;
            }
            let time = self.with_flight(stream, slot, |flight, end| {
                cap.look(os::nanoseconds(), pacing, &mut wait, flight, end)
            });
            let Some(time) = time else { break };
            exact.get_or_insert_with(os::Exact::timers);
            if pacing == Pacing::OwnCap {
                self.end_wait(&mut is_counted);
            } else {
                if !is_counted {
                    is_counted = true;
                    self.waiting.fetch_add(1, Ordering::SeqCst);
                    self.wake();
                }
                // An arbiter that is gone gives no turn, and there may be no sampling thread that would find that out.
                self.arbiter.want(os::nanoseconds());
            }
            os::nap(time);
            self.join();
            if wait.waits_for_others {
                // Another thread of the program may capture just now.
                relaxed(|| self.look_at_all(cap, os::nanoseconds()));
            }
        }
        if wait.has_overrun {
            self.note_overrun();
        }
        is_counted
    }

    /// A launch that counts as waiting for a turn does not any more.
    fn end_wait(&self, is_counted: &mut bool) {
        if core::mem::take(is_counted) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// What a stream has in flight, and its end.
    fn with_flight<T>(
        &self,
        stream: Stream,
        slot: &StreamSlot,
        use_them: impl FnOnce(&mut Flight, &mut End<'_>) -> T,
    ) -> T {
        let mut capped = slot.capped();
        let Capped { flight, events } = &mut *capped;
        let context = self.context();
        relaxed(|| {
            let mut end = End {
                stream,
                events,
                context,
            };
            use_them(flight, &mut end)
        })
    }

    /// Counts a launch that went on although it had to wait.
    #[cold]
    fn note_overrun(&self) {
        // Relaxed: a count and nothing else.
        let count = self
            .overruns
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if log::is_round(count) {
            gate::with_finding(|finding| log::say(finding, &Message::WentOn));
        }
    }

    /// What is in flight where the cap holds or turns do.
    fn flights(&self) -> Option<&'static Flights> {
        self.cap().map(|cap| &cap.flights)
    }

    /// The job's cap; `None` in a fork's child in which nothing was launched yet.
    #[inline]
    fn cap(&self) -> Option<&'static Cap> {
        self.cap.get()
    }

    /// Asks the arbiter for a seat, unless there is one.
    fn join(&self) {
        if let Some(cap) = self.cap() {
            self.arbiter.join(cap.uuid(), os::nanoseconds());
        }
    }

    /// The same before a launch: waits until the arbiter has heard of this process's channels.
    pub(super) fn take_seat(&self) {
        self.join();
        self.arbiter.wait_to_be_heard(pack::is_kept);
    }

    /// Tells the arbiter of this process's channels.
    pub(super) fn tell_channels(&self) {
        self.arbiter.tell_channels();
    }

    /// Calls the sampling thread, which may sleep.
    #[cold]
    fn wake(&self) {
        // SeqCst: it sees this, or what was launched before.
        if self.thread.swap(CALLED, Ordering::SeqCst) == ASLEEP {
            self.called.store(os::nanoseconds(), Ordering::Relaxed);
            os::wake_all(&self.thread);
        }
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

    /// A stream is about to end. Where the cap holds, its work is waited for: nobody would see it afterwards.
    pub(super) fn forget_stream(&'static self, handle: CUstream) {
        let stream = Stream::plain(handle);
        for slot in self.streams.each().filter(|slot| slot.is_of(stream)) {
            let flights = self.flights();
            if let Some(flights) = flights
                && self.arbiter.pacing() == Pacing::OwnCap
            {
                Self::wait_for_end(flights, stream, slot);
            }
            slot.free(flights);
            wait_for_others();
        }
    }

    /// Waits until a stream has no work, if that does not take much longer than it should.
    #[cold]
    fn wait_for_end(flights: &Flights, stream: Stream, slot: &StreamSlot) {
        let _errno = Errno::save();
        let begun = os::nanoseconds();
        let patience = slot.capped().flight.patience(flights);
        while !stream.is_capturing()
            && relaxed(|| stream.is_busy())
            && os::nanoseconds().saturating_sub(begun) < patience
        {
            os::nap(100_000);
        }
    }

    /// A context may be about to end.
    pub(super) fn close_context(&self, context: CUcontext) {
        self.of_context(context).for_each(StreamSlot::close);
    }

    /// It has ended, with its work, or it has not.
    pub(super) fn closed_context(&self, context: CUcontext, has_ended: bool) {
        for slot in self.of_context(context) {
            if has_ended {
                slot.end(self.flights());
            }
            slot.reopen();
        }
        if has_ended {
            self.context.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    fn of_context(&self, context: CUcontext) -> impl Iterator<Item = &StreamSlot> {
        let context = context as u64;
        self.streams
            .each()
            .filter(move |slot| slot.context() == context)
    }
}

/// A launch that may go on.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    gpu: &'static PacedGpu,
    stream: Stream,
    slot: Option<&'static StreamSlot>,
}

impl Ticket {
    /// After the launch.
    #[inline]
    pub(crate) fn launched(self) {
        let Self { gpu, stream, slot } = self;
        if stream.may_be_elsewhere() {
            in_context_of(stream.handle, || gpu.launched(stream, slot));
        } else {
            gpu.launched(stream, slot);
        }
    }
}

/// The end of a stream, and its events, in the calling thread's context.
struct End<'a> {
    stream: Stream,
    events: &'a mut Events,
    context: CUcontext,
}

impl StreamEnd for End<'_> {
    fn is_busy(&self) -> bool {
        self.stream.is_busy()
    }

    fn record(&mut self, event: usize) -> bool {
        self.events.record(event, self.stream, self.context)
    }

    fn is_reached(&self, event: usize) -> bool {
        self.events.is_reached(event)
    }
}
