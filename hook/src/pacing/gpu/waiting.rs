//! The wait of a launch, and the return of unused turns.

use core::sync::atomic::Ordering;

use super::super::arbiter_client::turn_keeper::Duty;
use super::super::job_cap::JobCap;
use super::super::turn_thread;
use super::super::work::Admission;
use super::at_once::Samples;
use super::{PacedGpu, WINDOW_NS};
use crate::identity::message::{Message, WentOn};
use crate::identity::{gate, log};
use crate::os;

/// A launch goes on if no work ends for this long, or for twice as long as it takes itself: the work in flight may wait
/// for it. If its time is unknown, the work in flight may just be long. Then every fourth of the launches that follow
/// doubles the wait, until some work ends.
const PATIENCE_NS: u64 = 2_000_000;
/// The same where other processes of the job work in the same turn.
const SHARED_PATIENCE_NS: u64 = 20_000_000;
/// The longest such wait.
const MAX_PATIENCE_NS: u64 = 100_000_000;

impl PacedGpu {
    /// Waits until a launch of this cost may go on, and counts it in. `is_known` tells whether the cost was measured.
    #[cold]
    pub(super) fn wait(&'static self, cost: u64, is_known: bool) {
        let _exact = os::Exact::timers();
        self.arbiter.wait_begins();
        let known = is_known.then_some(cost);
        let mut patience = Patience::new(self);
        // Work of which nothing is known mostly takes less.
        let mut longest_nap = if is_known { 500_000 } else { 20_000 };
        loop {
            self.mark_ends(None);
            self.settle_several();
            let now = os::nanoseconds();
            let in_flight = self.time_in_flight();
            match self.may(now, in_flight) {
                Admission::InFlight(left) => {
                    // Two long launches, so that the GPU does not wait between them.
                    let left = self.apart(left);
                    let window = self.apart(self.window());
                    let most = left.min(window.max(cost.saturating_add(cost / 2)));
                    if self.count_in(cost, most) {
                        self.ceiling.store(left.min(window), Ordering::SeqCst);
                        break;
                    }
                    if patience.is_over(self, now, known) {
                        self.overrun(cost);
                        break;
                    }
                    os::nap((in_flight / 2).clamp(20_000, longest_nap));
                    longest_nap = longest_nap.saturating_mul(2).min(500_000);
                }
                Admission::RetryAfter(time) => {
                    self.ceiling.store(0, Ordering::SeqCst);
                    os::nap(time.clamp(20_000, 1_000_000));
                }
                Admission::OnlyAwaited(ahead) => {
                    self.ceiling.store(0, Ordering::SeqCst);
                    if self.count_in(cost, ahead) {
                        self.note_overrun(WentOn::OtherGpu);
                        break;
                    }
                    os::nap(50_000);
                }
                Admission::WaitForTurn(turn) => {
                    self.ceiling.store(0, Ordering::SeqCst);
                    let look_in = self.job_cap().and_then(|cap| cap.coscheduling.look_in(now));
                    self.arbiter.sleep(turn, now, in_flight, look_in);
                    if in_flight < WINDOW_NS {
                        // Only the turn keeps it waiting.
                        patience = Patience::new(self);
                    }
                }
            }
        }
        self.arbiter.wait_ends();
    }

    fn may(&'static self, now: u64, in_flight: u64) -> Admission {
        let Some(cap) = self.job_cap() else {
            return Admission::InFlight(u64::MAX);
        };
        let used = self.used.load(Ordering::Relaxed);
        self.take_seat(cap, used, now);
        let turn = self.with_flight(in_flight, |flight| self.arbiter.may(now, flight));
        match turn {
            Some(may) => {
                self.arbiter.come_together(cap.is_together(now));
                cap.coscheduling.in_turns(may, now, used)
            }
            None => cap.may(now, in_flight, used),
        }
    }

    /// Asks the arbiter for a seat, unless there is one.
    fn take_seat(&'static self, cap: &JobCap, used: u64, now: u64) {
        if self.arbiter.join(cap.uuid(), used, now)
            && !self.is_attended.swap(true, Ordering::SeqCst)
        {
            turn_thread::start(self);
        }
    }

    /// The same before anything is launched.
    pub(in crate::pacing) fn take_seat_early(&'static self) {
        if let Some(cap) = self.job_cap() {
            let used = self.used.load(Ordering::Relaxed);
            self.take_seat(cap, used, os::nanoseconds());
        }
    }

    /// The work of the hook's own thread while there are turns: it gives back those that the program does not use.
    pub(in crate::pacing) fn attend(&'static self) {
        let mut last = 0;
        let mut samples = Samples::default();
        loop {
            let is_sampled = self.arbiter.is_steered();
            self.arbiter.set_sampling(is_sampled);
            let is_at_work = is_sampled && self.sample(&mut samples);
            // Relaxed: a launch meanwhile is seen by what is in flight.
            let launched = self.last.load(Ordering::Relaxed);
            let is_same = core::mem::replace(&mut last, launched) == launched;
            let rests = is_same && !is_at_work;
            let in_flight = self.time_in_flight();
            let turn = self.arbiter.turn();
            let duty = self.with_flight(in_flight, |flight| {
                self.arbiter.attend(os::nanoseconds(), flight, rests)
            });
            match duty {
                Duty::End => break,
                Duty::Rest => {
                    if is_sampled && self.stop_sampling() {
                        samples.wake();
                        continue;
                    }
                    let is_idle =
                        || self.in_flight.load(Ordering::SeqCst) == 0 && !self.has_launched();
                    self.arbiter.rest(turn, is_idle);
                    samples.wake();
                }
                Duty::Look(time) => {
                    let time = if is_sampled {
                        samples.interval(time, os::nanoseconds())
                    } else {
                        time
                    };
                    os::nap(time);
                    if self.last.load(Ordering::Relaxed) != launched {
                        // The thread that launches sees to it that time is charged.
                        continue;
                    }
                    self.mark_all_ends();
                    self.settle();
                    // The process's wish if the GPU does none of its work: 1 if work in flight waits for something
                    // else.
                    let idle = || {
                        let is_same = self.last.load(Ordering::Relaxed) == launched;
                        let in_flight = self.in_flight.load(Ordering::SeqCst);
                        match in_flight {
                            0 if is_same => Some(0),
                            _ if is_same && self.is_blocked() => Some(1),
                            _ => None,
                        }
                    };
                    if idle().is_some() {
                        self.arbiter.give_back(idle);
                    }
                }
            }
        }
        // Without an arbiter launches wait for the job's own cap again.
        self.arbiter.set_sampling(false);
        self.is_attended.store(false, Ordering::SeqCst);
    }

    /// Tells the arbiter of this process's channels.
    pub(in crate::pacing) fn tell_channels(&self) {
        self.arbiter.tell_channels();
    }

    /// The time for which a launch of unknown time waits for work that runs: that work may just be long.
    fn patience(&self) -> u64 {
        let stalled = self.stalled.load(Ordering::Relaxed);
        PATIENCE_NS
            .checked_shl((stalled / 4).min(8))
            .unwrap_or(PATIENCE_NS)
            .min(MAX_PATIENCE_NS)
    }

    /// Lets a launch go on although no work ended: the work in flight may wait for it.
    fn overrun(&self, cost: u64) {
        self.in_flight.fetch_add(cost, Ordering::SeqCst);
        // Relaxed: a count and nothing else.
        self.stalled.fetch_add(1, Ordering::Relaxed);
        self.note_overrun(WentOn::NothingEnded);
    }

    /// Counts a launch that went on although it had to wait.
    fn note_overrun(&self, why: WentOn) {
        // Relaxed: a count and nothing else.
        let count = self
            .overruns
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        self.arbiter.overran();
        if log::is_round(count) {
            gate::with_finding(|finding| log::say(finding, &Message::WentOn(why)));
        }
    }
}

/// The wait of a thread for its own process's work, which may wait for the thread. Turns of other jobs count too, since
/// one turn may be shorter than the wait.
struct Patience {
    used: u64,
    since: u64,
}

impl Patience {
    fn new(gpu: &PacedGpu) -> Self {
        Self {
            used: gpu.used.load(Ordering::Relaxed),
            since: os::nanoseconds(),
        }
    }

    /// Whether the wait was long enough for a launch of this time, if that is known.
    fn is_over(&mut self, gpu: &PacedGpu, now: u64, known: Option<u64>) -> bool {
        let used = gpu.used.load(Ordering::Relaxed);
        if used != self.used {
            self.used = used;
            self.since = now;
        }
        let waited = now.saturating_sub(self.since);
        let span = match known {
            Some(time) => time.saturating_mul(2),
            None => gpu.patience(),
        };
        // Other processes of the job have the GPU most of the time.
        let least = if gpu.arbiter.is_shared() {
            SHARED_PATIENCE_NS
        } else {
            PATIENCE_NS
        };
        waited > least && (gpu.is_blocked() || waited > span)
    }
}
