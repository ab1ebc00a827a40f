//! A lock in shared memory that its holder's death releases.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rustix::time::{ClockId, clock_gettime};

/// A robust mutex of the C library: when a thread that holds it dies, the kernel marks it, and the next one goes on.
#[repr(transparent)]
pub(crate) struct RobustLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be used from several threads; the cell is only handed to the C library's functions.
unsafe impl Sync for RobustLock {}

/// Held until dropped, by the thread that took it: the pointer keeps it from being sent to another.
pub(crate) struct Held<'a>(&'a RobustLock, PhantomData<*const ()>);

impl RobustLock {
    /// Makes a mutex of memory that is all zero. Called once, before another process can find it.
    pub(crate) fn make(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: the attributes are this function's own, and this initializes them.
        unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
        // SAFETY: they were initialized above.
        unsafe {
            libc::pthread_mutexattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            )
        };
        // SAFETY: they were initialized above.
        unsafe {
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST)
        };
        // SAFETY: this thread alone knows the mutex yet, and the attributes are initialized.
        unsafe { libc::pthread_mutex_init(self.0.get(), attributes.as_ptr()) };
        // SAFETY: they were initialized above, and are not used again.
        unsafe { libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) };
    }

    /// Waits for it. The process that is woken when it becomes free may be stopped, so the others look again.
    pub(crate) fn lock(&self) -> Held<'_> {
        loop {
            let soon = soon();
            // SAFETY: `make` was called before the file got its name, so this is an initialized mutex.
            match unsafe { libc::pthread_mutex_timedlock(self.0.get(), &raw const soon) } {
                libc::ETIMEDOUT => {}
                libc::EOWNERDEAD => {
                    // The guarded data needs no repair: no sums are kept (see layout.rs).
                    // SAFETY: this thread holds the mutex now, which the answer said.
                    unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                    break;
                }
                _ => break,
            }
        }
        Held(self, PhantomData)
    }
}

/// Ten milliseconds from now, by the clock of the C library's mutexes.
fn soon() -> libc::timespec {
    let now = clock_gettime(ClockId::Realtime);
    let nanoseconds = now.tv_nsec + 10_000_000;
    libc::timespec {
        tv_sec: now.tv_sec + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` got the mutex for this thread, and `Held` cannot leave it.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}
