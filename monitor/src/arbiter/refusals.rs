//! Who asked for a seat of late and got none, and whether more processes come than can be heard at once: of these nobody can
//! say that they did not ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::now;
use crate::schedule::turns::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// So long it is kept who got none.
const KEPT: Nanos = 60 * SECOND;
/// No more are kept, the last ones.
const MOST: usize = 4096;
/// More connections in a second are a crowd: others may not be heard in time.
const CROWD: u32 = 128;
/// So long after a crowd it may be that a process was not heard.
const AFTER_CROWD: Nanos = 5 * SECOND;

/// What the server notes, for who asks the arbiter.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// By process.
    refused: BTreeMap<u32, Nanos>,
    /// When this second began, and how many connections came in it.
    second: (Nanos, u32),
    crowded_until: Nanos,
}

impl Refusals {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process got no seat.
    pub(super) fn note(&self, pid: u32) {
        self.noted().refuse(pid, now());
    }

    /// A process connects.
    pub(super) fn count(&self) {
        self.noted().count(now());
    }

    /// Processes that got none of late.
    pub(super) fn refused(&self) -> BTreeSet<u32> {
        let mut noted = self.noted();
        noted.forget(now());
        noted.refused.keys().copied().collect()
    }

    /// Whether there is or was a crowd.
    pub(super) fn is_crowded(&self) -> bool {
        now() < self.noted().crowded_until
    }
}

impl Noted {
    fn refuse(&mut self, pid: u32, now: Nanos) {
        self.refused.insert(pid, now);
        if self.refused.len() > MOST {
            self.forget(now);
        }
        if self.refused.len() > MOST {
            let oldest = self.refused.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.map(|(&pid, _)| pid);
            oldest.map(|pid| self.refused.remove(&pid));
        }
    }

    fn forget(&mut self, now: Nanos) {
        self.refused.retain(|_, at| now - *at < KEPT);
    }

    fn count(&mut self, now: Nanos) {
        if now - self.second.0 >= SECOND {
            self.second = (now, 0);
        }
        self.second.1 += 1;
        if self.second.1 > CROWD {
            self.crowded_until = now + AFTER_CROWD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_in_vain_is_known_for_a_minute() {
        let mut noted = Noted::default();
        noted.refuse(7, SECOND);
        noted.refuse(8, 50 * SECOND);
        noted.forget(62 * SECOND);
        assert_eq!(noted.refused.keys().copied().collect::<Vec<_>>(), [8]);
        for pid in 0..2 * MOST as u32 {
            noted.refuse(pid, 70 * SECOND + Nanos::from(pid));
        }
        assert_eq!(noted.refused.len(), MOST);
        assert!(noted.refused.contains_key(&(2 * MOST as u32 - 1)));
    }

    #[test]
    fn more_than_can_be_heard_are_a_crowd_for_a_while() {
        let mut noted = Noted::default();
        for _ in 0..CROWD {
            noted.count(SECOND);
        }
        // The same number again, a second later.
        for _ in 0..CROWD {
            noted.count(2 * SECOND);
        }
        assert_eq!(noted.crowded_until, 0);
        noted.count(2 * SECOND + 1);
        assert_eq!(noted.crowded_until, 7 * SECOND + 1);
    }
}
