//! The client of the node's arbiter, where there is one: this process's side of [`softmig_region::seat`].

#![expect(unsafe_code, reason = "maps the seat, which the arbiter shares")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_policy::node::identity::ProcessRules;
use softmig_policy::node::paths::ARBITER_SOCKET;
use softmig_region::seat::{ANSWER, Pacing, Request, Seat, Version};

use super::channels;
use crate::identity::message::Message;
use crate::identity::{gate, log, monitor};
use crate::os;
use crate::os::cells::{Kept, zeroed};

/// While this process has work, an arbiter that did not look for this long may be gone: the process checks whether it listens.
const SILENT_AFTER_NS: u64 = 50_000_000;
/// An arbiter that listens and does not look for this long counts as gone. The driver keeps it waiting for a second while many processes
/// end at the same moment (research/packs.md).
const GONE_AFTER_NS: u64 = 3_000_000_000;
/// How long a process in a pack waits until the arbiter has heard of its new channels.
const HEARD_AFTER_NS: u64 = 1_000_000_000;
/// Retry interval after a failed connection to the arbiter.
const RECONNECT_AFTER_NS: u64 = 200_000_000;

/// This process's seat; nothing is known while all is zero.
#[repr(C)]
pub(super) struct ArbiterClient {
    /// Null without an arbiter.
    seat: Kept<Seat>,
    /// When the arbiter may be asked again.
    ask_at: AtomicU64,
    /// How long that was after the last try, which was in vain; 0 after one that was not.
    backed_off: AtomicU64,
    /// Since when nothing was heard of it.
    silent_since: AtomicU64,
    /// Where the last seat is mapped; null before the first.
    page: Kept<Seat>,
    /// The version of this process's channels of which the arbiter did not hear in time; 0 for none.
    unheard: AtomicU32,
}

zeroed! { ArbiterClient { seat, ask_at, backed_off, silent_since, page, unheard } }

impl ArbiterClient {
    #[inline]
    fn seat(&self) -> Option<&'static Seat> {
        self.seat.get()
    }

    /// Asks for a seat, unless there is one, or that was in vain a moment ago.
    pub(super) fn join(&self, gpu: &CUuuid, now: u64) {
        let ask_at = self.ask_at.load(Ordering::Relaxed);
        if self.seat().is_some() || now < ask_at {
            return;
        }
        let mine = self.ask_at.compare_exchange(
            ask_at,
            now.saturating_add(RECONNECT_AFTER_NS),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_err() || !is_of_a_job() {
            return;
        }
        let Some(seat) = sit_down(gpu, self.page.get()) else {
            if ask_at == 0 {
                say_alone();
            }
            let took = os::nanoseconds().saturating_sub(now);
            let again = back_off(self.backed_off.load(Ordering::Relaxed), took);
            self.backed_off.store(again, Ordering::Relaxed);
            self.ask_at
                .store(os::nanoseconds().saturating_add(again), Ordering::Relaxed);
            return;
        };
        self.backed_off.store(0, Ordering::Relaxed);
        self.page.keep(seat);
        self.unheard.store(0, Ordering::Relaxed);
        self.silent_since.store(now, Ordering::Relaxed);
        self.seat.keep(seat);
        // Channels that are made from here on are told by the thread that makes them.
        self.tell_channels();
    }

    /// Tells the arbiter of this process's channels.
    pub(super) fn tell_channels(&self) {
        if let Some(seat) = self.seat() {
            channels::tell(seat);
            wake_arbiter(seat);
        }
    }

    /// Waits until the arbiter has heard of this process's channels, if it is in a pack: should it end with work of which nobody knows where
    /// that is, the others of the pack stand still meanwhile (research/packs.md).
    pub(super) fn wait_to_be_heard(&self, is_in_pack: impl FnOnce() -> bool) {
        let Some(seat) = self.seat() else { return };
        // Relaxed: counts and nothing else.
        let version = || seat.version().load(Ordering::Relaxed);
        let is_heard = |told| is_at(seat.heard().load(Ordering::Relaxed), told);
        let told = version();
        // A new seat has come in the place of this one where fewer were told.
        let is_over = || is_heard(told) || !is_at(version(), told);
        // Who waited in vain does so no more before that was heard of.
        let unheard = self.unheard.load(Ordering::Relaxed);
        if is_over() || unheard != 0 && !is_heard(unheard) || !is_in_pack() {
            return;
        }
        let start = os::nanoseconds();
        let waits = |most| {
            let mut pause = 100_000;
            while !is_over() && os::nanoseconds().saturating_sub(start) < most {
                os::nap(pause);
                pause = u64::saturating_mul(pause, 2).min(20_000_000);
            }
            is_over()
        };
        let is_over =
            waits(SILENT_AFTER_NS) || os::is_listening(ARBITER_SOCKET) && waits(HEARD_AFTER_NS);
        if !is_over && is_at(version(), told) {
            self.unheard.store(told, Ordering::Relaxed);
        }
    }

    /// How this process launches.
    #[inline]
    pub(super) fn pacing(&self) -> Pacing {
        self.seat().map_or(Pacing::OwnCap, Seat::pacing)
    }

    /// Tells whether there is work now, and for how long there was since it was told last.
    pub(super) fn tell_work(&self, now: u64, has_work: bool, worked: u64) {
        if let Some(seat) = self.seat() {
            seat.tell_work(now, has_work, worked);
        }
    }

    /// Tells the arbiter that this process has work. If nothing was heard of it for too long, the process is on its own again.
    pub(super) fn want(&self, now: u64) {
        let Some(seat) = self.seat() else { return };
        let beat = seat.heartbeat().load(Ordering::Relaxed);
        if seat.wants_gpu().swap(1, Ordering::SeqCst) == 0 {
            // It is silent while no process wants anything. One that did not look after the last time may be gone, however often
            // the process has work for a moment.
            if beat >= self.silent_since.load(Ordering::Relaxed) {
                self.silent_since.store(now, Ordering::Relaxed);
            }
            wake_arbiter(seat);
        }
        let heard = beat.max(self.silent_since.load(Ordering::Relaxed)).min(now);
        let silent = now.saturating_sub(heard);
        if !is_gone(silent, || os::is_listening(ARBITER_SOCKET)) {
            return;
        }
        // If the arbiter ever goes on, it must not wait for this process.
        seat.wants_gpu().store(0, Ordering::SeqCst);
        self.seat.forget();
        self.ask_at
            .store(now.saturating_add(RECONNECT_AFTER_NS), Ordering::Relaxed);
    }

    /// Tells the arbiter that this process has no work.
    pub(super) fn rest(&self) {
        if let Some(seat) = self.seat() {
            seat.wants_gpu().store(0, Ordering::SeqCst);
        }
    }
}

/// How long after a try that took so long there is another. An arbiter that does not answer is asked less and less often, until that is
/// a fiftieth of the time.
fn back_off(before_ns: u64, took_ns: u64) -> u64 {
    let most = took_ns.saturating_mul(50).max(RECONNECT_AFTER_NS);
    before_ns.saturating_mul(2).clamp(RECONNECT_AFTER_NS, most)
}

/// Whether this version of a process's channels is that one, or came after it.
fn is_at(version: u32, other: u32) -> bool {
    version.wrapping_sub(other).cast_signed() >= 0
}

/// Whether an arbiter counts as gone that did not look for so long while this process had work.
fn is_gone(silent_ns: u64, listens: impl FnOnce() -> bool) -> bool {
    silent_ns >= SILENT_AFTER_NS && (silent_ns >= GONE_AFTER_NS || !listens())
}

fn wake_arbiter(seat: &Seat) {
    seat.wakes().fetch_add(1, Ordering::SeqCst);
    os::wake_all(seat.wakes());
}

/// Whether a seat is for this process: the arbiter knows jobs alone.
fn is_of_a_job() -> bool {
    gate::with_finding(|finding| matches!(finding.standing, ProcessRules::Job(_)))
}

/// Says in the job's log that no arbiter answers.
fn say_alone() {
    gate::with_finding(|finding| log::say(finding, &Message::NoArbiter));
}

/// Asks the arbiter for this process's seat at a GPU.
fn sit_down(gpu: &CUuuid, last: Option<&'static Seat>) -> Option<&'static Seat> {
    let request = Request {
        version: Version::Cap,
        gpu: gpu.bytes.map(i8::cast_unsigned),
    };
    let file = monitor::ask(&request.to_bytes(), &mut [0; ANSWER]).ok()?;
    let file = file.filter(os::File::is_sealed)?;
    let is_large = file.status().is_ok_and(|status| status.size >= Seat::SIZE);
    if !is_large {
        return None;
    }
    page_of(&file, last)
}

/// Maps a seat's file, in the place of the last seat: threads may still look there.
fn page_of(file: &os::File, last: Option<&'static Seat>) -> Option<&'static Seat> {
    if let Some(last) = last {
        let place = NonNull::from(last).cast();
        // SAFETY: mapped below, and a seat is nothing but atomics.
        let mapped = unsafe { os::map_over(place, file, Seat::SIZE) };
        return mapped.is_ok().then_some(last);
    }
    let start = os::map_shared(file, Seat::SIZE).ok()?;
    // SAFETY: mapped and never given back, and sealed, so it cannot become shorter.
    unsafe { Seat::at(start.as_ptr()) }
}

/// A seat at which no arbiter looks.
#[cfg(test)]
pub(super) fn seat_of_test() -> &'static Seat {
    let start = os::map(Seat::SIZE).unwrap();
    // SAFETY: mapped, and never given back.
    unsafe { Seat::at(start.as_ptr()) }.unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cells::Fresh;

    const MS: u64 = 1_000_000;

    /// Has work for a moment in each of so many 10 ms. Returns whether there is an arbiter still, which looks if it `lives`.
    fn keeps_its_arbiter(times: u64, lives: bool) -> bool {
        let (client, _) = Fresh::<ArbiterClient>::zeroed().unwrap();
        let client = client.leaked();
        let seat = seat_of_test();
        client.seat.keep(seat);
        client.silent_since.store(1, Ordering::Relaxed);
        seat.heartbeat().store(1, Ordering::Relaxed);
        for number in 1..=times {
            let now = number * 10 * MS;
            client.want(now);
            if lives {
                seat.heartbeat().store(now, Ordering::Relaxed);
            }
            client.rest();
        }
        client.seat().is_some()
    }

    #[test]
    fn an_arbiter_that_is_gone_is_noticed_by_a_process_that_rests_again_and_again() {
        assert!(keeps_its_arbiter(4, false));
        assert!(!keeps_its_arbiter(10, false));
        assert!(keeps_its_arbiter(100, true));
    }

    #[test]
    fn a_process_in_a_pack_waits_until_its_channels_were_heard_of() {
        let (client, _) = Fresh::<ArbiterClient>::zeroed().unwrap();
        let client = client.leaked();
        let seat = seat_of_test();
        client.seat.keep(seat);
        // Nobody listens here, and that is soon seen.
        let heard_and_unheard = |is_in_pack| {
            client.wait_to_be_heard(|| is_in_pack);
            [seat.heard(), &client.unheard].map(|it| it.load(Ordering::Relaxed))
        };
        assert_eq!(heard_and_unheard(true), [0, 0], "it has told of none");
        seat.tell_channels([].into_iter());
        assert_eq!(heard_and_unheard(false), [0, 0]);
        let hears = std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            // Those of the next were heard of at the same time.
            seat.tell_channels([].into_iter());
            seat.heard().store(2, Ordering::Relaxed);
        });
        // Where the machine is too busy it gives up before.
        assert!(matches!(heard_and_unheard(true), [2, 0] | [_, 1]));
        hears.join().unwrap();
        seat.tell_channels([].into_iter());
        assert_eq!(heard_and_unheard(true), [2, 3], "it is gone");
        seat.tell_channels([].into_iter());
        assert_eq!(heard_and_unheard(true), [2, 3], "it is not waited for");
    }

    #[test]
    fn an_arbiter_that_does_not_answer_is_asked_less_and_less_often() {
        let after = |before: u64, took: u64| back_off(before * MS, took * MS) / MS;
        assert_eq!(
            [after(0, 200), after(200, 200), after(400, 200)],
            [200, 400, 800]
        );
        assert_eq!(after(9_000, 200), 10_000);
        // One that refuses does not take long, and neither does one that is not there.
        assert_eq!([after(0, 0), after(200, 0)], [200, 200]);
    }

    #[test]
    fn an_arbiter_whom_the_driver_keeps_waiting_is_not_gone() {
        assert!(!is_gone(1_000 * MS, || true));
        assert!(is_gone(60 * MS, || false));
        assert!(is_gone(10_000 * MS, || true));
    }
}
