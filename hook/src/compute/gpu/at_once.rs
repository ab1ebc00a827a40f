//! Launches where there are no turns: nothing is waited for, and nothing measured. From time to time it is seen whether there is
//! work.

use core::sync::atomic::Ordering;

use softmig_driver_sys::cuda::CUcontext;

use super::super::Stream;
use super::super::captures::Named;
use super::super::estimates::Key;
use super::super::streams::Place;
use super::{Gpu, Ticket, Watch};
use crate::account::pools::relaxed;
use crate::account::within;
use crate::arch;
use crate::os;

/// A stream that was not used for so long has no work any more.
const RECENTLY: u64 = 60_000_000_000;
/// One that cannot be asked has work for so long after it was used.
const UNSEEN: u64 = 50_000_000;
/// So many streams are asked, each for a fifth of a microsecond.
const MOST_SAMPLED: usize = 64;

impl Gpu {
    /// Lets a launch go on. Noted is which streams are used, and since when.
    pub(super) fn admit_at_once(&'static self, stream: Stream, key: Key) -> Ticket {
        let now = arch::ticks();
        // Relaxed: times and nothing else.
        self.last.store(now, Ordering::Relaxed);
        if let Some(place) = self.streams.place(stream, self.context()) {
            place.note(os::nanoseconds_at(now));
        }
        self.turns.wake();
        Ticket {
            gpu: self,
            place: None,
            stream,
            key,
            cost: 0,
            watch: Watch::Unneeded,
            stands_for: 1,
            is_sure: false,
        }
    }

    /// Tells the arbiter whether there is work now.
    pub(super) fn sample(&self) -> bool {
        let has_work = self.has_work();
        self.turns.tell_work(has_work);
        has_work
    }

    /// Whether any of the streams that this process used of late has work just now, as the driver says.
    fn has_work(&self) -> bool {
        let recently = os::nanoseconds().saturating_sub(RECENTLY);
        let places = self.streams.each();
        let places = places.filter(|place| !place.is_done() || place.since() > recently);
        let mut places = places.take(MOST_SAMPLED);
        // Who is at the events of a stream is at work there.
        places.any(|place| place.try_marks(|place, _| is_busy(place)).unwrap_or(true))
    }
}

/// Whether a place's stream has work. Another thread's own cannot be asked, nor one that captures.
fn is_busy(place: &Place) -> bool {
    let Some(stream) = place.stream() else {
        let age = os::nanoseconds().saturating_sub(place.since());
        return !place.is_done() || age < UNSEEN;
    };
    let context = place.context() as usize as CUcontext;
    // The default stream is the context's.
    within(context, || {
        let named = Named::of(place, stream);
        named.is_some_and(|_named| relaxed(|| stream.is_busy()))
    })
}
