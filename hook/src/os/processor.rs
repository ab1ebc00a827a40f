//! The processor's clock.

/// The clock, which runs evenly.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register that programs may read.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Some 20 us: the clocks of servers run at 2 to 3 GHz.
pub(crate) const SOME_TICKS: u64 = 50_000;

/// Some 0.4 ms.
pub(crate) const MANY_TICKS: u64 = 1_000_000;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("no clock for this processor yet: add its `ticks`");
