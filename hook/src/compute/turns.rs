//! Turns on the GPU that the node's arbiter gives, where there is one.

use core::sync::atomic::{AtomicU32, Ordering};

/// What the arbiter says; none while all is zero.
pub(super) struct Turns {
    word: AtomicU32,
}

impl Turns {
    /// Whether the turn that launches go on in is still this process's.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        self.word.load(Ordering::SeqCst) == 0
    }

    /// Tells the arbiter.
    pub(super) fn used(&self, _used: u64) {}

    /// What may still be used in this turn; `None` without an arbiter.
    pub(super) fn left(&self, _used: u64) -> Option<u64> {
        None
    }
}
