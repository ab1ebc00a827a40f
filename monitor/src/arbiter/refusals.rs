//! The processes that asked for a seat of late, and got none through no fault of their user's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::now;
use crate::schedule::Nanos;
use rustix::io::Errno;

const SECOND: Nanos = 1_000_000_000;
/// The time for which a refusal is kept.
const KEPT: Nanos = 60 * SECOND;
/// No more are kept, the last ones.
const MOST: usize = 4096;

/// The server's notes, for those that ask the arbiter.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The refused processes, and when each asked.
    refused: BTreeMap<u32, Nanos>,
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

    /// Processes that got none of late.
    pub(super) fn refused(&self) -> BTreeSet<u32> {
        let mut noted = self.noted();
        noted.forget(now());
        noted.refused.keys().copied().collect()
    }
}

/// Whether this reason excuses a process that has no seat. Neither what it can never have does, nor [`Errno::AGAIN`]: too much
/// that its own user asked for. Its library asks again, and gets the seat if it asks for no more than that.
fn is_excuse(why: Errno) -> bool {
    !matches!(why, Errno::INVAL | Errno::NOENT | Errno::AGAIN)
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
    fn who_has_himself_refused_has_no_excuse() {
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
        assert_eq!(refusals.refused(), [3, 4].into());
    }
}
