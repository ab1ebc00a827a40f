//! What is known of a GPU's turns and seats at one time, and what is done then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::bell::Bell;
use super::gpu::{Member, Tenant, now};
use super::jobs::Guest;
use super::others::Others;
use super::page::Page;
use crate::turns::{Job, Nanos, Rules, SeatId, Turns};

/// How often processes that wait are told that the arbiter is there. Where they hear nothing for twice as long, they see
/// whether it listens.
const BEAT: Nanos = 25_000_000;
/// So often everybody is heard while there are seats where nobody listens, and so much more seldom for each: to hear all of
/// them, and to tell all of them what follows, takes a small part of that.
const SOON: Nanos = 1_000_000;
const SOON_EACH: Nanos = 20_000;
/// A process that answers faster than it can be told is not waited for: others are to come to their looks.
const MOST_LOOKS: u32 = 8;
const PAUSE: Nanos = 100_000;

/// A GPU's turns and who sits there.
#[derive(Debug)]
pub(super) struct Round {
    turns: Turns,
    others: Others,
    chairs: BTreeMap<SeatId, Arc<Chair>>,
    /// When to look again.
    pub(super) next: Option<Nanos>,
    /// When the clock's thread will.
    pub(super) clock: Option<Nanos>,
    /// When everybody is heard, and told that the arbiter is there, if that is not before.
    beat: Option<Nanos>,
    /// Until when there are seats where nobody listens.
    deaf: Nanos,
    pub(super) is_over: bool,
}

/// A process's seat.
#[derive(Debug)]
pub(super) struct Chair {
    pub(super) page: Page,
    pid: u32,
    has_left: AtomicBool,
    /// Its job's.
    bell: Arc<Bell>,
    /// Counts it, as long as a thread listens here.
    _count: Arc<()>,
}

impl Round {
    pub(super) fn new(rules: Rules, others: Others) -> Self {
        Self {
            turns: Turns::new(now(), rules),
            others,
            chairs: BTreeMap::new(),
            next: None,
            clock: None,
            beat: None,
            deaf: 0,
            is_over: false,
        }
    }

    /// A process comes; `None` if all is over.
    pub(super) fn sit(
        &mut self,
        guest: Guest,
        page: Page,
        pid: u32,
        count: &Arc<()>,
    ) -> Option<(SeatId, Arc<Chair>)> {
        let Guest { job, share, mode } = guest;
        if self.is_over {
            return None;
        }
        page.beat(now());
        let chair = Arc::new(Chair {
            page,
            pid,
            has_left: AtomicBool::new(false),
            bell: self.bell(job),
            _count: Arc::clone(count),
        });
        let seat = self.turns.sit(now(), job, share, mode);
        self.chairs.insert(seat, Arc::clone(&chair));
        Some((seat, chair))
    }

    /// A process has gone.
    pub(super) fn leave(&mut self, seat: SeatId) {
        self.turns.leave(now(), seat);
        if let Some(chair) = self.chairs.remove(&seat) {
            chair.close();
        }
    }

    /// The arbiter ends.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        for chair in std::mem::take(&mut self.chairs).into_values() {
            chair.close();
        }
    }

    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let now = now();
        let until = |time: Nanos| Duration::from_nanos(u64::try_from(time - now).unwrap_or(0));
        let member = |(&seat, chair): (&SeatId, &Arc<Chair>)| Member {
            pid: chair.pid,
            launches_without_turn: chair.page.overruns(),
            shut_out_for: self.turns.is_late_until(seat).map(until),
        };
        let of = |job| self.chairs.iter().filter(move |(seat, _)| seat.job == job);
        let tenants = self.turns.standings().map(|standing| Tenant {
            standing,
            known_for: Duration::from_nanos(u64::try_from(now - standing.since).unwrap_or(0)),
            members: of(standing.job).map(member).collect(),
        });
        tenants.collect()
    }

    /// The bell of a job, whose seats share it.
    fn bell(&self, job: Job) -> Arc<Bell> {
        let mut chairs = self.chairs.iter();
        let other = chairs.find(|(seat, _)| seat.job == job);
        other.map_or_else(Arc::default, |(_, chair)| Arc::clone(&chair.bell))
    }

    /// Hears the seat that rang, or everybody, and does what is to be done. Tells when to look again, if it is known.
    pub(super) fn look(&mut self, mut rang: Option<SeatId>) -> Option<Nanos> {
        for _ in 0..MOST_LOOKS {
            let time = now();
            match rang.take() {
                Some(seat) => self.hear(time, seat),
                None => self.hear_all(time),
            }
            self.others.hear(time, &mut self.turns);
            let look = self.turns.look(time);
            self.others.tell(&self.turns);
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

    /// Nobody listens at a seat for so long. Tells when it will be heard all the same.
    pub(super) fn look_soon(&mut self, wait: Duration) -> Nanos {
        let now = now();
        let wait = Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX);
        self.deaf = self.deaf.max(now.saturating_add(wait));
        let soon = self.soon(now);
        self.beat = self.beat.into_iter().chain([soon]).min();
        self.next = self.next.into_iter().chain([soon]).min();
        soon
    }

    /// When to hear those at whom nobody listens.
    fn soon(&self, now: Nanos) -> Nanos {
        let seats = Nanos::try_from(self.chairs.len()).unwrap_or(Nanos::MAX);
        now + SOON
            .saturating_add(SOON_EACH.saturating_mul(seats))
            .min(BEAT)
    }

    fn hear_all(&mut self, now: Nanos) {
        self.beat = (now < self.deaf).then(|| self.soon(now));
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
    /// Its bell was rung. Tells for how long nobody is to listen here.
    pub(super) fn ring(&self) -> Duration {
        self.bell.ring(now(), Arc::strong_count(&self.bell))
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(SeqCst)
    }

    /// Lets the thread end that listens here.
    fn close(&self) {
        self.has_left.store(true, SeqCst);
        self.page.ring();
    }
}
