//! Streams that are captured: what they are given becomes a graph, and a call of ours that names one may spoil that.
//!
//! A thread that marks or asks the streams of others could do so in the moment in which one of them begins to be captured. So
//! such calls are counted, and what makes a stream part of a capture waits until there are none.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::streams::StreamSlot;
use crate::driver::stream::Stream;
use crate::os::{self, Errno};

/// How many streams are captured.
static CAPTURES: AtomicU32 = AtomicU32::new(0);
/// How many threads are in a call of the program's that may make a stream part of a capture.
static BEGINNING: AtomicU32 = AtomicU32::new(0);
/// How many are in a call of ours that names a stream of the program's.
static NAMING: AtomicU32 = AtomicU32::new(0);
/// Whether such calls were waited for in vain.
static HANGS: AtomicBool = AtomicBool::new(false);

/// Whether any stream may be captured, so that each has to be asked.
#[inline]
pub(crate) fn are_any() -> bool {
    // Relaxed: the program itself orders a capture of a stream and its use by other threads.
    CAPTURES.load(Ordering::Relaxed) != 0
}

/// A stream that is there and not captured, nor about to end or be captured as long as this is not dropped.
pub(super) struct StreamGuard;

impl StreamGuard {
    /// The stream of a slot; `None` if it has none any more, or it is captured, or another thread begins to capture just now.
    #[inline(never)]
    pub(super) fn acquire(slot: &StreamSlot, stream: Stream) -> Option<Self> {
        // SeqCst: a thread that begins a capture or ends a stream sees this, or this sees what that thread did.
        NAMING.fetch_add(1, Ordering::SeqCst);
        let guard = Self;
        let is_free = BEGINNING.load(Ordering::SeqCst) == 0 && slot.is_of(stream);
        (is_free && !stream.is_capturing()).then_some(guard)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        NAMING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Before a call that begins to capture a stream, or lets another stream join.
pub(crate) fn begins() {
    BEGINNING.fetch_add(1, Ordering::SeqCst);
    wait_for_others();
}

/// Waits until no call of ours names a stream that was to be had when it began: each takes as long as an event, and longer where the
/// processors are busy and its thread does not run. One that hangs is not to keep the program.
pub(super) fn wait_for_others() {
    const MAX_WAIT_NS: u64 = 2_000_000_000;
    const LOOK_EVERY_NS: u64 = 10_000;
    let _errno = Errno::save();
    let begun = os::nanoseconds();
    loop {
        if NAMING.load(Ordering::SeqCst) == 0 {
            HANGS.store(false, Ordering::Relaxed);
            return;
        }
        let time = os::nanoseconds().saturating_sub(begun);
        if HANGS.load(Ordering::Relaxed) || time > MAX_WAIT_NS {
            HANGS.store(true, Ordering::Relaxed);
            return;
        }
        os::nap(LOOK_EVERY_NS);
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
