//! A job on a GPU and its processes' seats.

use std::collections::BTreeMap;

use softmig_policy::node::limits::{Mode, Share};
use softmig_region::seat::STEP;

use super::credit::Account;
use super::part::Record;
use super::stand::Stand;
use super::types::{Nanos, Said, SeatId};

/// A job: all its processes at this GPU.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) account: Account,
    pub(super) seats: BTreeMap<SeatId, Seat>,
    /// Since when it is here.
    pub(super) since: Nanos,
    /// Since when it wants to launch; as of the last look.
    pub(super) wishes_since: Option<Nanos>,
    /// When its last turn began.
    pub(super) served: Nanos,
    /// How far behind its share it was then.
    pub(super) lag_before: Option<Nanos>,
    pub(super) turns: u64,
    /// How many turns it did not give back in time.
    pub(super) overruns: u64,
    /// How long its work ran on after the end of a turn, of late at most.
    pub(super) drain: Nanos,
    /// How its processes got on one after the other.
    pub(super) parts: Record,
    /// Its state at its other GPUs, if it is to have turns on all of them together.
    pub(super) elsewhere: Option<Stand>,
}

/// The state of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub(super) said: Said,
    /// The last word that it got, without what that said.
    last_word: u32,
    /// The last word that let the process into a turn that it has, or that it has not answered.
    ///
    /// The process launches no more in that turn once it has answered this word or a later one. An answer to an earlier
    /// word does not say that: the process wrote it before it saw this word, and goes on when it sees it.
    word: Option<u32>,
    /// Since when it is here.
    pub(super) since: Nanos,
    /// When it last had a part of a turn, if it had one.
    pub(super) served: Nanos,
    /// Its use when its turn ended.
    used_in_time: u64,
    late: Option<Late>,
    /// How often it was late since it last was in time.
    lapses: u32,
}

/// The state of a process that did not answer in time.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// When its turn ended.
    since: Nanos,
    /// When it gets another chance even without an answer.
    until: Nanos,
}

/// A process that does not answer gets no turn for this time. Each further time doubles it.
const UNRESPONSIVE_PENALTY: Nanos = 5_000_000_000;
/// The most times that it is doubled.
const MOST_DOUBLINGS: u32 = 4;

impl Seat {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// Notes what the page says. Tells how much GPU time was used since it was last read.
    pub(super) fn hear(&mut self, said: Said) -> Nanos {
        let used = said.used.saturating_sub(self.said.used);
        // Use that it tells of again is not charged again.
        let most = said.used.max(self.said.used);
        self.said = Said { used: most, ..said };
        if self.has_given_back() && !said.wishes && !self.is_late() {
            // It rests. When it wishes again it is let in again.
            self.word = None;
        }
        Nanos::try_from(used).unwrap_or(Nanos::MAX)
    }

    /// The next word for it, without what it says. They are counted up from its first, and none is 0.
    pub(super) fn next_word(&mut self) -> u32 {
        let next = self.last_word.wrapping_add(STEP);
        self.last_word = if next == 0 { STEP } else { next };
        self.last_word
    }

    /// It gets a word that opens the turn, or one more, and which.
    pub(super) fn open(&mut self) -> u32 {
        let word = self.next_word();
        self.word = Some(word);
        word
    }

    /// Whether it is in the turn, or was and has not answered.
    pub(super) fn is_in(&self) -> bool {
        self.word.is_some() && !self.has_given_back()
    }

    /// Whether it is done with the turn, but not with its work.
    pub(super) fn has_given_back(&self) -> bool {
        // Words are counted up and go round.
        let is_since = |word: u32| self.said.done.wrapping_sub(word) < u32::MAX / 2;
        self.word.is_some_and(is_since)
    }

    pub(super) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Whether it is late, or was and has not been in time since.
    pub(super) fn is_unreliable(&self) -> bool {
        self.is_late() || self.lapses > 0
    }

    pub(super) fn is_late_until(&self) -> Option<Nanos> {
        self.late.map(|late| late.until)
    }

    pub(super) fn wishes(&self) -> bool {
        self.said.wishes && !self.is_late()
    }

    /// Whether it wants to be let into the turn of its job.
    pub(super) fn is_left_out(&self) -> bool {
        self.word.is_none() && self.wishes()
    }

    /// Whether it has used up what it had in the turn of its job, and wants more.
    pub(super) fn wants_more(&self) -> bool {
        self.has_given_back() && self.wishes()
    }

    /// Its turn ends. Tells whether it was in it.
    pub(super) fn end(&mut self) -> bool {
        self.used_in_time = self.said.used;
        self.word.is_some() && !self.is_late()
    }

    /// Its turn, which ended then, is over, and it is free for the next. Tells how long its work ran on, as it says: a
    /// process that was stopped answers late, but had no work that one would have to wait for.
    fn close(&mut self, ended: Nanos, now: Nanos) -> Nanos {
        self.word = None;
        self.late = None;
        let used = self.said.used.saturating_sub(self.used_in_time);
        Nanos::try_from(used).map_or(now - ended, |used| used.min(now - ended))
    }

    /// Its use, and its lateness, no longer count.
    pub(super) fn set_free(&mut self) {
        self.word = None;
        self.late = None;
    }

    pub(super) fn be_late(&mut self, ended: Nanos, now: Nanos) {
        self.late = Some(Late {
            since: ended,
            until: now + (UNRESPONSIVE_PENALTY << self.lapses.min(MOST_DOUBLINGS)),
        });
        self.lapses = self.lapses.saturating_add(1);
    }

    /// When it gets another chance, if it wants one.
    pub(super) fn is_pardoned_at(&self) -> Option<Nanos> {
        let late = self.late.filter(|_| self.said.wishes)?;
        Some(late.until)
    }
}

impl Tenant {
    pub(super) fn new(now: Nanos, share: Share, mode: Mode) -> Self {
        Self {
            account: Account::new(now, share, mode, 0),
            seats: BTreeMap::new(),
            since: now,
            wishes_since: None,
            served: now,
            lag_before: None,
            turns: 0,
            overruns: 0,
            drain: 0,
            parts: Record::default(),
            elsewhere: None,
        }
    }

    pub(super) fn wishes(&self) -> bool {
        self.seats.values().any(Seat::wishes)
    }

    /// Whether its GPUs belong together, as a process says that takes part in turns. A process that does not answer is not
    /// asked, so it keeps no other waiting.
    pub(super) fn is_together(&self) -> bool {
        self.present().any(|seat| seat.said.together)
    }

    /// The seats that are part of turns.
    pub(super) fn present(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values().filter(|seat| !seat.is_late())
    }

    /// Whether its processes launch no more in this turn: each was not let in, or has answered. Their last work may still
    /// run, and late processes are not counted.
    pub(super) fn is_quiet(&self) -> bool {
        !self.present().any(Seat::is_in)
    }

    /// Remembers how long its work ran on; what happened long ago fades.
    pub(super) fn note_drain(&mut self, time: Nanos) {
        self.drain = time.max(self.drain - self.drain / 64);
    }

    /// Closes its turn, which ended at `ended`: a process that has not answered is late.
    pub(super) fn close(&mut self, ended: Nanos, now: Nanos) {
        let mut drain = 0;
        for seat in self.seats.values_mut().filter(|seat| !seat.is_late()) {
            if seat.is_in() {
                seat.be_late(ended, now);
            } else if seat.word.is_some() {
                seat.lapses = 0;
                drain = drain.max(seat.close(ended, now));
            }
        }
        self.note_drain(drain);
    }

    /// A late process is in time again once it has answered, or has waited for its whole penalty.
    pub(super) fn note_answers(&mut self, now: Nanos) {
        for seat in self.seats.values_mut() {
            let Some(late) = seat.late else { continue };
            if !seat.is_in() {
                self.drain = self.drain.max(seat.close(late.since, now));
            } else if seat.is_pardoned_at().is_some_and(|time| time <= now) {
                seat.close(late.since, now);
            }
        }
    }
}
