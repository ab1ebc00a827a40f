//! The processes that asked for a seat of late, and got none through no fault of their user's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::clock::now;
use crate::schedule::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// The time for which a refusal is kept.
const KEPT: Nanos = 60 * SECOND;
/// No more are kept, the last ones.
const MOST: usize = 4096;

/// The refused processes, and when each asked.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<u32, Nanos>>);

impl Refusals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Nanos>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process got no seat, for this reason.
    pub(super) fn note(&self, pid: u32, why: Errno) {
        if is_excuse(why) {
            add(&mut self.all(), pid, now());
        }
    }

    /// Processes that got none of late.
    pub(super) fn refused(&self) -> BTreeSet<u32> {
        let mut all = self.all();
        forget(&mut all, now());
        all.keys().copied().collect()
    }
}

/// Whether this reason excuses a process that has no seat. A request that can never succeed is no excuse. Nor is
/// [`Errno::AGAIN`]: its user asked for too much. Its library asks again, and gets the seat if that is less.
fn is_excuse(why: Errno) -> bool {
    !matches!(why, Errno::INVAL | Errno::NOENT | Errno::AGAIN)
}

fn add(all: &mut BTreeMap<u32, Nanos>, pid: u32, now: Nanos) {
    all.insert(pid, now);
    if all.len() > MOST {
        forget(all, now);
    }
    if all.len() > MOST {
        let oldest = all.iter().min_by_key(|(_, at)| **at).map(|(&pid, _)| pid);
        oldest.map(|pid| all.remove(&pid));
    }
}

fn forget(all: &mut BTreeMap<u32, Nanos>, now: Nanos) {
    all.retain(|_, at| now - *at < KEPT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_in_vain_is_known_for_a_minute() {
        let mut noted = BTreeMap::new();
        add(&mut noted, 7, SECOND);
        add(&mut noted, 8, 50 * SECOND);
        forget(&mut noted, 62 * SECOND);
        assert_eq!(noted.keys().copied().collect::<Vec<_>>(), [8]);
        for pid in 0..2 * MOST as u32 {
            add(&mut noted, pid, 70 * SECOND + Nanos::from(pid));
        }
        assert_eq!(noted.len(), MOST);
        assert!(noted.contains_key(&(2 * MOST as u32 - 1)));
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
