//! The cap that a job keeps alone, where there is no arbiter: by the word in its ledger that all its processes share.

use core::sync::atomic::{AtomicBool, Ordering};

use softmig_region::seat::WHOLE;
use softmig_region::{Pace, Rate};

/// For so long on the clock a job that was idle has credit, in nanoseconds.
const BURST: u64 = 20_000_000;
/// With so much credit on the clock it goes on: in long turns, so that the GPU does not wait for each of its launches.
const ENOUGH: u64 = BURST / 2;

/// For so long on the clock a launch waits for what is in flight at most.
const LONGEST: u64 = 100_000_000;

/// The cap on one GPU.
pub(super) struct Own {
    pace: Pace<'static>,
    rate: Rate,
    /// Whether its turn is over, and it waits for [`ENOUGH`].
    rests: AtomicBool,
}

/// What may be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// So much may be in flight, in nanoseconds.
    Have(u64),
    /// Nothing, for so many nanoseconds at least.
    Nothing(u64),
    /// Nothing, as long as the arbiter's word is this.
    Turn(u32),
}

impl Own {
    /// For a share of [`WHOLE`].
    pub(super) fn new(pace: Pace<'static>, share: u32) -> Self {
        let rate = Rate {
            share: share.clamp(1, WHOLE),
            burst: BURST,
        };
        Self {
            pace,
            rate,
            rests: AtomicBool::new(false),
        }
    }

    /// The rate where so much on the clock is in flight. As long as it is, credit grows for it: it may wait for a launch that
    /// waits here.
    fn rate_with(&self, in_flight: u64) -> Rate {
        Rate {
            burst: BURST.saturating_add(in_flight),
            ..self.rate
        }
    }

    /// What is in flight, on the clock.
    fn on_clock(&self, in_flight: u64) -> u64 {
        self.rate.on_clock(in_flight).min(LONGEST)
    }

    /// What may be in flight now, of which so much is.
    pub(super) fn may(&self, now: u64, in_flight: u64) -> May {
        let in_flight = self.on_clock(in_flight);
        let credit = self.pace.credit(now, self.rate_with(in_flight));
        let left = u64::try_from(credit).unwrap_or(0);
        // As if what is in flight were done.
        let after = credit.saturating_sub_unsigned(in_flight);
        // Relaxed: one thread more or less that rests.
        let rests = self.rests.load(Ordering::Relaxed);
        let enough = if rests { ENOUGH.cast_signed() } else { 1 };
        if after >= enough {
            self.rests.store(false, Ordering::Relaxed);
            return May::Have(self.rate.on_gpu(left));
        }
        self.rests.store(true, Ordering::Relaxed);
        let missing = ENOUGH.cast_signed().saturating_sub(after);
        May::Nothing(missing.unsigned_abs())
    }

    /// What is left of the credit, in nanoseconds of the GPU.
    pub(super) fn left(&self, now: u64) -> u64 {
        let credit = self.pace.credit(now, self.rate);
        self.rate.on_gpu(u64::try_from(credit).unwrap_or(0))
    }

    /// Charges time that was measured, while so much is in flight.
    pub(super) fn charge(&self, now: u64, time: u64, in_flight: u64) {
        let rate = self.rate_with(self.on_clock(in_flight));
        self.pace.charge(now, rate, time);
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
