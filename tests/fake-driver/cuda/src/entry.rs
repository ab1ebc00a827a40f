//! Into the driver and out of it: joining the node at the first call, the lock, forks, and the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{AttachError, Function, Membership, Process, Standing};

use crate::Outcome;
use crate::driver::Driver;

/// This process's part in the node.
static MEMBERSHIP: Membership = Membership::new();
/// Whether `cuInit` succeeded, here or in the process of which this is a forked child.
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Whether the library has been unloaded or the process is at its end.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Everything this process has of the GPUs; there is something once `cuInit` succeeded.
static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// This process's part in the node. A forked child of a process that had only looked around joins by itself; one of a
/// process that had called `cuInit` has no CUDA, as with the real driver.
pub(crate) fn process() -> Outcome<&'static Process> {
    match MEMBERSHIP.standing() {
        Standing::Member(process) => return Ok(process),
        Standing::Child if INITIALIZED.load(Ordering::Relaxed) => {
            return Err(CUDA_ERROR_NOT_INITIALIZED);
        }
        Standing::Child | Standing::Stranger => {}
    }
    MEMBERSHIP.join().map_err(|error| match error {
        AttachError::Absent => CUDA_ERROR_NO_DEVICE,
        AttachError::Node(_) => CUDA_ERROR_SYSTEM_NOT_READY,
        AttachError::Full => CUDA_ERROR_DEVICE_UNAVAILABLE,
    })
}

/// `cuInit`: makes the driver of what `devices` chooses, unless there is one.
pub(crate) fn initialize(devices: impl FnOnce(&Process) -> Outcome<Vec<usize>>) -> Outcome {
    if ENDED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_DEINITIALIZED);
    }
    let process = process()?;
    process.keep_files();
    let mut driver = lock();
    if driver.is_none() {
        *driver = Some(Driver::new(process, devices(process)?));
        INITIALIZED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Runs something that needs `cuInit` before it, with everything locked.
pub(crate) fn locked<T>(body: impl FnOnce(&mut Driver) -> Outcome<T>) -> Outcome<T> {
    if ENDED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_DEINITIALIZED);
    }
    if !INITIALIZED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    // In a forked child the lock may be held by a thread that does not exist there.
    let process = process()?;
    // Another process has stopped this one. Before the lock, so that none is held meanwhile.
    while process.is_locked() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if process.has_failed() {
        return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    body(lock().as_mut().ok_or(CUDA_ERROR_NOT_INITIALIZED)?)
}

fn lock() -> MutexGuard<'static, Option<Driver>> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The code that a function of the driver returns.
pub(crate) fn code(outcome: Outcome) -> CUresult {
    /// Counted as if it were one: tools for debugging report each call that fails.
    static FAILED: Function = Function::new("failed");
    match outcome {
        Ok(()) => CUDA_SUCCESS,
        // An answer like any other; and after the end, of which no tool knows more.
        Err(code @ (CUDA_ERROR_NOT_READY | CUDA_ERROR_DEINITIALIZED)) => code,
        Err(code) => {
            let _slow = crate::export::count(&FAILED);
            code
        }
    }
}

/// Runs when the library is unloaded or the process ends by itself: what it has goes back, and later calls say so.
extern "C" fn end() {
    ENDED.store(true, Ordering::Relaxed);
    if let Standing::Member(process) = MEMBERSHIP.standing() {
        process.leave();
    }
}

// SAFETY: the section is an array of functions without arguments, which the loader calls.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;
