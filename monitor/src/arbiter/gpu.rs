//! One GPU: its turns, a thread for each seat that waits for the bell, and one for the clock.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::bell::Bell;
use super::jobs::Guest;
use super::page::Page;
use crate::turns::{Job, Nanos, Rules, SeatId, Standing, Turns};

/// How often processes that wait are told that the arbiter is there. Where they hear nothing for twice as long, they see
/// whether it listens.
const BEAT: Nanos = 25_000_000;
/// So long after the first ring that comes too soon everybody is heard, and so much later for each: to hear all of them,
/// and to tell all of them what follows, takes a small part of that.
const SOON: Nanos = 1_000_000;
const SOON_EACH: Nanos = 20_000;
/// A thread that waits for a bell calls nothing deep.
const STACK: usize = 128 << 10;
/// A process that answers faster than it can be told is not waited for: others are to come to their looks.
const MOST_LOOKS: u32 = 8;
const PAUSE: Nanos = 100_000;

/// A GPU's turns and who sits there.
#[derive(Debug)]
pub(super) struct Gpu {
    round: Mutex<Round>,
    /// The clock's thread is to wait for another time.
    sooner: Condvar,
}

#[derive(Debug)]
struct Round {
    turns: Turns,
    chairs: BTreeMap<SeatId, Arc<Chair>>,
    /// When to look again.
    next: Option<Nanos>,
    /// When the clock's thread will.
    clock: Option<Nanos>,
    /// When everybody is heard, and told that the arbiter is there, if that is not before.
    beat: Option<Nanos>,
    is_over: bool,
}

/// A process's seat.
#[derive(Debug)]
struct Chair {
    page: Page,
    pid: u32,
    has_left: AtomicBool,
    /// Its job's.
    bell: Arc<Bell>,
    /// Counts it, as long as a thread listens here.
    _count: Arc<()>,
}

/// Where a GPU's jobs stand, as [`super::Arbiter::status`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// What the arbiter knows.
    pub standing: Standing,
    /// Since when the job has had processes here, or time to pay for.
    pub known_for: Duration,
    /// Its processes.
    pub members: Vec<Member>,
}

/// A process that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// How often it launched without a turn, as it says.
    pub launches_without_turn: u32,
    /// It did not answer when its turn ended: it gets none for so long, unless it answers.
    pub shut_out_for: Option<Duration>,
}

pub(super) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl Gpu {
    pub(super) fn start(rules: Rules) -> io::Result<Arc<Self>> {
        let gpu = Arc::new(Self {
            round: Mutex::new(Round {
                turns: Turns::new(now(), rules),
                chairs: BTreeMap::new(),
                next: None,
                clock: None,
                beat: None,
                is_over: false,
            }),
            sooner: Condvar::new(),
        });
        let this = Arc::clone(&gpu);
        spawn("clock", move || this.keep_time())?;
        Ok(gpu)
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        // Nothing is left half done where a thread could have panicked.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process comes. Gives the file of its page.
    pub(super) fn sit(
        self: &Arc<Self>,
        guest: Guest,
        pid: u32,
        count: &Arc<()>,
    ) -> io::Result<(SeatId, OwnedFd)> {
        let Guest { job, share, mode } = guest;
        let (page, file) = Page::new(share)?;
        page.beat(now());
        let mut round = self.round();
        if round.is_over {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let chair = Arc::new(Chair {
            page,
            pid,
            has_left: AtomicBool::new(false),
            bell: round.bell(job),
            _count: Arc::clone(count),
        });
        let seat = round.turns.sit(now(), job, share, mode);
        round.chairs.insert(seat, Arc::clone(&chair));
        drop(round);
        let this = Arc::clone(self);
        match spawn("seat", move || this.listen(seat, &chair)) {
            Ok(_) => Ok((seat, file)),
            Err(error) => {
                self.leave(seat);
                Err(error)
            }
        }
    }

    /// A process has gone.
    pub(super) fn leave(&self, seat: SeatId) {
        let mut round = self.round();
        round.turns.leave(now(), seat);
        let chair = round.chairs.remove(&seat);
        drop(round);
        if let Some(chair) = chair {
            chair.close();
        }
        self.look(seat);
    }

    /// The arbiter ends.
    pub(super) fn end(&self) {
        let mut round = self.round();
        round.is_over = true;
        for chair in std::mem::take(&mut round.chairs).into_values() {
            chair.close();
        }
        drop(round);
        self.sooner.notify_all();
    }

    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let round = self.round();
        let now = now();
        let until = |time: Nanos| Duration::from_nanos(u64::try_from(time - now).unwrap_or(0));
        let member = |(&seat, chair): (&SeatId, &Arc<Chair>)| Member {
            pid: chair.pid,
            launches_without_turn: chair.page.overruns(),
            shut_out_for: round.turns.is_late_until(seat).map(until),
        };
        let of = |job| round.chairs.iter().filter(move |(seat, _)| seat.job == job);
        let tenants = round.turns.standings().map(|standing| Tenant {
            standing,
            known_for: Duration::from_nanos(u64::try_from(now - standing.since).unwrap_or(0)),
            members: of(standing.job).map(member).collect(),
        });
        tenants.collect()
    }

    /// Hears a seat and does what is to be done.
    fn look(&self, seat: SeatId) {
        let mut round = self.round();
        let due = round.look(Some(seat));
        if due.is_some_and(|due| round.clock.is_none_or(|clock| due < clock)) {
            self.sooner.notify_all();
        }
    }

    /// Lets the clock hear those who ring too often, all at once.
    fn look_soon(&self) {
        let mut round = self.round();
        let seats = Nanos::try_from(round.chairs.len()).unwrap_or(Nanos::MAX);
        let soon = now() + SOON.saturating_add(SOON_EACH.saturating_mul(seats));
        round.beat = round.beat.into_iter().chain([soon]).min();
        round.next = round.next.into_iter().chain([soon]).min();
        if round.clock.is_none_or(|clock| soon < clock) {
            self.sooner.notify_all();
        }
    }

    /// Looks when it is time.
    fn keep_time(&self) {
        // Turns end when they should, not when it is convenient.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut round = self.round();
        while !round.is_over {
            round.clock = round.next;
            round = match round.next.map(|next| next - now()) {
                None => wait(self.sooner.wait(round)),
                Some(time) if time > 0 => {
                    let time = Duration::from_nanos(time.cast_unsigned());
                    wait(self.sooner.wait_timeout(round, time)).0
                }
                Some(_) => {
                    round.look(None);
                    round
                }
            };
        }
    }

    /// Looks whenever the bell of a seat is rung, as often as its job may ring.
    fn listen(&self, seat: SeatId, chair: &Chair) {
        loop {
            let seats = Arc::strong_count(&chair.bell);
            let wait = chair.bell.ring(now(), seats);
            if wait > Duration::ZERO {
                self.look_soon();
                thread::sleep(wait);
            }
            let rung = chair.page.rung();
            if chair.has_left.load(SeqCst) {
                return;
            }
            self.look(seat);
            chair.page.wait_for_bell(rung);
        }
    }
}

impl Round {
    /// The bell of a job, whose seats share it.
    fn bell(&self, job: Job) -> Arc<Bell> {
        let mut chairs = self.chairs.iter();
        let other = chairs.find(|(seat, _)| seat.job == job);
        other.map_or_else(Arc::default, |(_, chair)| Arc::clone(&chair.bell))
    }

    /// Hears the seat that rang, or everybody, and does what is to be done. Tells when to look again, if it is known.
    fn look(&mut self, mut rang: Option<SeatId>) -> Option<Nanos> {
        for _ in 0..MOST_LOOKS {
            let time = now();
            match rang.take() {
                Some(seat) => self.hear(time, seat),
                None => self.hear_all(time),
            }
            let look = self.turns.look(time);
            for order in &look.orders {
                if let Some(chair) = self.chairs.get(&order.seat) {
                    chair.page.write(order);
                }
            }
            self.next = look.next.into_iter().chain(self.beat).min();
            if self.next.is_none_or(|next| next > now()) {
                return self.next;
            }
        }
        self.next = Some(now() + PAUSE);
        self.next
    }

    fn hear_all(&mut self, now: Nanos) {
        self.beat = None;
        let seats: Vec<SeatId> = self.chairs.keys().copied().collect();
        for seat in seats {
            self.hear(now, seat);
        }
    }

    /// Hears a seat, and tells it that the arbiter is there.
    fn hear(&mut self, now: Nanos, seat: SeatId) {
        let Some(chair) = self.chairs.get(&seat) else {
            return;
        };
        let said = chair.page.said();
        if said.wishes {
            self.beat = self.beat.or(Some(now + BEAT));
        }
        self.turns.hear(seat, said);
        chair.page.beat(now);
    }
}

impl Chair {
    /// Lets the thread end that listens here.
    fn close(&self) {
        self.has_left.store(true, SeqCst);
        self.page.ring();
    }
}

fn wait<T>(waited: Result<T, PoisonError<T>>) -> T {
    waited.unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(run)
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
