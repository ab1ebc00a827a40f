//! Wakes the thread that looks after a GPU, when it is time or when another GPU calls.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::now;
use crate::schedule::Nanos;

/// The alarm of one thread.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    set: Mutex<Set>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Set {
    due: Option<Nanos>,
    is_called: bool,
    is_over: bool,
}

/// Why it rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    /// It is time.
    Due,
    /// Another GPU calls.
    Called,
}

impl Alarm {
    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Set)) {
        change(&mut self.set());
        self.changed.notify_all();
    }

    /// Rings at this time, unless it does so earlier.
    pub(super) fn ring_by(&self, time: Nanos) {
        let mut set = self.set();
        if set.due.is_none_or(|due| time < due) {
            set.due = Some(time);
            drop(set);
            self.changed.notify_all();
        }
    }

    /// Rings now, for another GPU.
    pub(super) fn call(&self) {
        self.change(|set| set.is_called = true);
    }

    /// Rings no more.
    pub(super) fn end(&self) {
        self.change(|set| set.is_over = true);
    }

    /// Waits until it rings, and stops it; `None` at the end.
    pub(super) fn wait(&self) -> Option<Ring> {
        let mut set = self.set();
        loop {
            if set.is_over {
                return None;
            }
            if std::mem::take(&mut set.is_called) {
                return Some(Ring::Called);
            }
            set = match set.due.map(|due| due - now()) {
                None => self
                    .changed
                    .wait(set)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(time) if time > 0 => {
                    let time = Duration::from_nanos(time.unsigned_abs());
                    let waited = self.changed.wait_timeout(set, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    set.due = None;
                    return Some(Ring::Due);
                }
            };
        }
    }
}
