//! Streams that are captured: what they are given becomes a graph, and a call of ours that names one may spoil that.
//!
//! A thread that marks or asks the streams of others could do so in the moment in which one of them begins to be captured. So
//! such calls are counted, and what makes a stream part of a capture waits until there are none.

use core::sync::atomic::{AtomicU32, Ordering};

use super::Stream;
use crate::os::{self, Errno};

/// How many streams are captured.
static CAPTURES: AtomicU32 = AtomicU32::new(0);
/// How many threads are in a call of the program's that may make a stream part of a capture.
static BEGINNING: AtomicU32 = AtomicU32::new(0);
/// How many are in a call of ours that names a stream.
static NAMING: AtomicU32 = AtomicU32::new(0);

/// Whether any stream may be captured, so that each has to be asked.
#[inline]
pub(crate) fn are_any() -> bool {
    // Relaxed: who captures a stream and who uses it have to know of each other.
    CAPTURES.load(Ordering::Relaxed) != 0
}

/// A stream that is not captured, nor about to be as long as this is not dropped.
pub(super) struct Named;

impl Named {
    /// `None` if it is, or if another thread begins to capture just now.
    #[inline(never)]
    pub(super) fn of(stream: Stream) -> Option<Self> {
        // SeqCst: who begins sees this, or this sees who begins.
        NAMING.fetch_add(1, Ordering::SeqCst);
        let named = Self;
        let is_free = BEGINNING.load(Ordering::SeqCst) == 0 && !stream.is_capturing();
        is_free.then_some(named)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        NAMING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Before a call that begins to capture a stream, or lets another stream join.
pub(crate) fn begins() {
    /// How many pauses others' calls are waited for: each takes as long as an event. One that hangs is not to keep the
    /// program.
    const PAUSES: usize = 10_000;
    const PAUSE: u64 = 10_000;
    let _errno = Errno::save();
    BEGINNING.fetch_add(1, Ordering::SeqCst);
    for _ in 0..PAUSES {
        if NAMING.load(Ordering::SeqCst) == 0 {
            return;
        }
        os::nap(PAUSE);
    }
}

/// After that call: whether one more stream is captured.
pub(crate) fn has_begun(is_one_more: bool) {
    if is_one_more {
        CAPTURES.fetch_add(1, Ordering::SeqCst);
    }
    BEGINNING.fetch_sub(1, Ordering::SeqCst);
}

/// A capture has ended.
pub(crate) fn ended() {
    // One that began in a parent process ends here without having begun.
    let less = |count: u32| Some(count.saturating_sub(1));
    let _ = CAPTURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}
