//! The GPUs that this process launches on.

use core::sync::atomic::{AtomicPtr, Ordering};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUresult, CUuuid,
};
use softmig_policy::node::job_conf::MAX_GPUS;

use super::super::job_cap::Own;
use super::Gpu;
use crate::driver::cuda::real;
use crate::driver::device;
use crate::identity::share;
use crate::ledger::device::ledger_of;
use crate::os::{self, Errno};

static GPUS: [AtomicPtr<Gpu>; MAX_GPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_GPUS];

/// A GPU whose time is not limited.
const FREE: *mut Gpu = core::ptr::dangling_mut();

impl Gpu {
    /// That of the calling thread's context, if its time is limited; an error where that cannot be done.
    #[inline]
    pub(in crate::pacing) fn current() -> Result<Option<&'static Self>, CUresult> {
        let device = if device::has_one_gpu() {
            0
        } else {
            let mut device = 0;
            // SAFETY: there is room for the answer.
            let result = unsafe { real::cuCtxGetDevice(&raw mut device) };
            if result != CUDA_SUCCESS {
                return Ok(None);
            }
            device
        };
        let place = usize::try_from(device).ok().and_then(|at| GPUS.get(at));
        let place = place.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // Acquire: what was written there before is seen.
        let known = place.load(Ordering::Acquire);
        if known == FREE {
            return Ok(None);
        }
        // SAFETY: whatever else is stored there is never given back.
        match unsafe { known.as_ref() }.filter(|gpu| !gpu.is_wiped()) {
            Some(known) => Ok(Some(known)),
            None => meet(device, place),
        }
    }

    /// Whether this is a fork's child in which nothing was launched yet.
    pub(super) fn is_wiped(&self) -> bool {
        self.own().is_none()
    }

    /// The GPU with this number, if anything was launched there and its time is limited.
    pub(in crate::pacing) fn known(device: CUdevice) -> Option<&'static Self> {
        let known = GPUS.get(usize::try_from(device).ok()?)?;
        let known = known.load(Ordering::Acquire);
        if known == FREE {
            return None;
        }
        // SAFETY: see above.
        unsafe { known.as_ref() }
    }

    /// Calls `use_it` with each that is known.
    pub(in crate::pacing) fn each(use_it: impl Fn(&'static Self)) {
        for place in &GPUS {
            let known = place.load(Ordering::Acquire);
            if known != FREE
                // SAFETY: see above.
                && let Some(gpu) = unsafe { known.as_ref() }
            {
                use_it(gpu);
            }
        }
    }
}

/// Finds out what there is to know of a GPU. A process without an account, or without memory for this, launches nothing: nobody
/// could tell what time it has.
#[cold]
fn meet(device: CUdevice, place: &AtomicPtr<Gpu>) -> Result<Option<&'static Gpu>, CUresult> {
    let _errno = Errno::save();
    let new = match (share::of(device), device::uuid(device)) {
        (Some(None), _) => FREE,
        (Some(Some(share)), Some(uuid)) => new(uuid, share).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        // The driver is not in use, as in the child of a fork, and launches nothing.
        (None, _) | (_, None) => return Ok(None),
    };
    // Null, or what a fork has wiped.
    let before = place.load(Ordering::Acquire);
    // SAFETY: whatever else is stored there is never given back.
    let is_wiped = before != FREE && unsafe { before.as_ref() }.is_none_or(Gpu::is_wiped);
    if is_wiped {
        // Release: whoever finds it sees what was written. Another thread may have been faster; then its is used.
        let _ = place.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire);
    }
    let known = place.load(Ordering::Acquire);
    if known == FREE {
        return Ok(None);
    }
    // SAFETY: never given back.
    Ok(unsafe { known.as_ref() })
}

/// One of which this process has such a share.
fn new(uuid: CUuuid, share: u32) -> Option<*mut Gpu> {
    let ledger = ledger_of(&uuid)?;
    let start = os::map(size_of::<Gpu>()).ok()?;
    // A child of a fork has no work on the GPU, no seat, and not the threads that held locks.
    os::is_wiped_in_children(start, size_of::<Gpu>());
    let gpu = start.cast::<Gpu>().as_ptr();
    let own = os::map(size_of::<Own>()).ok()?.cast::<Own>().as_ptr();
    // SAFETY: mapped, and nobody else's yet.
    unsafe { own.write(Own::new(ledger, share, uuid)) };
    // SAFETY: mapped and all zero, which is what an unknown one is.
    unsafe { &*gpu }.own.store(own, Ordering::Release);
    Some(gpu)
}
