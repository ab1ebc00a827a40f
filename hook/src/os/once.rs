//! A value that is found out once.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::os;

/// A value that is found out once: empty when all zero.
pub(crate) struct Once<T> {
    /// [`EMPTY`], [`READY`], or the process that is writing.
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

const EMPTY: u32 = 0;
/// No process has this number.
const READY: u32 = u32::MAX;

/// How long a value that is being kept is waited for, in milliseconds: longer than any thread that can run is kept from it. A
/// signal handler that came in the middle would wait for itself.
const PATIENCE: u64 = 10_000;
/// How often it is looked for meanwhile, in nanoseconds.
const LOOK_AGAIN: u64 = 20_000;

// SAFETY: `value` is written by the thread that put its process's number into `state`, and read only when `state` is
// READY, which is the last.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T: Copy> Once<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, once there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: what was written before READY is seen.
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: READY is the last state, so nobody writes any more.
        let value = unsafe { &*self.value.get() };
        // SAFETY: it was written before READY.
        Some(unsafe { value.assume_init_ref() })
    }

    /// The value that this thread or another has just kept. Who keeps it may have been interrupted in the middle, so this waits
    /// for some instructions of another thread's, and for ever only if they are never run: `None` after [`PATIENCE`].
    pub(crate) fn wait(&self) -> Option<&T> {
        wait_until_ready(&self.state, PATIENCE);
        self.get()
    }

    /// Keeps a value; true for the one that was first. Nobody waits here.
    pub(crate) fn keep(&self, value: T) -> bool {
        let us = os::process_id();
        // Relaxed: only the number counts here.
        let before = self.state.load(Ordering::Relaxed);
        // The child of a process that forked in the middle of it takes it over: the thread that wrote is not in it.
        if before == us || before == READY {
            return false;
        }
        let taken = self
            .state
            .compare_exchange(before, us, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        // SAFETY: this thread alone put the number there, and nobody reads before READY.
        unsafe { self.value.get().write(MaybeUninit::new(value)) };
        // Release: see `get`.
        self.state.store(READY, Ordering::Release);
        true
    }
}

fn wait_until_ready(state: &AtomicU32, patience: u64) {
    let _errno = os::Errno::save();
    let start = os::milliseconds();
    // Acquire: see `get`.
    while state.load(Ordering::Acquire) != READY
        && os::milliseconds().saturating_sub(start) < patience
    {
        os::nap(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_who_come_at_once_have_the_same_value() {
        const THREADS: usize = 8;
        for _ in 0..100 {
            let (once, start) = (Once::<[usize; 64]>::new(), Barrier::new(THREADS));
            let (once, start) = (&once, &start);
            let kept: Vec<usize> = std::thread::scope(|scope| {
                let come = |number| {
                    scope.spawn(move || {
                        start.wait();
                        once.keep([number; 64]);
                        once.wait().unwrap()[63]
                    })
                };
                let threads: Vec<_> = (0..THREADS).map(come).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert!(kept.iter().all(|number| *number == kept[0]), "{kept:?}");
        }
    }

    #[test]
    fn a_value_that_is_still_being_written_is_waited_for_but_not_for_ever() {
        let once = Once::<u32>::new();
        // As a thread leaves it that is interrupted before it writes.
        once.state.store(os::process_id(), Ordering::Relaxed);
        assert!(!once.keep(1));
        wait_until_ready(&once.state, 5);
        assert_eq!(once.get(), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| once.wait().copied());
            std::thread::sleep(std::time::Duration::from_millis(20));
            // It goes on.
            once.state.store(EMPTY, Ordering::Relaxed);
            assert!(once.keep(2));
            assert_eq!(waiting.join().unwrap(), Some(2));
        });
    }
}
