//! The time.

use crate::schedule::Nanos;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now() -> Nanos {
    softmig_rm::now().cast_signed()
}
