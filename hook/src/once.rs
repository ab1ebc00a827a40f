//! A value that is found out once. Nobody ever waits for it.

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

    /// Keeps a value; true for the one that was first.
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
