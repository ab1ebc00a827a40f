//! Launches where there are no turns: nothing is waited for, and nothing measured. From time to time it is seen whether there is
//! work.

use core::sync::atomic::{Ordering, fence};

use softmig_driver_sys::cuda::CUcontext;

use super::super::Stream;
use super::super::captures::Named;
use super::super::estimates::Key;
use super::super::streams::Place;
use super::{Gpu, Ticket, Watch};
use crate::account::pools::relaxed;
use crate::account::within;
use crate::os;

/// A stream that was not used for so long has no work any more.
const RECENTLY: u64 = 60_000_000_000;
/// One that cannot be asked has work for so long after it was used.
const UNSEEN: u64 = 50_000_000;
/// So many streams are asked, each for a fifth of a microsecond.
const MOST_SAMPLED: usize = 64;

impl Gpu {
    /// Lets a launch go on. Noted is which stream is used.
    #[inline]
    pub(super) fn admit_at_once(&'static self, stream: Stream, key: Key) -> Ticket {
        if let Some(place) = self.streams.place(stream, self.context()) {
            place.freshen();
        }
        if !self.turns.are_sampled() {
            // The thread that samples is seen to sleep, or sees that this one launched.
            fence(Ordering::SeqCst);
            self.turns.wake();
        }
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

    /// Tells the arbiter whether there is work now. Whether there is, or was launched since the last time.
    pub(super) fn sample(&self) -> bool {
        let is_fresh = self.take_fresh();
        let has_work = self.has_work();
        self.turns.tell_work(has_work);
        has_work || is_fresh
    }

    /// No launch is noted from here on without a wake. Whether one was that did not see this.
    pub(super) fn stop_sampling(&self) -> bool {
        /// Far longer than a processor takes to tell others what it wrote.
        const SEEN: u64 = 50_000;
        self.turns.set_sampled(false);
        os::nap(SEEN);
        self.take_fresh()
    }

    /// Whether anything was launched since the last sample.
    pub(super) fn is_fresh(&self) -> bool {
        self.streams.each().any(Place::is_fresh)
    }

    /// The same, and notes when.
    fn take_fresh(&self) -> bool {
        let now = os::nanoseconds();
        let fresh = self.streams.each().filter(|place| place.take_fresh());
        // Each is to be noted.
        fresh.map(|place| place.note(now)).count() > 0
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
