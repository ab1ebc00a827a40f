//! A thread of the hook's own.

use core::ffi::CStr;

use super::error::Error;
use super::{glibc, sys};

/// As large as the kernel's set of signals.
type Signals = u64;

/// The work of a thread of the hook's own.
pub(crate) trait Thread: Sync + 'static {
    /// All of it.
    fn run(&'static self);
}

/// Starts a thread that no signal of the program's reaches, and that nothing waits for.
pub(crate) fn start_thread<T: Thread>(with: &'static T) -> Result<(), Error> {
    let before = mask(Signals::MAX)?;
    // The thread inherits this one's mask.
    let made = glibc::create_thread(with);
    let restored = mask(before);
    made.and(restored.map(drop))
}

/// Sets this thread's mask, and returns what it was.
fn mask(new: Signals) -> Result<Signals, Error> {
    let mut before = 0;
    sys::signal_mask(&new, &mut before)?;
    Ok(before)
}

/// Names this thread for those who look at the process.
pub(crate) fn name_thread(name: &CStr) {
    let _ = sys::set_name(name);
}
