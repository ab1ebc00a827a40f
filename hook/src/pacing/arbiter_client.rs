//! Turns on the GPU that the node's arbiter gives, where there is one: this process's side of [`softmig_region::seat`].

pub(super) mod turn_keeper;

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::{ANSWER, CONTENDED, OPEN, Request, Seat};

use super::channels;
use super::work::May;
use crate::identity::resolve::Standing;
use crate::identity::{gate, log};
use crate::os::{self, Lock};

/// Where the arbiter listens.
const SOCKET: &CStr = c"/var/run/softmig/arbiter.sock";
/// An arbiter that has not looked for so long while this process waits may be gone: then it is seen whether it listens.
const SILENT: u64 = 50_000_000;
/// One that listens and does not look for so long is as good as gone.
const GONE: u64 = 300_000_000;
/// So long after it was not there it is asked again.
const AGAIN: u64 = 200_000_000;
/// With so little left the next job may have the turn: it is told when that is over, and gets ready meanwhile. Work of its that
/// comes earlier may take the GPU before this ends (docs/gpu-notes.md).
const AHEAD: u64 = 700_000;
/// So long before a turn begins its first work is launched: that comes to the GPU about when it is free, since the way there
/// takes some time, and what is left of other work is nearly always a little less than was thought.
const EARLY: u64 = 250_000;
/// No turn begins later than this.
const LONGEST_WAIT: u64 = 2_000_000;
/// So long after a turn its last work is waited for, or twice as long as it should take.
const PATIENCE: u64 = 30_000_000;
/// And no longer than this.
const LONGEST_PATIENCE: u64 = 1_000_000_000;
/// So long an idle process keeps a turn that another waits for.
const IDLE: u64 = 60_000;
/// So long at most a thread waits for a word that does not change, if there is anything else to see to.
const LONGEST: u64 = 20_000_000;

/// What the arbiter says; nothing is known while all is zero. What each launch looks at comes first.
#[repr(C)]
pub(super) struct Turns {
    /// Null without an arbiter.
    seat: AtomicPtr<Seat>,
    /// Whether there are no turns, and a thread samples what is launched: 1 if so.
    sampled: AtomicU32,
    /// The turn that launches go on in; 0 for none.
    word: AtomicU32,
    /// The turn that is over and not answered; 0 for none.
    ending: AtomicU32,
    /// Since when.
    ending_since: AtomicU64,
    /// Of the thread that answers.
    answering: Lock,
    /// The last word that opened a turn.
    seen: AtomicU32,
    /// When it was seen, if somebody waits for its end; else long ago.
    seen_at: AtomicU64,
    /// What was in flight when this turn began, from one that was over long before: it may wait for a launch of this one.
    carried: AtomicU64,
    /// How many threads wait for a turn.
    waiting: AtomicU32,
    /// Whether the thread that looks after turns sleeps until it is woken: 1 if it does.
    asleep: AtomicU32,
    /// What was used before the arbiter was asked: that is not its business.
    before: AtomicU64,
    /// When the arbiter may be asked again.
    ask_at: AtomicU64,
    /// Since when nothing was heard of it.
    silent_since: AtomicU64,
}

/// This process's work on the GPU, as it stands.
pub(super) struct Flight<'a> {
    /// How long it worked in all, as measured.
    pub(super) used: u64,
    /// What was launched and not seen to end, as estimated.
    pub(super) time: u64,
    /// What may be left of that now.
    pub(super) left: &'a dyn Fn() -> u64,
    /// Whether it may not end before something is launched that waits for a turn.
    pub(super) is_stuck: &'a dyn Fn() -> bool,
}

impl Turns {
    fn seat(&self) -> Option<&'static Seat> {
        // SAFETY: null, or a page that is never given back.
        unsafe { self.seat.load(Ordering::Acquire).as_ref() }
    }

    /// Whether there is an arbiter.
    pub(super) fn are_given(&self) -> bool {
        self.seat().is_some()
    }

    /// Whether the turn that launches go on in is still this process's.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        match self.seat() {
            None => true,
            // SeqCst: see `Gpu::admit`.
            Some(seat) => {
                let turn = seat.turn().load(Ordering::SeqCst);
                turn & OPEN != 0 && turn == self.word.load(Ordering::SeqCst)
            }
        }
    }

    /// Whether the last work of the job that had the turn before this one may still have run then.
    pub(super) fn is_new(&self, now: u64) -> bool {
        const WHILE: u64 = 2 * AHEAD;
        let since = self.seen_at.load(Ordering::Relaxed);
        let age = now.checked_sub(since);
        self.seat().is_some() && age.is_some_and(|age| age < WHILE)
    }

    /// Whether other processes of the job have the turn too.
    pub(super) fn is_shared(&self) -> bool {
        let seat = self.seat();
        seat.is_some_and(|seat| seat.ahead().load(Ordering::Relaxed) == 0)
    }

    /// Tells the arbiter what was used.
    pub(super) fn used(&self, used: u64) {
        if let Some(seat) = self.seat() {
            let used = used.saturating_sub(self.before.load(Ordering::Relaxed));
            // Another thread may have told of more.
            seat.used().fetch_max(used, Ordering::Relaxed);
        }
    }

    /// What may still be used in this turn; `None` without an arbiter.
    pub(super) fn left(&self, used: u64) -> Option<u64> {
        let seat = self.seat()?;
        Some(self.left_at(seat, used))
    }

    fn left_at(&self, seat: &Seat, used: u64) -> u64 {
        let budget = seat.budget().load(Ordering::Relaxed);
        let used = used.saturating_sub(self.before.load(Ordering::Relaxed));
        budget.saturating_sub(used)
    }

    /// Asks for a seat, unless that was in vain a moment ago; true once, for who then has to look after it.
    pub(super) fn join(&self, gpu: &CUuuid, used: u64, now: u64) -> bool {
        let ask_at = self.ask_at.load(Ordering::Relaxed);
        if self.seat().is_some() || now < ask_at {
            return false;
        }
        let mine = self.ask_at.compare_exchange(
            ask_at,
            now.saturating_add(AGAIN),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_err() || !is_of_a_job() {
            return false;
        }
        let Some(seat) = sit_down(gpu) else {
            if ask_at == 0 {
                say_alone();
            }
            // One that does not answer is asked the more seldom, the longer that took.
            let took = os::nanoseconds().saturating_sub(now);
            let again = AGAIN.max(took.saturating_mul(50));
            self.ask_at
                .store(os::nanoseconds().saturating_add(again), Ordering::Relaxed);
            return false;
        };
        self.before.store(used, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
        self.ending.store(0, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
        self.carried.store(0, Ordering::Relaxed);
        self.silent_since.store(now, Ordering::Relaxed);
        let place = core::ptr::from_ref(seat).cast_mut();
        self.seat.store(place, Ordering::Release);
        // What is made from here on is told by who makes it.
        channels::tell(seat);
        true
    }

    /// Tells the arbiter of this process's channels.
    pub(super) fn tell_channels(&self) {
        if let Some(seat) = self.seat() {
            channels::tell(seat);
            ring(seat);
        }
    }

    /// Whether there are no turns, and a thread is awake that samples what is launched.
    #[inline]
    pub(super) fn are_sampled(&self) -> bool {
        // Relaxed: a hint and nothing else.
        self.sampled.load(Ordering::Relaxed) != 0
    }

    /// See above.
    pub(super) fn set_sampled(&self, are_sampled: bool) {
        self.sampled.store(are_sampled.into(), Ordering::SeqCst);
    }

    /// Whether there are no turns: the arbiter steers this process's channels on the GPU itself.
    #[inline]
    pub(super) fn are_off(&self) -> bool {
        // Relaxed: a word and nothing else.
        self.seat()
            .is_some_and(|seat| seat.free().load(Ordering::Relaxed) != 0)
    }

    /// Tells whether there is work, and for how long since the last time the GPU waited for some that was on its way.
    pub(super) fn tell_work(&self, has_work: bool, idle: u64) {
        if let Some(seat) = self.seat() {
            seat.tell_work(os::nanoseconds(), has_work, idle);
        }
    }

    /// Counts a thread that waits, until it no longer does.
    pub(super) fn wait_begins(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// See above.
    pub(super) fn wait_ends(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// What may be in flight now; `None` without an arbiter.
    pub(super) fn may(&self, now: u64, flight: &Flight<'_>) -> Option<May> {
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
                // Where nobody waits nobody had it just before; and only where somebody does, the arbiter charges all the time.
                let seen_at = if turn & CONTENDED == 0 { 0 } else { now };
                self.seen_at.store(seen_at, Ordering::Relaxed);
                let carried = if in_flight > AHEAD { in_flight } else { 0 };
                self.carried.store(carried, Ordering::Relaxed);
            }
            if wait > EARLY && wait < LONGEST_WAIT {
                // It goes on well when it is woken for that: processors sleep, too.
                return Some(May::Nothing(wait.saturating_sub(EARLY)));
            }
            if now < until && left > self.new_of(in_flight) {
                self.ending.store(0, Ordering::SeqCst);
                self.word.store(turn, Ordering::SeqCst);
                return Some(May::Have(left));
            }
            self.end(turn, now);
        } else {
            self.close(seat, turn, now);
        }
        self.word.store(0, Ordering::SeqCst);
        if let Some(more) = self.answer(seat, flight, 1, now) {
            return Some(May::Nothing(more.clamp(20_000, 200_000)));
        }
        if self.ending.load(Ordering::SeqCst) != 0 {
            // Another thread is about to answer, or finds that the turn need not end after all.
            return Some(May::Nothing(20_000));
        }
        self.want(seat, now);
        if self.is_gone(seat, now) {
            return None;
        }
        Some(May::Turn(turn))
    }

    /// What is in flight of this turn's. What an earlier one left is waited for once.
    fn new_of(&self, in_flight: u64) -> u64 {
        let carried = self.carried.fetch_min(in_flight, Ordering::Relaxed);
        in_flight.saturating_sub(carried)
    }

    /// Tells the arbiter that this process wants the GPU, or has work there.
    fn want(&self, seat: &Seat, now: u64) {
        if seat.wish().swap(1, Ordering::SeqCst) == 0 {
            // It is silent while nobody wants anything.
            self.silent_since.store(now, Ordering::Relaxed);
            ring(seat);
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

    /// Answers that a turn is over once little is left of its work; says how much too much there is until then.
    fn answer(&self, seat: &Seat, flight: &Flight<'_>, wish: u32, now: u64) -> Option<u64> {
        let ending = self.ending.load(Ordering::SeqCst);
        if ending == 0 {
            return None;
        }
        let since = self.ending_since.load(Ordering::Relaxed);
        let new = self.new_of(flight.time);
        let ahead = seat.ahead().load(Ordering::Relaxed).min(AHEAD);
        // Beside others of the job, work takes longer than it should.
        let left = if new == 0 || ahead == 0 {
            new
        } else {
            (flight.left)()
        };
        let patience = new.saturating_mul(2).clamp(PATIENCE, LONGEST_PATIENCE);
        let more = new.min(left).saturating_sub(ahead);
        // What is in flight may wait for a launch that waits for the next turn.
        if more > 0 && now.saturating_sub(since) < patience && !(flight.is_stuck)() {
            return Some(more);
        }
        // Another thread may be about to, or have done so.
        let held = self.answering.try_hold();
        if held.is_some() && self.ending.load(Ordering::SeqCst) == ending {
            // With what is over of it, though no event has told that yet.
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

    /// Says that this process is done with a turn, and what it wishes for then.
    fn say_done(&self, seat: &Seat, turn: u32, wish: u32) {
        seat.wish().store(wish, Ordering::SeqCst);
        seat.done().store(turn, Ordering::SeqCst);
        if self.wish() != 0 {
            // Who began to wait meanwhile is not to be forgotten.
            seat.wish().store(1, Ordering::SeqCst);
        }
        ring(seat);
    }

    /// Whether nothing was heard of the arbiter for too long: then this process is on its own again.
    fn is_gone(&self, seat: &Seat, now: u64) -> bool {
        let beat = seat.beat().load(Ordering::Relaxed);
        let heard = beat.max(self.silent_since.load(Ordering::Relaxed)).min(now);
        let silent = now.saturating_sub(heard);
        if silent < SILENT || silent < GONE && os::is_listening(SOCKET) {
            return false;
        }
        // If it goes on one day, it is not to wait for this process.
        seat.wish().store(0, Ordering::SeqCst);
        self.seat.store(core::ptr::null_mut(), Ordering::SeqCst);
        self.ask_at
            .store(now.saturating_add(AGAIN), Ordering::Relaxed);
        // Whoever waits or looks after it finds out.
        os::wake_all(seat.turn());
        true
    }

    /// Waits until the word changes, or what is in flight may be done: the arbiter is to know what it took while the next
    /// one has the turn. `longest` where there is something else to look at.
    pub(super) fn sleep(&self, turn: u32, now: u64, in_flight: u64, longest: Option<u64>) {
        if let Some(seat) = self.seat() {
            let time = self.until_done(now, in_flight);
            let time = time.min(longest.unwrap_or(LONGEST));
            os::wait_until_changed(seat.turn(), turn, time);
        }
    }

    /// When to look again at what is in flight after a turn; the later, the longer ago that ended.
    fn until_done(&self, now: u64, in_flight: u64) -> u64 {
        if in_flight == 0 {
            return LONGEST;
        }
        let since = now.saturating_sub(self.ending_since.load(Ordering::Relaxed));
        in_flight.max(since).clamp(IDLE, LONGEST)
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

    /// Counts a launch that went on without a turn.
    pub(super) fn overran(&self, count: u32) {
        if let Some(seat) = self.seat() {
            seat.overruns().store(count, Ordering::Relaxed);
        }
    }

    fn wish(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst).min(1)
    }
}

fn ring(seat: &Seat) {
    seat.bell().fetch_add(1, Ordering::SeqCst);
    os::wake_all(seat.bell());
}

/// Whether turns are for this process: the arbiter knows jobs alone.
fn is_of_a_job() -> bool {
    gate::with_finding(|finding| matches!(finding.standing, Standing::Job(_)))
}

/// Says in the job's log that there is no arbiter.
fn say_alone() {
    gate::with_finding(|finding| {
        let what = b"no softmig-monitor gives turns on the GPU: this job keeps its share of time alone, and may get less";
        log::say(finding, log::Level::Warning, &[what]);
    });
}

/// Asks the arbiter for this process's seat at a GPU.
fn sit_down(gpu: &CUuuid) -> Option<&'static Seat> {
    /// Root as a user namespace shows him that does not have him.
    const NOBODY: u32 = 65534;
    let request = Request {
        gpu: gpu.bytes.map(i8::cast_unsigned),
    };
    let mut refused = [0; ANSWER];
    let answer = os::ask(SOCKET, &request.to_bytes(), &mut refused).ok()?;
    let is_roots = answer.uid == 0 || answer.uid == NOBODY;
    let file = answer.file.filter(os::File::is_sealed)?;
    let is_large = file.status().is_ok_and(|status| status.size >= Seat::SIZE);
    if !is_roots || !is_large || u32::from_le_bytes(refused) != 0 {
        return None;
    }
    let start = os::map_shared(&file, Seat::SIZE).ok()?;
    // SAFETY: mapped and never given back, and sealed: nobody can make it shorter.
    unsafe { Seat::at(start.as_ptr()) }
}

#[cfg(test)]
#[path = "arbiter_client_tests.rs"]
mod tests;
