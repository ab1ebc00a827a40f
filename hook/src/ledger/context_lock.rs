//! One thread at a time makes or ends a GPU's primary context.
//!
//! Threads of a program often ask for the context at the same time, and there will be one. Without this lock each
//! thread would be charged for one, or a thread would meet a context that another has just made and that is not in the
//! ledger yet. The lock makes no thread wait longer, since the driver makes them wait too.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::os::cells::zeroed;
use crate::os::{self, Errno, Held, Lock};

/// The thread that makes or ends it; none when all zero, as in the child of a fork.
pub(crate) struct ContextLock {
    lock: Lock,
    /// The thread that has the lock; 0 for none.
    thread: AtomicU64,
}

zeroed! { ContextLock { lock, thread } }

impl ContextLock {
    pub(crate) const fn new() -> Self {
        Self {
            lock: Lock::new(),
            thread: AtomicU64::new(0),
        }
    }

    /// Keeps others out until what is returned is dropped, though not for ever: a thread that never comes back, or one that waits
    /// for this one in a tool's callback, would be waited for in vain. `None` where this thread does already: tools have the
    /// driver call them while it makes a context, and call it in turn.
    pub(crate) fn lock(&self) -> Option<ContextGuard<'_>> {
        let _errno = Errno::save();
        let us = os::thread_id();
        // Relaxed: no other thread stores our number.
        if self.thread.load(Ordering::Relaxed) == us {
            return None;
        }
        let held = self.lock.hold_within(PATIENCE);
        if held.is_some() {
            self.thread.store(us, Ordering::Relaxed);
        }
        Some(ContextGuard {
            context: self,
            held,
        })
    }
}

/// This thread makes or ends it already.
pub(crate) struct AlreadyLocked;

/// How long another thread is waited for, in milliseconds: longer than the driver takes to make a context.
const PATIENCE: u64 = 10_000;

/// This thread is the one, or has waited long enough. Dropping it lets others.
pub(crate) struct ContextGuard<'a> {
    context: &'a ContextLock,
    held: Option<Held<'a>>,
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        if self.held.is_some() {
            // Before the lock is free.
            self.context.thread.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_comes_again_goes_on_and_another_waits() {
        let lock = ContextLock::new();
        let guard = lock.lock().unwrap();
        assert!(lock.lock().is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.lock().is_some());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished());
            drop(guard);
            assert!(other.join().unwrap());
        });
        assert!(lock.lock().is_some());
    }
}
