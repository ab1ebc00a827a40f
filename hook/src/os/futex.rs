//! A lock between the threads of one process, and words that processes wait for.

use core::ffi::c_long;
use core::sync::atomic::{AtomicU32, Ordering};

use super::clock::{milliseconds, span};
use super::sys;

/// A lock that is free when it is all zero. Across a call to the driver it is held only where others try it and go on.
pub(crate) struct Lock(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and another thread waits.
const WANTED: u32 = 2;

/// How often a thread looks again before it sleeps: others hold the lock for some ten instructions.
const LOOKS: usize = 100;

impl Lock {
    /// A free lock.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Holds the lock until what is returned is dropped.
    #[inline]
    pub(crate) fn hold(&self) -> Held<'_> {
        if !self.take(HELD) {
            self.wait();
        }
        Held(self)
    }

    /// The same if that takes at most `longest` milliseconds.
    #[cold]
    pub(crate) fn hold_within(&self, longest: u64) -> Option<Held<'_>> {
        if self.take(HELD) {
            return Some(Held(self));
        }
        let deadline = milliseconds().saturating_add(longest);
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            let left = deadline.saturating_sub(milliseconds());
            if left == 0 {
                return None;
            }
            let left = span(left.saturating_mul(1_000_000));
            self.sleep(Some(&left));
        }
        Some(Held(self))
    }

    /// The same if no other thread holds it.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<Held<'_>> {
        self.take(HELD).then(|| Held(self))
    }

    fn take(&self, as_what: u32) -> bool {
        let taken = self
            .0
            .compare_exchange(FREE, as_what, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            core::hint::spin_loop();
            if self.take(HELD) {
                return;
            }
        }
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            self.sleep(None);
        }
    }

    /// Waits until the lock is free, at most this long.
    fn sleep(&self, longest: Option<&libc::timespec>) {
        let _ = sys::futex_wait(&self.0, libc::FUTEX_PRIVATE_FLAG, WANTED, longest);
    }
}

/// The lock is held.
pub(crate) struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == WANTED {
            let _ = sys::futex_wake(&self.0.0, libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }
}

/// Waits while a word that processes share is `value`, for at most `longest` nanoseconds.
pub(crate) fn wait_until_changed(word: &AtomicU32, value: u32, longest: u64) {
    let _ = sys::futex_wait(word, 0, value, Some(&span(longest)));
}

/// Wakes all who wait for a word that processes share.
pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = sys::futex_wake(word, 0, c_long::from(i32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn who_waits_for_so_long_only_goes_without_it() {
        let lock = Lock::new();
        let held = lock.hold_within(0).unwrap();
        assert!(lock.hold_within(20).is_none());
        std::thread::scope(|scope| {
            let waits = || scope.spawn(|| lock.hold_within(10_000).is_some());
            let waiting = [waits(), waits(), waits()];
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(held);
            for one in waiting {
                assert!(one.join().unwrap());
            }
        });
        assert!(lock.try_hold().is_some());
    }

    #[test]
    fn one_thread_at_a_time_holds_it() {
        static LOCK: Lock = Lock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _held = LOCK.hold();
                        // Two steps, which lose counts unless the lock keeps other threads out.
                        let before = COUNT.load(Ordering::Relaxed);
                        COUNT.store(before.wrapping_add(1), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(COUNT.load(Ordering::Relaxed), 80_000);
    }
}
