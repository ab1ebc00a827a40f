//! The client of the node's arbiter, where there is one: this process's side of [`softmig_region::seat`].

#![expect(unsafe_code, reason = "maps the seat, which the arbiter shares")]

pub(super) mod turn_keeper;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_policy::node::identity::ProcessRules;
use softmig_policy::node::paths::ARBITER_SOCKET;
use softmig_region::seat::{ANSWER, CONTENDED, OPEN, Request, Seat};

use super::channels;
use super::work::Admission;
use crate::identity::message::Message;
use crate::identity::{gate, log};
use crate::os::cells::{Kept, zeroed};
use crate::os::{self, Lock};

/// While this process waits, an arbiter that did not look for this long may be gone: the process checks whether it listens.
const SILENT_AFTER_NS: u64 = 50_000_000;
/// An arbiter that listens and does not look for this long counts as gone.
const GONE_AFTER_NS: u64 = 300_000_000;
/// Retry interval after a failed connection to the arbiter.
const RECONNECT_AFTER_NS: u64 = 200_000_000;
/// The next job may get the turn when this much work is left: it hears when that ends, and prepares meanwhile. Work that it
/// launches earlier may take the GPU before this ends (research/gpu-time.md).
const HANDOVER_LEFT_NS: u64 = 700_000;
/// Launch this early: launch latency lets the work arrive as the turn begins, and what is left of other work is nearly always a
/// little less than estimated.
const LAUNCH_EARLY_NS: u64 = 250_000;
/// The latest begin of a turn.
const MAX_TURN_DELAY_NS: u64 = 2_000_000;
/// After a turn its last work is awaited for this long, or for twice its estimate.
const PATIENCE_NS: u64 = 30_000_000;
/// The longest such wait.
const MAX_PATIENCE_NS: u64 = 1_000_000_000;
/// An idle process keeps a turn that another waits for no longer than this.
const IDLE_KEEPS_NS: u64 = 60_000;
/// Longest futex wait while other work is pending.
const MAX_SLEEP_NS: u64 = 20_000_000;

/// The arbiter's word; nothing is known while all is zero. The fields that each launch reads come first.
#[repr(C)]
pub(super) struct ArbiterClient {
    /// Null without an arbiter.
    seat: Kept<Seat>,
    /// Whether there are no turns, and a thread samples the launches: 1 if so.
    sampled: AtomicU32,
    /// The turn that launches go on in; 0 for none.
    word: AtomicU32,
    /// The turn that is over and not answered; 0 for none.
    ending: AtomicU32,
    /// The time since which it is over.
    ending_since: AtomicU64,
    /// Of the thread that answers.
    answering: Lock,
    /// The last word that opened a turn.
    seen: AtomicU32,
    /// When it was seen, if another job waits for its end; else long ago.
    seen_at: AtomicU64,
    /// Work in flight when this turn began, from one that was over long before: it may wait for a launch of this one.
    carried: AtomicU64,
    /// How many threads wait for a turn.
    waiting: AtomicU32,
    /// Whether the thread that looks after turns sleeps until it is woken: 1 if it does.
    asleep: AtomicU32,
    /// The GPU time used before the arbiter was asked, which it does not count.
    before: AtomicU64,
    /// When the arbiter may be asked again.
    ask_at: AtomicU64,
    /// Since when nothing was heard of it.
    silent_since: AtomicU64,
    /// Where the last seat's page is mapped; null before the first.
    page: Kept<Seat>,
}

zeroed! { ArbiterClient {
    seat, sampled, word, ending, ending_since, answering, seen, seen_at, carried, waiting, asleep, before, ask_at,
    silent_since, page
} }

/// The present state of this process's work on the GPU.
pub(super) struct WorkInFlight<'a> {
    /// How long it worked in all, as measured.
    pub(super) used: u64,
    /// The estimate of the work that was launched and not seen to end.
    pub(super) time: u64,
    /// The rest of that now, at most.
    pub(super) left: &'a dyn Fn() -> u64,
    /// Whether it may not end before something is launched that waits for a turn.
    pub(super) is_stuck: &'a dyn Fn() -> bool,
}

impl ArbiterClient {
    #[inline]
    fn seat(&self) -> Option<&'static Seat> {
        self.seat.get()
    }

    /// Whether there is an arbiter.
    pub(super) fn is_connected(&self) -> bool {
        self.seat().is_some()
    }

    /// Whether the turn that launches go on in is still this process's.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        match self.seat() {
            None => true,
            // SeqCst: see `PacedGpu::admit`.
            Some(seat) => {
                let turn = seat.turn().load(Ordering::SeqCst);
                turn & OPEN != 0 && turn == self.word.load(Ordering::SeqCst)
            }
        }
    }

    /// Whether the last work of the job that had the turn before this one may still have run then.
    pub(super) fn is_new(&self, now: u64) -> bool {
        const WHILE: u64 = 2 * HANDOVER_LEFT_NS;
        let since = self.seen_at.load(Ordering::Relaxed);
        let age = now.checked_sub(since);
        self.seat().is_some() && age.is_some_and(|age| age < WHILE)
    }

    /// Whether other processes of the job have the turn too.
    pub(super) fn is_shared(&self) -> bool {
        let seat = self.seat();
        seat.is_some_and(|seat| seat.ahead().load(Ordering::Relaxed) == 0)
    }

    /// Tells the arbiter the GPU time used.
    pub(super) fn used(&self, used: u64) {
        if let Some(seat) = self.seat() {
            let used = used.saturating_sub(self.before.load(Ordering::Relaxed));
            // Another thread may have told of more.
            seat.used().fetch_max(used, Ordering::Relaxed);
        }
    }

    /// The GPU time that may still be used in this turn; `None` without an arbiter.
    pub(super) fn left(&self, used: u64) -> Option<u64> {
        let seat = self.seat()?;
        Some(self.left_at(seat, used))
    }

    fn left_at(&self, seat: &Seat, used: u64) -> u64 {
        let budget = seat.budget().load(Ordering::Relaxed);
        let used = used.saturating_sub(self.before.load(Ordering::Relaxed));
        budget.saturating_sub(used)
    }

    /// Asks for a seat, unless that was in vain a moment ago. True once, for the caller that then has to look after it.
    pub(super) fn join(&self, gpu: &CUuuid, used: u64, now: u64) -> bool {
        let ask_at = self.ask_at.load(Ordering::Relaxed);
        if self.seat().is_some() || now < ask_at {
            return false;
        }
        let mine = self.ask_at.compare_exchange(
            ask_at,
            now.saturating_add(RECONNECT_AFTER_NS),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_err() || !is_of_a_job() {
            return false;
        }
        let Some(seat) = sit_down(gpu, self.page.get()) else {
            if ask_at == 0 {
                say_alone();
            }
            // An arbiter that does not answer is asked less often, the longer each try took.
            let took = os::nanoseconds().saturating_sub(now);
            let again = RECONNECT_AFTER_NS.max(took.saturating_mul(50));
            self.ask_at
                .store(os::nanoseconds().saturating_add(again), Ordering::Relaxed);
            return false;
        };
        self.page.keep(seat);
        self.before.store(used, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
        self.ending.store(0, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
        self.carried.store(0, Ordering::Relaxed);
        self.silent_since.store(now, Ordering::Relaxed);
        self.seat.keep(seat);
        // Channels that are made from here on are told by the thread that makes them.
        channels::tell(seat);
        true
    }

    /// Tells the arbiter of this process's channels.
    pub(super) fn tell_channels(&self) {
        if let Some(seat) = self.seat() {
            channels::tell(seat);
            wake_arbiter(seat);
        }
    }

    /// Whether there are no turns, and a thread is awake that samples the launches.
    #[inline]
    pub(super) fn is_sampling(&self) -> bool {
        // Relaxed: a hint and nothing else.
        self.sampled.load(Ordering::Relaxed) != 0
    }

    /// Says whether a thread is awake that samples the launches.
    pub(super) fn set_sampling(&self, is_sampling: bool) {
        self.sampled.store(is_sampling.into(), Ordering::SeqCst);
    }

    /// Whether there are no turns: the arbiter steers this process's channels on the GPU itself.
    #[inline]
    pub(super) fn is_steered(&self) -> bool {
        // Relaxed: a word and nothing else.
        self.seat()
            .is_some_and(|seat| seat.free().load(Ordering::Relaxed) != 0)
    }

    /// Tells whether there is work now, and for how long there was since it was told last.
    pub(super) fn tell_work(&self, now: u64, has_work: bool, worked: u64) {
        if let Some(seat) = self.seat() {
            seat.tell_work(now, has_work, worked);
        }
    }

    /// Counts a thread that waits, until it no longer does.
    pub(super) fn wait_begins(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a thread that no longer waits.
    pub(super) fn wait_ends(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a launch may go on now; `None` without an arbiter.
    pub(super) fn may(&self, now: u64, flight: &WorkInFlight<'_>) -> Option<Admission> {
        let seat = self.seat()?;
        let in_flight = flight.time;
        let turn = seat.turn().load(Ordering::SeqCst);
        // In this order: what is ending is answered before it is no longer ending.
        let is_ending = turn == self.ending.load(Ordering::SeqCst);
        let is_new = !is_ending && turn != seat.done().load(Ordering::SeqCst);
        if turn & OPEN != 0 && is_new {
            self.silent_since.store(now, Ordering::Relaxed);
            let left = self.left_at(seat, flight.used);
            let until = seat.until().load(Ordering::Relaxed);
            let wait = seat.from().load(Ordering::Relaxed).saturating_sub(now);
            if self.seen.swap(turn, Ordering::SeqCst) != turn {
                // If no other job waits, no other job had the GPU just before. Only if one waits, the arbiter charges
                // all the time.
                let seen_at = if turn & CONTENDED == 0 { 0 } else { now };
                self.seen_at.store(seen_at, Ordering::Relaxed);
                let carried = if in_flight > HANDOVER_LEFT_NS {
                    in_flight
                } else {
                    0
                };
                self.carried.store(carried, Ordering::Relaxed);
            }
            if wait > LAUNCH_EARLY_NS && wait < MAX_TURN_DELAY_NS {
                // It goes on well when it is woken for that: processors sleep, too.
                return Some(Admission::RetryAfter(wait.saturating_sub(LAUNCH_EARLY_NS)));
            }
            if now < until && left > self.new_of(in_flight) {
                self.ending.store(0, Ordering::SeqCst);
                self.word.store(turn, Ordering::SeqCst);
                return Some(Admission::InFlight(left));
            }
            self.end(turn, now);
        } else {
            self.close(seat, turn, now);
        }
        self.word.store(0, Ordering::SeqCst);
        if let Some(more) = self.answer(seat, flight, 1, now) {
            return Some(Admission::RetryAfter(more.clamp(20_000, 200_000)));
        }
        if self.ending.load(Ordering::SeqCst) != 0 {
            // Another thread is about to answer, or finds that the turn need not end after all.
            return Some(Admission::RetryAfter(20_000));
        }
        self.want(seat, now);
        if self.is_gone(seat, now) {
            return None;
        }
        Some(Admission::WaitForTurn(turn))
    }

    /// The work in flight that belongs to this turn. Work that an earlier turn left is waited for once.
    fn new_of(&self, in_flight: u64) -> u64 {
        let carried = self.carried.fetch_min(in_flight, Ordering::Relaxed);
        in_flight.saturating_sub(carried)
    }

    /// Tells the arbiter that this process wants the GPU, or has work there.
    fn want(&self, seat: &Seat, now: u64) {
        if seat.wants_gpu().swap(1, Ordering::SeqCst) == 0 {
            // It is silent while no process wants anything.
            self.silent_since.store(now, Ordering::Relaxed);
            wake_arbiter(seat);
        }
    }

    /// The arbiter closed a turn: it wants an answer also if nothing was launched in it.
    fn close(&self, seat: &Seat, turn: u32, now: u64) {
        self.word.store(0, Ordering::SeqCst);
        // Not once only: a thread that answers an earlier word may forget that this one is ending.
        let is_answered = turn == seat.done().load(Ordering::SeqCst);
        if turn != 0 && turn & OPEN == 0 && !is_answered {
            self.end(turn, now);
        }
    }

    fn end(&self, turn: u32, now: u64) {
        if self.ending.swap(turn, Ordering::SeqCst) != turn {
            self.ending_since.store(now, Ordering::Relaxed);
        }
    }

    /// Answers that a turn is over once little is left of its work. Until then it returns the work that is too much.
    fn answer(&self, seat: &Seat, flight: &WorkInFlight<'_>, wish: u32, now: u64) -> Option<u64> {
        let ending = self.ending.load(Ordering::SeqCst);
        if ending == 0 {
            return None;
        }
        let since = self.ending_since.load(Ordering::Relaxed);
        let new = self.new_of(flight.time);
        let ahead = seat.ahead().load(Ordering::Relaxed).min(HANDOVER_LEFT_NS);
        // Beside others of the job, work takes longer than it should.
        let left = if new == 0 || ahead == 0 {
            new
        } else {
            (flight.left)()
        };
        let patience = new.saturating_mul(2).clamp(PATIENCE_NS, MAX_PATIENCE_NS);
        let more = new.min(left).saturating_sub(ahead);
        // The work in flight may wait for a launch that waits for the next turn.
        if more > 0 && now.saturating_sub(since) < patience && !(flight.is_stuck)() {
            return Some(more);
        }
        // Another thread may be about to, or have done so.
        let held = self.answering.try_hold();
        if held.is_some() && self.ending.load(Ordering::SeqCst) == ending {
            // It includes work that is over, though no event has told that yet.
            let over = flight.time.saturating_sub(left);
            self.used(flight.used.saturating_add(over));
            seat.over()
                .store(now.saturating_add(left), Ordering::Relaxed);
            self.say_done(seat, ending, wish);
            self.has_ended(ending);
        }
        None
    }

    /// That one is no longer ending, but maybe a later one is.
    fn has_ended(&self, turn: u32) {
        let _ = self
            .ending
            .compare_exchange(turn, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Tells the arbiter that this process is done with a turn, and its wish for the next.
    fn say_done(&self, seat: &Seat, turn: u32, wish: u32) {
        seat.wants_gpu().store(wish, Ordering::SeqCst);
        seat.done().store(turn, Ordering::SeqCst);
        if self.wish() != 0 {
            // A thread that began to wait meanwhile must not be forgotten.
            seat.wants_gpu().store(1, Ordering::SeqCst);
        }
        wake_arbiter(seat);
    }

    /// Whether nothing was heard of the arbiter for too long: then this process is on its own again.
    fn is_gone(&self, seat: &Seat, now: u64) -> bool {
        let beat = seat.heartbeat().load(Ordering::Relaxed);
        let heard = beat.max(self.silent_since.load(Ordering::Relaxed)).min(now);
        let silent = now.saturating_sub(heard);
        if silent < SILENT_AFTER_NS || silent < GONE_AFTER_NS && os::is_listening(ARBITER_SOCKET) {
            return false;
        }
        // If the arbiter ever goes on, it must not wait for this process.
        seat.wants_gpu().store(0, Ordering::SeqCst);
        self.seat.forget();
        self.ask_at
            .store(now.saturating_add(RECONNECT_AFTER_NS), Ordering::Relaxed);
        // The threads that wait or look after it find out.
        os::wake_all(seat.turn());
        true
    }

    /// Waits until the word changes, or until the work in flight may be done: the arbiter needs its time while the next
    /// job has the turn. Waits for `longest` at most if there is something else to look at.
    pub(super) fn sleep(&self, turn: u32, now: u64, in_flight: u64, longest: Option<u64>) {
        if let Some(seat) = self.seat() {
            let time = self.until_done(now, in_flight);
            let time = time.min(longest.unwrap_or(MAX_SLEEP_NS));
            os::wait_until_changed(seat.turn(), turn, time);
        }
    }

    /// When to look again at the work in flight after a turn; the later, the longer ago that turn ended.
    fn until_done(&self, now: u64, in_flight: u64) -> u64 {
        if in_flight == 0 {
            return MAX_SLEEP_NS;
        }
        let since = now.saturating_sub(self.ending_since.load(Ordering::Relaxed));
        in_flight.max(since).clamp(IDLE_KEEPS_NS, MAX_SLEEP_NS)
    }

    /// The word to wait for.
    pub(super) fn turn(&self) -> u32 {
        self.seat()
            .map_or(0, |seat| seat.turn().load(Ordering::SeqCst))
    }

    /// Tells whether the job is to have its turns on all of its GPUs together.
    pub(super) fn come_together(&self, is_together: bool) {
        if let Some(seat) = self.seat() {
            seat.together().store(is_together.into(), Ordering::Relaxed);
        }
    }

    /// Counts a launch that went on without a turn. An arbiter adds up what each seat had.
    pub(super) fn overran(&self) {
        if let Some(seat) = self.seat() {
            seat.overruns().fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wish(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst).min(1)
    }
}

fn wake_arbiter(seat: &Seat) {
    seat.wakes().fetch_add(1, Ordering::SeqCst);
    os::wake_all(seat.wakes());
}

/// Whether turns are for this process: the arbiter knows jobs alone.
fn is_of_a_job() -> bool {
    gate::with_finding(|finding| matches!(finding.standing, ProcessRules::Job(_)))
}

/// Says in the job's log that no arbiter answers.
fn say_alone() {
    gate::with_finding(|finding| log::say(finding, &Message::NoTurns));
}

/// Asks the arbiter for this process's seat at a GPU.
fn sit_down(gpu: &CUuuid, last: Option<&'static Seat>) -> Option<&'static Seat> {
    /// The number of root in a user namespace that does not map root.
    const NOBODY: u32 = 65534;
    let request = Request {
        gpu: gpu.bytes.map(i8::cast_unsigned),
    };
    let mut refused = [0; ANSWER];
    let answer = os::ask(ARBITER_SOCKET, &request.to_bytes(), &mut refused).ok()?;
    let is_roots = answer.uid == 0 || answer.uid == NOBODY;
    let file = answer.file.filter(os::File::is_sealed)?;
    let is_large = file.status().is_ok_and(|status| status.size >= Seat::SIZE);
    if !is_roots || !is_large || u32::from_le_bytes(refused) != 0 {
        return None;
    }
    page_of(&file, last)
}

/// Maps a seat's file, in the place of the last seat's page: threads may still look there.
fn page_of(file: &os::File, last: Option<&'static Seat>) -> Option<&'static Seat> {
    if let Some(last) = last {
        let place = NonNull::from(last).cast();
        // SAFETY: mapped below, and a seat is nothing but atomics.
        let mapped = unsafe { os::map_over(place, file, Seat::SIZE) };
        return mapped.is_ok().then_some(last);
    }
    let start = os::map_shared(file, Seat::SIZE).ok()?;
    // SAFETY: mapped and never given back, and sealed, so it cannot become shorter.
    unsafe { Seat::at(start.as_ptr()) }
}

/// A seat at which no arbiter looks.
#[cfg(test)]
pub(super) fn seat_of_test() -> &'static Seat {
    let start = os::map(Seat::SIZE).unwrap();
    // SAFETY: mapped, and never given back.
    unsafe { Seat::at(start.as_ptr()) }.unwrap()
}

#[cfg(test)]
#[path = "arbiter_client_tests.rs"]
mod tests;
