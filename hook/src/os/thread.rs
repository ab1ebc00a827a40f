//! A thread of the hook's own.

use core::ffi::{c_int, c_ulong, c_void};

use super::error::{Error, outcome};
use super::glibc;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut c_ulong, *const c_void, Start, *mut c_void) -> c_int;
type Detach = unsafe extern "C" fn(c_ulong) -> c_int;

/// As large as the kernel's set of signals.
type Signals = u64;

/// Starts a thread that no signal of the program's reaches, and that nobody waits for.
pub(crate) fn start_thread(run: Start, with: *mut c_void) -> Result<(), Error> {
    let (create, detach) = (
        glibc::PTHREAD_CREATE.address(),
        glibc::PTHREAD_DETACH.address(),
    );
    if create.is_null() || detach.is_null() {
        return Err(Error(libc::ENOSYS));
    }
    // SAFETY: glibc's function of that name.
    let create = unsafe { core::mem::transmute::<*mut (), Create>(create) };
    // SAFETY: as above.
    let detach = unsafe { core::mem::transmute::<*mut (), Detach>(detach) };
    let before = mask(Signals::MAX)?;
    let mut thread = 0;
    // SAFETY: `run` takes what it is given; the thread inherits this one's mask.
    let made = unsafe { create(&raw mut thread, core::ptr::null(), run, with) };
    let restored = mask(before);
    if made != 0 {
        return Err(Error(made));
    }
    // SAFETY: the thread just made, which nobody joins.
    unsafe { detach(thread) };
    restored.map(drop)
}

/// Sets this thread's mask, and returns what it was.
fn mask(new: Signals) -> Result<Signals, Error> {
    let mut before: Signals = 0;
    // SAFETY: the kernel reads and writes one set.
    let set = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const new,
            &raw mut before,
            size_of::<Signals>(),
        )
    };
    outcome(set)?;
    Ok(before)
}

/// Names this thread for those who look at the process.
pub(crate) fn name_thread(name: &core::ffi::CStr) {
    // SAFETY: the kernel copies the name, which ends in a zero byte.
    let _ = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}
