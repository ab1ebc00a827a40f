//! Calls that take or give back memory, counted while they are under way.

use core::sync::atomic::{AtomicU64, Ordering};

/// Counts a call under way that takes or gives back memory, until it is dropped: meanwhile account and driver may differ, and
/// nothing is taken to be less than it was known to be.
pub(crate) struct CallGuard(&'static AtomicU64);

/// In [`super::state::GpuState::busy`]: one call more that began.
const BEGUN: u64 = 1 << 32;

impl CallGuard {
    /// Counts one in [`super::state::GpuState::busy`].
    #[inline]
    pub(super) fn begin(count: &'static AtomicU64) -> Self {
        // SeqCst: a thread that reads the count after the driver's figure sees this, or the figure is without this call.
        count.fetch_add(BEGUN | 1, Ordering::SeqCst);
        Self(count)
    }

    /// Calls `wait` while this call does not count: it has taken nothing, and asks nothing of the driver.
    pub(super) fn pause<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.0.fetch_sub(1, Ordering::SeqCst);
        let returned = wait();
        self.0.fetch_add(BEGUN | 1, Ordering::SeqCst);
        returned
    }
}

impl Drop for CallGuard {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The calls that take or give back memory, at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Calls(u64);

impl Calls {
    /// The calls at this moment.
    pub(super) fn read(count: &AtomicU64) -> Self {
        Self(count.load(Ordering::SeqCst))
    }

    /// Whether there is one at most.
    pub(crate) fn is_alone(self) -> bool {
        self.0 % BEGUN <= 1
    }
}
