//! Into the driver and out of it: joining the node at the first call, the lock, forks, and the end.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{AttachError, Process};

use crate::Outcome;
use crate::driver::Driver;

/// This process's part in the node: made by the first call, never freed, since other threads may be using it.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// Held while joining.
static JOINING: Mutex<()> = Mutex::new(());
/// Whether `cuInit` succeeded, here or in the process of which this is a forked child.
static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// Whether the library has been unloaded or the process is at its end.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Everything this process has of the GPUs; there is something once `cuInit` succeeded.
static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// This process's part in the node.
pub(crate) fn process() -> Outcome<&'static Process> {
    if let Some(process) = known_process()? {
        return Ok(process);
    }
    let _joining = JOINING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = known_process()? {
        return Ok(process);
    }
    match Process::attach(&softmig_fake_node::place()) {
        Ok(process) => {
            let process: &'static Process = Box::leak(Box::new(process));
            // Release, as known_process's Acquire: who finds it finds it complete.
            PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
            Ok(process)
        }
        Err(AttachError::Absent) => Err(CUDA_ERROR_NO_DEVICE),
        Err(AttachError::Node(_)) => Err(CUDA_ERROR_SYSTEM_NOT_READY),
        Err(AttachError::Full) => Err(CUDA_ERROR_DEVICE_UNAVAILABLE),
    }
}

/// The part in the node that this process has already, `None` where it may join.
fn known_process() -> Outcome<Option<&'static Process>> {
    let known = PROCESS.load(Ordering::Acquire);
    // SAFETY: null, or a box that was leaked above.
    let Some(process) = (unsafe { known.as_ref() }) else {
        return Ok(None);
    };
    if process.is_here() {
        return Ok(Some(process));
    }
    // A forked child. One of a process that had only looked around joins by itself; one of a process that had called
    // cuInit has no CUDA, as with the real driver.
    if INITIALIZED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    Ok(None)
}

/// `cuInit`: makes the driver of what `devices` chooses, unless there is one.
pub(crate) fn initialize(devices: impl FnOnce(&Process) -> Outcome<Vec<usize>>) -> Outcome {
    if ENDED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_DEINITIALIZED);
    }
    let process = process()?;
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
    process()?;
    body(lock().as_mut().ok_or(CUDA_ERROR_NOT_INITIALIZED)?)
}

fn lock() -> MutexGuard<'static, Option<Driver>> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The code that a function of the driver returns.
pub(crate) fn code(outcome: Outcome) -> CUresult {
    match outcome {
        Ok(()) => CUDA_SUCCESS,
        Err(code) => code,
    }
}

/// Runs when the library is unloaded or the process ends by itself: what it has goes back, and later calls say so.
extern "C" fn end() {
    ENDED.store(true, Ordering::Relaxed);
    if let Ok(Some(process)) = known_process() {
        process.leave();
    }
}

// SAFETY: the section is an array of functions without arguments, which the loader calls.
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;
