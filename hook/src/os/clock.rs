//! Time.

use core::ffi::c_int;

/// A timer of the kernel's may be so late, in nanoseconds, where a thread asks for it; else it is 50 us.
const FINE: u64 = 1_000;

/// The nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn nanoseconds() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The seconds since 1970.
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_REALTIME) / 1_000_000_000
}

/// The milliseconds since the machine was started.
pub(crate) fn milliseconds() -> u64 {
    nanoseconds() / 1_000_000
}

fn read(clock: c_int) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills one `timespec`.
    let _ = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// So many nanoseconds, as the kernel takes them.
pub(super) fn span(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    }
}

/// Waits so many nanoseconds.
pub(crate) fn nap(nanoseconds: u64) {
    let time = span(nanoseconds);
    let nothing: *mut libc::timespec = core::ptr::null_mut();
    // SAFETY: the kernel reads one `timespec`.
    let _ = unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, nothing) };
}

/// Waits a millisecond.
pub(crate) fn pause() {
    nap(1_000_000);
}

/// This thread's timers are exact until it is dropped.
pub(crate) struct Exact(u64);

impl Exact {
    /// Makes them so.
    pub(crate) fn timers() -> Self {
        // SAFETY: takes numbers.
        let before = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        // SAFETY: see above.
        let _ = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, FINE, 0, 0, 0) };
        Self(u64::try_from(before).unwrap_or(50_000))
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        // SAFETY: see above.
        let _ = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, self.0, 0, 0, 0) };
    }
}
