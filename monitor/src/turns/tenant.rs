//! A job on a GPU and its processes' seats.

use std::collections::BTreeMap;

use softmig_policy::limits::{Mode, Share};
use softmig_region::seat::STEP;

use super::account::Account;
use super::{Nanos, Said, SeatId};

/// A job, as all its processes.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) account: Account,
    pub(super) seats: BTreeMap<SeatId, Seat>,
    /// Since when it wants to launch; as of the last look.
    pub(super) wishes_since: Option<Nanos>,
    /// When its last turn began.
    pub(super) served: Nanos,
    pub(super) turns: u64,
    /// How many turns it did not give back in time.
    pub(super) overruns: u64,
    /// How long its work ran on after the end of a turn, of late at most.
    pub(super) drain: Nanos,
}

/// What is known of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub(super) said: Said,
    /// The word by which it had its last turn. An answer to that one or a later one says that it is over.
    word: Option<u32>,
    /// It was done with the turn and had nothing more to do.
    rested: bool,
    /// What it had used when the turn ended.
    used_in_time: u64,
    /// When the turn ended that it has not given back.
    pub(super) late_since: Option<Nanos>,
}

impl Seat {
    /// Notes what the page says. Tells how much GPU time was used since it was last read.
    pub(super) fn hear(&mut self, said: Said) -> Nanos {
        let used = said.used.saturating_sub(self.said.used);
        self.said = said;
        self.rested |= self.has_given_back() && !said.wishes;
        Nanos::try_from(used).unwrap_or(Nanos::MAX)
    }

    /// It gets a word that opens the turn, or one more.
    pub(super) fn open(&mut self, word: u32) {
        if self.word.is_none() || self.rested {
            self.word = Some(word);
            self.rested = false;
        }
    }

    /// Whether it has answered its last turn.
    pub(super) fn has_given_back(&self) -> bool {
        // Words are counted up and go round.
        let is_since = |word: u32| self.said.done.wrapping_sub(word) < u32::MAX / 2;
        self.word.is_some_and(|word| is_since(word & !(STEP - 1)))
    }

    /// Whether it can have nothing on the GPU: a process says that it wishes before it looks whose turn it is.
    pub(super) fn is_quiet(&self) -> bool {
        self.has_given_back() || !self.said.wishes
    }

    pub(super) fn is_late(&self) -> bool {
        self.late_since.is_some()
    }

    pub(super) fn wishes(&self) -> bool {
        self.said.wishes && !self.is_late()
    }

    /// Whether it has used its turn up.
    pub(super) fn is_done(&self) -> bool {
        self.has_given_back() && !self.rested
    }

    /// Whether it came after the turn began, or rested and wants to go on.
    pub(super) fn is_left_out(&self) -> bool {
        !self.is_late() && (self.word.is_none() || (self.rested && self.said.wishes))
    }

    /// Its turn ends.
    pub(super) fn end(&mut self) {
        self.used_in_time = self.said.used;
    }

    /// Its turn is over, and it is free for the next. Tells how long its work ran on after the end, as it says: a process
    /// that was stopped answers late, but had no work that one would have to wait for.
    pub(super) fn close(&mut self, ended: Nanos, now: Nanos) -> Nanos {
        self.word = None;
        self.rested = false;
        self.late_since = None;
        let used = self.said.used.saturating_sub(self.used_in_time);
        Nanos::try_from(used).map_or(now - ended, |used| used.min(now - ended))
    }
}

impl Tenant {
    pub(super) fn new(now: Nanos, share: Share, mode: Mode) -> Self {
        Self {
            account: Account::new(now, share, mode, 0),
            seats: BTreeMap::new(),
            wishes_since: None,
            served: now,
            turns: 0,
            overruns: 0,
            drain: 0,
        }
    }

    pub(super) fn wishes(&self) -> bool {
        self.seats.values().any(Seat::wishes)
    }

    /// The seats that are part of turns.
    pub(super) fn present(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values().filter(|seat| !seat.is_late())
    }

    /// Whether none of its work can be on the GPU any more, but for what is late anyway.
    pub(super) fn is_quiet(&self) -> bool {
        self.present().all(Seat::is_quiet)
    }

    /// Remembers how long its work ran on; what happened long ago fades.
    pub(super) fn note_drain(&mut self, time: Nanos) {
        self.drain = time.max(self.drain - self.drain / 64);
    }

    /// Its turn, which ended then, is over; who has not answered is late.
    pub(super) fn close(&mut self, ended: Nanos, now: Nanos) {
        let mut drain = 0;
        for seat in self.seats.values_mut().filter(|seat| !seat.is_late()) {
            if seat.is_quiet() {
                drain = drain.max(seat.close(ended, now));
            } else {
                seat.late_since = Some(ended);
            }
        }
        self.note_drain(drain);
    }

    /// Those who were late and have answered are in time again.
    pub(super) fn note_answers(&mut self, now: Nanos) {
        let mut drain = 0;
        for seat in self.seats.values_mut().filter(|seat| seat.is_quiet()) {
            if let Some(ended) = seat.late_since {
                drain = drain.max(seat.close(ended, now));
            }
        }
        self.drain = self.drain.max(drain);
    }
}
