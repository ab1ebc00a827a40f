//! The streams of a GPU, and the work that was launched in each.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use softmig_driver_sys::cuda::{CUcontext, CUstream};

use super::estimates::Key;
use super::events::StreamEvents;
use crate::driver::stream::{PER_THREAD, Stream};
use crate::os;
use crate::os::cells::{Fresh, Kept, Locked, zeroed};

/// Slots of a table. Another table is added when all are taken.
const SLOTS: usize = 128;
/// The most tables. Work in still more streams at a time counts as estimated.
const MAX_TABLES: usize = 64;

/// All streams in which work was launched.
pub(super) struct Streams {
    slots: [StreamSlot; SLOTS],
    more: Kept<Streams>,
}

/// One stream. The fields that each launch reads are in one line of the processor's cache.
#[repr(C, align(64))]
pub(super) struct StreamSlot {
    /// The name of its stream; 0 for none.
    name: AtomicU64,
    /// The launches behind the last event: their number in the upper 16 bits, [`UNSURE`], estimated nanoseconds in the
    /// lower 47.
    pending: AtomicU64,
    /// The kind of these launches, if all are of one kind.
    kind: AtomicU64,
    /// When all of these launches should be over, on the host's clock; 0 if only an event tells.
    over: AtomicU64,
    /// When these launches and all before them should be over.
    busy: AtomicU64,
    /// How many events were under way at the last look.
    marked: AtomicUsize,
    /// The stream was given something other than the GPU's work: time begins anew behind it.
    is_broken: AtomicBool,
    /// Its context may end now: only the thread that ends it touches the events.
    is_closing: AtomicBool,
    /// The number of launches that were let go on at once and are not measured.
    launched: AtomicU32,
    /// Its context.
    context: AtomicU64,
    /// Its handle.
    handle: AtomicU64,
    /// The thread whose own it is; 0 for a stream of all threads.
    thread: AtomicU64,
    /// When the work that is under way began at the earliest, on the host's clock.
    since: AtomicU64,
    /// The value of `launched` at the last sample.
    sampled: AtomicU32,
    /// Held by the thread that records and asks. Only the thread that ends the stream waits for it.
    marks: Locked<StreamEvents>,
}

zeroed! { Streams { slots, more } }
zeroed! { StreamSlot {
    name, pending, kind, over, busy, marked, is_broken, is_closing, launched, context, handle, thread, since, sampled, marks
} }

/// In [`StreamSlot::kind`]: launches of different kinds.
const MIXED: u64 = u64::MAX;
/// In [`StreamSlot::pending`]: one launch.
const ONE_LAUNCH: u64 = 1 << 48;
/// In [`StreamSlot::pending`]: the time of some launches is not known well.
const UNSURE: u64 = 1 << 47;

/// The launches behind an event.
#[derive(Clone, Copy, Default)]
pub(super) struct Pending {
    /// Estimated nanoseconds.
    pub(super) cost: u64,
    /// The number of launches.
    pub(super) count: u64,
    /// Their kind, if there is one.
    pub(super) key: Option<Key>,
    /// Whether the time of some is not known well.
    pub(super) is_unsure: bool,
}

zeroed! { Pending { cost, count, key, is_unsure } }

impl Streams {
    /// The slot of a stream in a context.
    #[inline]
    pub(super) fn slot(&self, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let name = name(stream, context);
        let mut tables = self.tables();
        let known = tables.find_map(|table| table.known(name));
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
        let mut tables = self.tables();
        let found = tables.find_map(|table| table.slot_here(name, stream, context));
        found.or_else(|| self.grown()?.slot_here(name, stream, context))
    }

    /// A free slot, or one in which nothing is under way and that then serves another stream.
    fn slot_here(&self, name: u64, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let free = |slot: &&StreamSlot| slot.take(name, stream, context);
        let idle = |slot: &&StreamSlot| slot.is_idle() && slot.take_over(name, stream, context);
        let found = self.slots_for(name).find(free);
        found.or_else(|| self.slots_for(name).find(idle))
    }

    fn tables(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |table| table.more.get())
    }

    /// One more table.
    #[cold]
    fn grown(&self) -> Option<&Self> {
        let last = self.tables().take(MAX_TABLES).last()?;
        let (new, _) = Fresh::zeroed().ok()?;
        last.more.exchange(None, new)
    }

    /// The slot of a stream in a context, if anything was launched in it.
    pub(super) fn find(&self, stream: Stream, context: CUcontext) -> Option<&StreamSlot> {
        let name = name(stream, context);
        self.each()
            .find(|slot| slot.name.load(Ordering::Relaxed) == name)
    }

    /// All that are in use.
    pub(super) fn each(&self) -> impl Iterator<Item = &StreamSlot> {
        let slots = self.tables().flat_map(|table| &table.slots);
        slots.filter(|slot| slot.name.load(Ordering::Relaxed) != 0)
    }
}

/// The name of a stream that has ended while its work had not.
const ENDED: u64 = u64::MAX;

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

impl StreamSlot {
    fn take(&self, name: u64, stream: Stream, context: CUcontext) -> bool {
        let taken = self
            .name
            .compare_exchange(0, name, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            self.describe(stream, context);
        }
        taken == Ok(0) || taken == Err(name)
    }

    /// Becomes another stream's of the same context, whose the events are.
    fn take_over(&self, name: u64, stream: Stream, context: CUcontext) -> bool {
        let taken = self.try_marks(|slot, marks| {
            let is_free = marks.is_empty() && !slot.has_pending();
            if !is_free || slot.context() != context as u64 {
                return false;
            }
            marks.pass_on();
            slot.is_broken.store(false, Ordering::Relaxed);
            slot.name.store(name, Ordering::SeqCst);
            slot.describe(stream, context);
            true
        });
        taken == Some(true)
    }

    fn describe(&self, stream: Stream, context: CUcontext) {
        self.context.store(context as u64, Ordering::Relaxed);
        self.handle.store(stream.handle as u64, Ordering::Relaxed);
        let thread = if stream.is_own() { os::thread_id() } else { 0 };
        self.thread.store(thread, Ordering::Relaxed);
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

    /// Counts a launch. Returns the work since the last event.
    #[inline]
    pub(super) fn add(&self, key: Key, cost: u64) -> Pending {
        let before = self.pending.fetch_add(cost | ONE_LAUNCH, Ordering::Relaxed);
        self.added(before, key);
        of_word(before.wrapping_add(cost | ONE_LAUNCH), key.number())
    }

    /// The same for a launch whose time is not known well.
    #[cold]
    pub(super) fn add_unsure(&self, key: Key, cost: u64) -> Pending {
        let add = |word: u64| Some(word.wrapping_add(cost | ONE_LAUNCH) | UNSURE);
        let added = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let before = added.unwrap_or(0);
        self.added(before, key);
        of_word(before.wrapping_add(cost | ONE_LAUNCH), key.number())
    }

    #[inline]
    fn added(&self, before: u64, key: Key) {
        let kind = key.number();
        if before == 0 {
            self.kind.store(kind, Ordering::Relaxed);
        } else if self.kind.load(Ordering::Relaxed) != kind {
            self.kind.store(MIXED, Ordering::Relaxed);
        }
    }

    /// Notes when a launch should be over. Its time, `cost`, is known well, as are the times of all launches since the
    /// last event.
    #[inline]
    pub(super) fn expect(&self, now: u64, cost: u64) {
        // It begins some time after it was handed over, and behind what is there.
        const LAUNCH_LATENCY_NS: u64 = 10_000;
        let busy = self.busy.load(Ordering::Relaxed);
        let over = busy
            .max(now.saturating_add(LAUNCH_LATENCY_NS))
            .saturating_add(cost);
        self.busy.store(over, Ordering::Relaxed);
        self.over.store(over, Ordering::Relaxed);
    }

    /// The time until the launches since the last event should be over.
    pub(super) fn backlog(&self, now: u64) -> u64 {
        self.over.load(Ordering::Relaxed).saturating_sub(now)
    }

    /// Whether there were launches since the last event, and the times of all are known well.
    #[inline]
    pub(super) fn is_light(&self) -> bool {
        self.is_expected() && self.has_pending()
    }

    /// Whether no event marks the beginning of the work since the last event.
    #[inline]
    pub(super) fn is_expected(&self) -> bool {
        self.expected() != 0
    }

    /// When the work since the last event should be over; 0 if only an event tells.
    pub(super) fn expected(&self) -> u64 {
        self.over.load(Ordering::Relaxed)
    }

    /// For how long it should be over; `None` if it should not, or if only an event tells.
    pub(super) fn over_for(&self, now: u64) -> Option<u64> {
        let over = self.over.load(Ordering::Relaxed);
        (over != 0).then(|| now.checked_sub(over))?
    }

    /// The cost of the work since the last event, if that is known so well that it has no event of its own.
    pub(super) fn light_cost(&self) -> Option<u64> {
        let cost = self.pending_cost();
        (self.is_expected() && cost > 0).then_some(cost)
    }

    pub(super) fn pending_cost(&self) -> u64 {
        cost_of(self.pending.load(Ordering::Relaxed))
    }

    /// Whether the work launched since the last event is long enough to be worth another event.
    pub(super) fn has_much_pending(&self) -> bool {
        const WORTH_AN_EVENT_NS: u64 = 50_000;
        let least = if self.is_expected() {
            WORTH_AN_EVENT_NS
        } else {
            1
        };
        self.pending_cost() >= least
    }

    /// The work since the last event, which the caller has to see to from now on.
    pub(super) fn take_pending(&self) -> Pending {
        let kind = self.kind.load(Ordering::Relaxed);
        self.over.store(0, Ordering::Relaxed);
        of_word(self.pending.swap(0, Ordering::Relaxed), kind)
    }

    /// Counts work again that could not be marked, with the work that comes next.
    pub(super) fn put_back(&self, work: Pending, expected: u64) {
        let more = work.cost | work.count.wrapping_mul(ONE_LAUNCH);
        let unsure = if work.is_unsure { UNSURE } else { 0 };
        let add = |word: u64| Some(word.wrapping_add(more) | unsure);
        let _ = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.kind.store(MIXED, Ordering::Relaxed);
        self.over.store(expected, Ordering::Relaxed);
    }

    /// Whether there is work since the last event.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Whether time begins with the next launch: nothing was under way at the last look, or something other than the
    /// GPU's work is before it.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.has_pending()
            && (self.marked.load(Ordering::Relaxed) == 0 || self.is_broken.load(Ordering::Relaxed))
    }

    /// Whether nothing is under way, as far as was seen.
    pub(super) fn is_done(&self) -> bool {
        !self.has_pending() && self.marked.load(Ordering::Relaxed) == 0
    }

    /// Notes that time begins anew from here on.
    pub(super) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Whether something other than the GPU's work is before the next launch; asked by the thread that begins anew.
    pub(super) fn take_break(&self) -> bool {
        self.is_broken.swap(false, Ordering::Relaxed)
    }

    /// Calls `use_them` with the events, unless another thread has them.
    pub(super) fn try_marks<T>(
        &self,
        use_them: impl FnOnce(&Self, &mut StreamEvents) -> T,
    ) -> Option<T> {
        let mut marks = self.marks.try_hold()?;
        if self.is_closing.load(Ordering::Relaxed) {
            return None;
        }
        let returned = use_them(self, &mut marks);
        self.marked.store(marks.count(), Ordering::Relaxed);
        Some(returned)
    }

    /// Work began now, or some of it ended now.
    pub(super) fn note(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// Counts a launch that is not measured.
    #[inline]
    pub(super) fn launch(&self) {
        // Relaxed: an estimate and nothing else. One that is lost to another thread's does no harm.
        let launched = self.launched.load(Ordering::Relaxed);
        self.launched
            .store(launched.wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of such launches since the last sample.
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

    /// When work last began or ended.
    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Notes that the stream ends while its work runs on: no event is recorded here any more. Returns the work without
    /// an event behind it.
    pub(super) fn end_stream(&self) -> u64 {
        loop {
            let lost = self.try_marks(|slot, marks| {
                slot.name.store(ENDED, Ordering::SeqCst);
                slot.thread.store(u64::MAX, Ordering::Relaxed);
                let lost = slot.take_pending().cost;
                slot.free_if_done(marks);
                lost
            });
            match lost {
                Some(lost) => break lost,
                None if self.is_closing.load(Ordering::Relaxed) => break 0,
                // Another thread is in the driver, for as long as an event takes.
                None => os::nap(10_000),
            }
        }
    }

    /// The slot is free again once its stream and all work in it have ended.
    pub(super) fn free_if_done(&self, marks: &mut StreamEvents) {
        if marks.is_empty() && self.name.load(Ordering::Relaxed) == ENDED {
            marks.destroy();
            self.free();
        }
    }

    fn free(&self) {
        self.is_broken.store(false, Ordering::Relaxed);
        self.name.store(0, Ordering::SeqCst);
    }

    /// The context may end: until that is known no other thread touches the events.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        // Another thread may be in the driver, for as long as an event takes.
        drop(self.marks.hold());
    }

    /// It did not.
    pub(super) fn reopen(&self) {
        self.is_closing.store(false, Ordering::SeqCst);
    }

    /// It did, with the events. Returns what was in flight here, and for how long at most.
    pub(super) fn end(&self, now: u64) -> (u64, u64) {
        self.close();
        let mut marks = self.marks.hold();
        let is_busy = self.has_pending() || !marks.is_empty();
        let has_begun = marks.has_begun();
        let lost = marks.forget().saturating_add(self.take_pending().cost);
        self.marked.store(0, Ordering::Relaxed);
        self.free();
        self.reopen();
        let time = now.saturating_sub(self.since.load(Ordering::Relaxed));
        (lost, if is_busy && has_begun { time } else { 0 })
    }
}

fn cost_of(word: u64) -> u64 {
    word & UNSURE.wrapping_sub(1)
}

fn of_word(word: u64, kind: u64) -> Pending {
    Pending {
        cost: cost_of(word),
        count: word >> 48,
        key: Key::from_number(kind).filter(|_| kind != MIXED),
        is_unsure: word & UNSURE != 0,
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
