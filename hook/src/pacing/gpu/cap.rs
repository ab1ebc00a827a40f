//! When a launch goes on. The cap on a job's time holds where nobody steers the GPU: without the monitor, in `softmig run`, on MIG
//! instances, where steering has no effect, and until that is measured.
//!
//! The GPU's time that the job's processes use is sampled ([`samples`](super::samples)) and charged to a word in the job's ledger
//! ([`Pace`]). A launch goes on while the word has credit, and while no more is in flight in all streams than the credit pays for. As
//! no launch is measured, that is reckoned with the time that launches took of late.
//!
//! Work on one GPU may wait for a launch that waits on another of the job's GPUs, as the kernels of NCCL do. So while a launch waits
//! for credit on a GPU that is idle, nothing is charged on the others: each GPU would pay for the other's wait, and wait for still
//! longer. Nothing is launched there either.
//!
//! In a pack of several users, jobs have turns ([`Pacing::Turn`]): launches of other jobs wait meanwhile, and little is in flight at
//! any time. Nothing is charged then. A client's channels cannot be held for that: where only one client of a server may run, often
//! nothing does (research/packs.md).
//!
//! What is in flight may wait for the launch that waits here. So a launch also goes on when nothing ended for much longer than it
//! should take, in any stream ([`Flight::patience`]). How long that is, is learned from the ends that are seen: of events behind some of the
//! launches, or when the GPU is idle. An end just after a launch that went on so teaches nothing: it may have waited for that.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::{Pacing, WHOLE};
use softmig_region::{GpuLedger, Pace, Rate};

use super::super::flight::{Flight, Flights, StreamEnd};
use super::samples::scattered;

/// Credit of a job that was idle, on the clock.
const BURST_NS: u64 = 20_000_000;
/// A job without credit goes on with this much of it, on the clock: the GPU then does not wait for each launch.
const RESUME_CREDIT_NS: u64 = 10_000_000;
/// Both are this much longer for a job that uses several GPUs: they begin and end a round together, within some milliseconds.
const LONGER: u64 = 4;
/// The most launches in flight beside which a stream may have more than one.
const MOST_LAUNCHES: u64 = 16;
/// The bounds of naps between two looks.
const SHORT_NAP_NS: u64 = 20_000;
const LONG_NAP_NS: u64 = 500_000;

/// What may be in flight in a job's turn, in GPU time: it is still there when the next turn begins.
const TURN_AHEAD_NS: u64 = 2_000_000;

/// What a launch may count on.
#[derive(Default)]
struct Room {
    /// For how much GPU time launches may be in flight; none may where it is `None`.
    time: Option<u64>,
    /// When that may be otherwise.
    again_in: Option<u64>,
    /// Whether the job waits on another of its GPUs.
    others_wait: bool,
    /// Whether another process of the job is at work, as far as that is known.
    is_job_at_work: bool,
}

impl Room {
    fn of(time: u64) -> Self {
        Self {
            time: Some(time),
            ..Self::default()
        }
    }
}

/// The cap on one GPU.
pub(super) struct Cap {
    pace: Pace<'static>,
    rate: Rate,
    uuid: CUuuid,
    /// Whether the credit was used up, and launches wait for [`RESUME_CREDIT_NS`].
    rests: AtomicBool,
    /// Whether launches were queued behind each other of late, so that the GPU does not wait for each.
    queues: AtomicBool,
    /// GPU time of late in nanoseconds, and the launches that ended in it, of which [`LAUNCH`] is one. Both fade alike.
    time: AtomicU64,
    launches: AtomicU64,
    /// What is in flight.
    pub(super) flights: Flights,
}

/// One launch in [`Cap::launches`].
const LAUNCH: u64 = 1 << 20;
/// The GPU time after which what was before counts for little.
const OF_LATE_NS: u64 = 16_000_000;

/// The wait of a launch.
pub(super) struct Wait {
    /// Since when, without what was only a wait for credit.
    since: u64,
    nap: u64,
    /// Whether it waits for what other streams have in flight.
    pub(super) waits_for_others: bool,
    /// Whether it went on although it had to wait.
    pub(super) has_overrun: bool,
}

impl Wait {
    pub(super) fn new(now: u64) -> Self {
        Self {
            since: now,
            nap: 0,
            waits_for_others: false,
            has_overrun: false,
        }
    }
}

impl Cap {
    /// For a share of [`WHOLE`].
    pub(super) fn new(gpu: GpuLedger<'static>, share: u32, uuid: CUuuid) -> Self {
        Self {
            pace: gpu.pace(),
            rate: Rate {
                share: share.clamp(1, WHOLE),
                burst: BURST_NS,
            },
            uuid,
            rests: AtomicBool::new(false),
            queues: AtomicBool::new(false),
            time: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            flights: Flights::default(),
        }
    }

    /// The UUID of the GPU.
    pub(super) fn uuid(&self) -> &CUuuid {
        &self.uuid
    }

    /// One look of a launch that waits. Returns how long it naps before the next, or `None` if it goes on.
    pub(super) fn look(
        &self,
        now: u64,
        pacing: Pacing,
        wait: &mut Wait,
        flight: &mut Flight,
        stream: &impl StreamEnd,
    ) -> Option<u64> {
        let room = match pacing {
            Pacing::OwnCap => self.paid(now),
            Pacing::Turn | Pacing::Free => Room::of(TURN_AHEAD_NS),
            Pacing::Waits => Room::default(),
        };
        let all = &self.flights;
        wait.waits_for_others = false;
        if let Some(time) = room.time {
            let waited = wait.nap > 0;
            if !self.has_room(flight, time) && flight.in_flight() > 0 && !stream.is_busy() {
                flight.end_all(now, all, waited);
                self.queues.store(waited, Ordering::Relaxed);
            }
            if self.has_room(flight, time) {
                flight.launch(now, all);
                return None;
            }
            self.queues.store(true, Ordering::Relaxed);
            wait.waits_for_others = all.count() > flight.in_flight();
        }
        // Of this process, or of another of the job.
        let is_at_work = all.count() > 0 || room.is_job_at_work;
        if is_at_work && !room.others_wait {
            flight.look(now, all, |event| stream.is_reached(event));
        } else {
            // Only time is missing, or the work has just begun.
            wait.since = now;
            all.go_on();
        }
        let since = wait.since.max(all.ended());
        if now.saturating_sub(since) > longer_by_some(flight.patience(all), since) {
            flight.overrun(now, all);
            wait.has_overrun = true;
            return None;
        }
        let doubled = wait.nap.saturating_mul(2);
        wait.nap = room.again_in.unwrap_or(doubled);
        wait.nap = wait.nap.clamp(SHORT_NAP_NS, LONG_NAP_NS);
        Some(wait.nap)
    }

    /// What the job's credit pays for.
    fn paid(&self, now: u64) -> Room {
        let credit = self.pace.credit(now, self.rate());
        let resume = self.in_rounds(RESUME_CREDIT_NS);
        let least = if self.rests() {
            resume.cast_signed()
        } else {
            1
        };
        let has_credit = credit >= least;
        self.rests.store(!has_credit, Ordering::Relaxed);
        if !has_credit && !self.pace.is_at_work(now) {
            self.pace.wait(now);
        }
        let others_wait = self.pace.others_wait(now);
        let may_launch = has_credit && !others_wait;
        let missing = resume.saturating_add_signed(credit.saturating_neg());
        Room {
            time: may_launch.then(|| self.rate.on_gpu(credit.unsigned_abs())),
            again_in: (!has_credit).then_some(missing),
            others_wait,
            is_job_at_work: self.pace.is_at_work(now),
        }
    }

    /// A time, or more for a job that uses several GPUs.
    fn in_rounds(&self, time: u64) -> u64 {
        if self.pace.have_others_waited() {
            time.saturating_mul(LONGER)
        } else {
            time
        }
    }

    fn rate(&self) -> Rate {
        Rate {
            burst: self.in_rounds(BURST_NS),
            ..self.rate
        }
    }

    /// Whether one more launch may be in flight: as many as fit into this GPU time, one at a time until it is known how long they take.
    fn has_room(&self, flight: &Flight, time: u64) -> bool {
        let paid = |each| time.checked_div(each).unwrap_or(0);
        let most = paid(self.launch_time()).max(1);
        let most = match flight.in_flight() {
            0 => most,
            _ => {
                let own = flight.expected().map_or(0, paid);
                most.min(own).min(MOST_LAUNCHES)
            }
        };
        self.flights.count() < most
    }

    /// Whether launches were queued behind each other of late, so that the GPU does not wait for each.
    pub(super) fn queues(&self) -> bool {
        self.queues.load(Ordering::Relaxed)
    }

    /// Whether launches wait for credit. The end of what is in flight is then near.
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    /// How long a launch took of late: longer than any, while nothing is known.
    fn launch_time(&self) -> u64 {
        let time = self.time.load(Ordering::Relaxed).saturating_mul(LAUNCH);
        let launches = self.launches.load(Ordering::Relaxed);
        time.checked_div(launches).unwrap_or(u64::MAX)
    }

    /// Charges the `time` before `now` in which the GPU worked for this process. In a time that nobody has seen, launches that ended
    /// count as long as those of late.
    pub(super) fn charge(&self, now: u64, time: u64, unseen: u64) {
        let ended = self.flights.take_new_ends();
        let expected = match self.launch_time() {
            u64::MAX => 0,
            each => ended.saturating_mul(each).min(unseen),
        };
        let charged = time.max(expected);
        // Also where that takes long: it may be the debt of a process that paused, and each GPU's debt would make the other's longer.
        if self.pace.others_wait(now) {
            return;
        }
        self.pace.charge(now, self.rate(), charged);
        if self.pace.credit(now, self.rate()) <= 0 {
            self.rests.store(true, Ordering::Relaxed);
        }
        if unseen == 0 {
            self.note_launches(time, ended);
        }
    }

    /// Where turns hold nothing is charged, and launches are only measured: the time in which the GPU worked for this process; `None` if
    /// that is not known.
    pub(super) fn learn(&self, time: Option<u64>) {
        let ended = self.flights.take_new_ends();
        if let Some(time) = time {
            self.note_launches(time, ended);
        }
    }

    /// So many launches ended in this time.
    fn note_launches(&self, time: u64, ended: u64) {
        let left = OF_LATE_NS.saturating_sub(time);
        let fade = |word: &AtomicU64, more: u64| {
            // Relaxed: one thread writes.
            let before = word.load(Ordering::Relaxed);
            let after = (before / OF_LATE_NS).saturating_mul(left);
            let after =
                after.saturating_add((before % OF_LATE_NS).saturating_mul(left) / OF_LATE_NS);
            word.store(after.saturating_add(more), Ordering::Relaxed);
        };
        fade(&self.time, time);
        fade(&self.launches, ended.saturating_mul(LAUNCH));
    }
}

/// Longer by up to a half, so that launches that go on are in no step with the ends of others: else those would seem to wait for
/// them.
fn longer_by_some(patience: u64, since: u64) -> u64 {
    let some = scattered(since).wrapping_mul(patience / 2) >> 32;
    patience.saturating_add(some)
}

#[cfg(test)]
#[path = "cap_tests.rs"]
mod tests;
