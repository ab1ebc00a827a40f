//! The cap that a job keeps alone, without an arbiter, by the word in its ledger that all its processes share.
//!
//! If work of one of the job's GPUs was seen to wait for another's, they begin together: the debt of one keeps the
//! others waiting too. Otherwise work that spins for a waiting GPU would bring its own GPU into debt, and that one the
//! next.

use core::sync::atomic::{AtomicBool, Ordering};

use softmig_driver_sys::cuda::CUuuid;
use softmig_region::seat::WHOLE;
use softmig_region::{GpuLedger, Pace, Rate};

use super::coscheduling::Coscheduling;
use super::work::Admission;

/// Credit of a job that was idle, on the clock.
const BURST_NS: u64 = 20_000_000;
/// A job that waits goes on with this much credit on the clock. Its turns are long, so that the GPU does not wait for each
/// launch.
const RESUME_CREDIT_NS: u64 = BURST_NS / 2;
/// Length of a turn on the clock and on the GPU, where GPUs begin together: each turn ends with a GPU that waits for another.
const LONG_TURN_NS: u64 = 40_000_000;
const LONG_TURN_GPU_NS: u64 = 10_000_000;
/// How much longer a GPU may go on than another that has to keep up with it, in its own time.
const MAX_LEAD_NS: u64 = 80_000_000;
/// A GPU stops when another owes this much on the clock.
const OTHERS_DEBT_NS: i64 = -200_000_000;

/// The largest debt on the clock by launches that go on although they should wait.
const MAX_DEBT_NS: i64 = 5_000_000_000;

/// The longest wait on the clock for what is in flight.
const MAX_WAIT_NS: u64 = 100_000_000;

/// The cap on one GPU.
pub(super) struct JobCap {
    pace: Pace<'static>,
    rate: Rate,
    uuid: CUuuid,
    /// Whether its turn is over, and it waits for [`RESUME_CREDIT_NS`].
    rests: AtomicBool,
    /// Launches beyond the cap, for which another GPU waits.
    pub(super) coscheduling: Coscheduling,
}

impl JobCap {
    /// For a share of [`WHOLE`].
    pub(super) fn new(gpu: GpuLedger<'static>, share: u32, uuid: CUuuid) -> Self {
        let rate = Rate {
            share: share.clamp(1, WHOLE),
            burst: BURST_NS,
        };
        Self {
            pace: gpu.pace(),
            rate,
            uuid,
            rests: AtomicBool::new(false),
            coscheduling: Coscheduling::new(gpu.gang()),
        }
    }

    /// The UUID of the GPU.
    pub(super) fn uuid(&self) -> &CUuuid {
        &self.uuid
    }

    /// The rate while work of this length is in flight. Its burst grows by that length, since this work may wait for a launch
    /// that waits here.
    fn rate_with(&self, in_flight: u64, is_together: bool) -> Rate {
        let burst = if is_together {
            let turn = self.long_turn();
            let ahead = self.rate.on_clock(MAX_LEAD_NS).saturating_sub(MAX_LEAD_NS);
            turn.saturating_add(ahead.min(turn))
        } else {
            BURST_NS
        };
        Rate {
            burst: burst.saturating_add(in_flight),
            ..self.rate
        }
    }

    /// The credit with which GPUs begin together.
    fn long_turn(&self) -> u64 {
        LONG_TURN_NS
            .max(self.rate.on_clock(LONG_TURN_GPU_NS))
            .min(MAX_WAIT_NS)
    }

    /// Whether the job's GPUs begin together.
    pub(super) fn is_together(&self, now: u64) -> bool {
        self.coscheduling.is_several() && self.coscheduling.gang.is_together(now)
    }

    /// The least credit, on the clock, of the other GPUs for which threads wait.
    fn of_others(&self, now: u64) -> i64 {
        let rate = self.rate_with(0, true);
        self.coscheduling
            .gang
            .others(now, 0)
            .filter(|other| other.is_waited_for)
            .map(|other| other.pace.credit(now, rate))
            .min()
            .unwrap_or(i64::MAX)
    }

    /// The work in flight, on the clock.
    fn on_clock(&self, in_flight: u64) -> u64 {
        self.rate.on_clock(in_flight).min(MAX_WAIT_NS)
    }

    /// Whether launches may go on now, with this much time in flight and after this much was used.
    pub(super) fn may(&self, now: u64, in_flight: u64, used: u64) -> Admission {
        let is_together = self.is_together(now);
        let in_flight = self.on_clock(in_flight);
        let rate = self.rate_with(in_flight, is_together);
        let credit = self.pace.credit(now, rate);
        let left = u64::try_from(credit).unwrap_or(0);
        // As if what is in flight were done.
        let after = credit.saturating_sub_unsigned(in_flight);
        // Relaxed: one thread more or less that rests.
        let rests = self.rests.load(Ordering::Relaxed);
        let enough = if is_together {
            self.long_turn()
        } else {
            RESUME_CREDIT_NS
        };
        let enough = enough.cast_signed();
        let others = if is_together {
            self.of_others(now)
        } else {
            i64::MAX
        };
        let is_enough = if rests {
            after.min(others) >= enough
        } else {
            after > 0 && others > OTHERS_DEBT_NS
        };
        if is_enough {
            self.rests.store(false, Ordering::Relaxed);
            if rests {
                self.coscheduling.gang.wait(None);
            }
            return Admission::InFlight(self.rate.on_gpu(left));
        }
        if !rests {
            self.rests.store(true, Ordering::Relaxed);
            self.coscheduling.begin(used);
        }
        self.coscheduling.gang.wait(Some(now));
        // By all processes of the job together.
        let may_owe = credit > -MAX_DEBT_NS;
        if let Some(ahead) = self.coscheduling.may(now, used).filter(|_| may_owe) {
            return Admission::OnlyAwaited(ahead);
        }
        let missing = enough.saturating_sub(after.min(others)).unsigned_abs();
        let look_in = self.coscheduling.look_in(now).unwrap_or(u64::MAX);
        Admission::RetryAfter(missing.min(look_in))
    }

    /// The credit that is left, in nanoseconds of the GPU.
    pub(super) fn left(&self, now: u64) -> u64 {
        let is_together = self.is_together(now);
        if is_together && self.of_others(now) <= OTHERS_DEBT_NS {
            return 0;
        }
        let credit = self.pace.credit(now, self.rate_with(0, is_together));
        self.rate.on_gpu(u64::try_from(credit).unwrap_or(0))
    }

    /// Charges time that was measured, while `in_flight` is in flight.
    pub(super) fn charge(&self, now: u64, time: u64, in_flight: u64) {
        let rate = self.rate_with(self.on_clock(in_flight), self.is_together(now));
        self.pace.charge(now, rate, time);
    }
}

#[cfg(test)]
#[path = "job_cap_tests.rs"]
pub(super) mod tests;
