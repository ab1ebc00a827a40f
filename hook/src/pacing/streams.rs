//! The streams of a GPU in which this process launched.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::{CUcontext, CUstream};

use super::events::Events;
use super::flight::{Flight, Flights};
use crate::driver::stream::{PER_THREAD, Stream};
use crate::os::cells::{Fresh, Guard, Kept, Locked, zeroed};
use crate::os::{self, Held, Lock};

/// Slots of a table. Another table is added when all are taken.
const SLOTS: usize = 128;
/// The most tables. Launches in still more streams are not sampled.
const MAX_TABLES: usize = 64;

/// All of them.
pub(super) struct Streams {
    slots: [StreamSlot; SLOTS],
    more: Kept<Streams>,
}

/// One stream. The fields of each launch are in one line of the processor's cache.
#[repr(C, align(64))]
pub(super) struct StreamSlot {
    /// The name of its stream; 0 for none.
    name: AtomicU64,
    /// The number of launches.
    launched: AtomicU32,
    /// The value of `launched` at the last sample.
    sampled: AtomicU32,
    /// Its context.
    context: AtomicU64,
    /// Its handle.
    handle: AtomicU64,
    /// The thread whose own it is; 0 for a stream of all threads.
    thread: AtomicU64,
    /// When it was last seen to have work, on the host's clock.
    since: AtomicU64,
    /// Its context may end now: no other thread asks the driver of it.
    is_closing: AtomicBool,
    /// Held by the thread that asks the driver of it.
    lock: Lock,
    /// Where the cap holds: what is in flight.
    capped: Locked<Capped>,
}

/// What a stream has in flight where the cap holds.
pub(super) struct Capped {
    pub(super) flight: Flight,
    pub(super) events: Events,
}

zeroed! { Capped { flight, events } }

zeroed! { Streams { slots, more } }
zeroed! { StreamSlot { name, launched, sampled, context, handle, thread, since, is_closing, lock, capped } }

impl Streams {
    /// The slot of a stream in a context.
    #[inline]
    pub(super) fn slot(&self, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let name = name(stream, context);
        let known = self.tables().find_map(|table| table.known(name));
        known.or_else(|| self.new_slot(name, stream, context))
    }

    #[inline]
    fn known(&self, name: u64) -> Option<&StreamSlot> {
        let mut slots = self.slots_for(name);
        slots.find(|slot| slot.name.load(Ordering::Relaxed) == name)
    }

    /// The slots that a name may have.
    #[inline]
    fn slots_for(&self, name: u64) -> impl Iterator<Item = &StreamSlot> {
        let start = (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize;
        (0..8).filter_map(move |at| self.slots.get(start.wrapping_add(at) % SLOTS))
    }

    #[cold]
    fn new_slot(&self, name: u64, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let found = self
            .tables()
            .find_map(|table| table.take(name, stream, context));
        found.or_else(|| self.grown()?.take(name, stream, context))
    }

    fn tables(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |table| table.more.get())
    }

    /// One more table.
    #[cold]
    fn grown(&self) -> Option<&'static Self> {
        let last = self.tables().take(MAX_TABLES).last()?;
        let (new, _) = Fresh::zeroed().ok()?;
        last.more.exchange(None, new)
    }

    /// All that are in use.
    pub(super) fn each(&self) -> impl Iterator<Item = &StreamSlot> {
        self.tables()
            .flat_map(|table| &table.slots)
            .filter(|slot| slot.name.load(Ordering::Relaxed) != 0)
    }
}

/// CU_STREAM_LEGACY.
const LEGACY: u64 = 1;

/// The name of a stream in its slot. The default streams are each context's, or each thread's.
fn name(stream: Stream, context: CUcontext) -> u64 {
    let handle = stream.handle as u64;
    let apart = (context as u64).rotate_left(16);
    match (handle, stream.is_per_thread) {
        (0, false) | (LEGACY, _) => LEGACY ^ apart,
        (0, true) | (PER_THREAD, _) => PER_THREAD ^ apart ^ (os::thread_id() << 8),
        _ => handle ^ apart,
    }
}

impl Streams {
    /// A free slot, or that of a stream without work, which then serves this one.
    fn take(&self, name: u64, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let free = |slot: &&StreamSlot| slot.take(0, name, stream, context);
        let unused = |slot: &&StreamSlot| slot.is_unused() && slot.take_over(name, stream, context);
        let found = self.slots_for(name).find(free);
        found.or_else(|| self.slots_for(name).find(unused))
    }
}

impl StreamSlot {
    /// Becomes this stream's, if its name is `before`.
    fn take(&self, before: u64, name: u64, stream: Stream, context: CUcontext) -> bool {
        let taken = self
            .name
            .compare_exchange(before, name, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            self.context.store(context as u64, Ordering::Relaxed);
            self.handle.store(stream.handle as u64, Ordering::Relaxed);
            let thread = if stream.is_own() { os::thread_id() } else { 0 };
            self.thread.store(thread, Ordering::Relaxed);
            self.capped.hold().flight = Flight::default();
        }
        taken.is_ok() || taken == Err(name)
    }

    fn take_over(&self, name: u64, stream: Stream, context: CUcontext) -> bool {
        let Some(_held) = self.try_hold() else {
            return false;
        };
        self.take(self.name.load(Ordering::Relaxed), name, stream, context)
    }

    /// Whether its stream had no work for a while.
    fn is_unused(&self) -> bool {
        const WHILE_NS: u64 = 1_000_000_000;
        let since = os::nanoseconds().saturating_sub(self.since());
        self.launched() == 0 && since > WHILE_NS
    }

    /// The context of the stream.
    pub(super) fn context(&self) -> u64 {
        self.context.load(Ordering::Relaxed)
    }

    /// The stream, for this thread: `None` for another thread's own.
    pub(super) fn stream(&self) -> Option<Stream> {
        let thread = self.thread.load(Ordering::Relaxed);
        let handle = self.handle.load(Ordering::Relaxed) as usize as CUstream;
        let stream = Stream {
            handle,
            is_per_thread: thread != 0,
        };
        (thread == 0 || thread == os::thread_id()).then_some(stream)
    }

    /// Whether it is this stream's, whichever the context.
    pub(super) fn is_of(&self, stream: Stream) -> bool {
        let context = self.context() as usize as CUcontext;
        self.name.load(Ordering::Relaxed) == name(stream, context)
    }

    /// Counts a launch.
    #[inline]
    pub(super) fn launch(&self) {
        // Relaxed: an estimate and nothing else. One that is lost to another thread's does no harm.
        let launched = self.launched.load(Ordering::Relaxed);
        self.launched
            .store(launched.wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of launches since the last sample.
    pub(super) fn launched(&self) -> u32 {
        let sampled = self.sampled.load(Ordering::Relaxed);
        let launched = self.launched.load(Ordering::Relaxed);
        launched.wrapping_sub(sampled)
    }

    /// The same, for a new sample.
    pub(super) fn take_launched(&self) -> u32 {
        let count = self.launched();
        self.sampled.fetch_add(count, Ordering::Relaxed);
        count
    }

    /// When it was last seen to have work.
    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// It has work now.
    pub(super) fn note(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// The right to ask the driver of the stream, unless another thread has it, or the context ends.
    pub(super) fn try_hold(&self) -> Option<Held<'_>> {
        let held = self.lock.try_hold()?;
        // SeqCst: see `close`.
        (!self.is_closing.load(Ordering::SeqCst)).then_some(held)
    }

    /// What is in flight where the cap holds.
    pub(super) fn capped(&self) -> Guard<'_, Capped> {
        self.capped.hold()
    }

    /// Looks what has ended where the cap holds. Returns how many launches are in flight; `None` if another thread has it just now,
    /// which looks itself.
    pub(super) fn look(
        &self,
        now: u64,
        all: &Flights,
        is_busy: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let mut capped = self.capped.try_hold()?;
        let Capped { flight, events } = &mut *capped;
        Some(flight.look_over(now, all, |event| events.is_reached(event), is_busy))
    }

    /// Whether it is a thread's own.
    pub(super) fn is_threads_own(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    /// The stream is about to end, with what it has in flight.
    pub(super) fn free(&self, all: Option<&Flights>) {
        if let Some(all) = all {
            self.capped
                .hold()
                .flight
                .end_all(os::nanoseconds(), all, false);
        }
        self.name.store(0, Ordering::SeqCst);
    }

    /// The context has ended.
    pub(super) fn end(&self, all: Option<&Flights>) {
        self.capped.hold().events.forget();
        self.free(all);
    }

    /// The context may end: until that is known no other thread asks of the stream.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        // Another thread may be in the driver, for as long as a question takes.
        drop(self.lock.hold());
    }

    /// It has ended, or it has not.
    pub(super) fn reopen(&self) {
        self.is_closing.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
