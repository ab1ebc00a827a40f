//! The processes that asked for a seat of late and got none. This also notes whether more processes come than can be
//! heard at once, since these may have asked too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::now;
use crate::schedule::Nanos;
use rustix::io::Errno;
use tracing::warn;

const SECOND: Nanos = 1_000_000_000;
/// The time for which a refusal is kept.
const KEPT: Nanos = 60 * SECOND;
/// No more are kept, the last ones.
const MOST: usize = 4096;
/// More connections in a second are a crowd: others may not be heard in time.
const CROWD: u32 = 128;
/// The time after a crowd in which a process may not have been heard.
const AFTER_CROWD: Nanos = 5 * SECOND;

/// How often a crowd is told of.
const TOLD_EVERY: Nanos = 60 * SECOND;

/// The server's notes, for those that ask the arbiter.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The refused processes, and when each asked.
    refused: BTreeMap<u32, Nanos>,
    /// When this second began, and how many connections came in it.
    second: (Nanos, u32),
    /// How many of them each user had.
    users: BTreeMap<u32, u32>,
    crowded_until: Nanos,
    /// When a crowd may be told of again.
    told_until: Nanos,
}

impl Refusals {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process got no seat, for this reason.
    pub(super) fn note(&self, pid: u32, why: Errno) {
        if is_excuse(why) {
            self.noted().refuse(pid, now());
        }
    }

    /// A process of this user connects.
    pub(super) fn count(&self, uid: u32) {
        let crowd = self.noted().count(uid, now());
        if let Some(uid) = crowd {
            warn!(
                "more than {CROWD} connections in a second, most of them of user {uid}: no process is ended now for work without a seat"
            );
        }
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

/// Whether a process that was refused for this reason may get a seat later. A process that asked for something it can never
/// have does not count as one that tried.
fn is_excuse(why: Errno) -> bool {
    !matches!(why, Errno::INVAL | Errno::NOENT)
}

impl Noted {
    fn refuse(&mut self, pid: u32, now: Nanos) {
        self.refused.insert(pid, now);
        if self.refused.len() > MOST {
            self.forget(now);
        }
        if self.refused.len() > MOST {
            let oldest = self
                .refused
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(&pid, _)| pid);
            oldest.map(|pid| self.refused.remove(&pid));
        }
    }

    fn forget(&mut self, now: Nanos) {
        self.refused.retain(|_, at| now - *at < KEPT);
    }

    /// Says of a crowd which user has most connections, if that is to be told.
    fn count(&mut self, uid: u32, now: Nanos) -> Option<u32> {
        if now - self.second.0 >= SECOND {
            self.second = (now, 0);
            self.users.clear();
        }
        self.second.1 += 1;
        *self.users.entry(uid).or_default() += 1;
        if self.second.1 <= CROWD {
            return None;
        }
        self.crowded_until = now + AFTER_CROWD;
        if now < self.told_until {
            return None;
        }
        self.told_until = now + TOLD_EVERY;
        let most = self.users.iter().max_by_key(|(_, count)| **count);
        most.map(|(&uid, _)| uid)
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
            assert_eq!(noted.count(2001, SECOND), None);
        }
        // The same number again, a second later.
        for _ in 0..CROWD {
            assert_eq!(noted.count(2001, 2 * SECOND), None);
        }
        assert_eq!(noted.crowded_until, 0);
        assert_eq!(noted.count(2002, 2 * SECOND + 1), Some(2001));
        assert_eq!(noted.crowded_until, 7 * SECOND + 1);
    }

    #[test]
    fn a_crowd_is_told_of_once_a_minute() {
        let mut noted = Noted::default();
        let connections = (0..2 * 60 * 200).map(|number| number * SECOND / 200 + SECOND);
        let told: Vec<_> = connections
            .filter_map(|now| noted.count(2001, now))
            .collect();
        assert_eq!(told, [2001, 2001]);
    }

    #[test]
    fn who_asks_for_what_it_cannot_have_has_no_excuse() {
        let refusals = Refusals::default();
        let reasons = [
            Errno::INVAL,
            Errno::NOENT,
            Errno::AGAIN,
            Errno::USERS,
            Errno::MFILE,
        ];
        for (pid, why) in (0..).zip(reasons) {
            refusals.note(pid, why);
        }
        assert_eq!(refusals.refused(), [2, 3, 4].into());
    }
}
