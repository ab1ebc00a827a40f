//! The GPUs that this process launches on.

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUresult, CUuuid,
};
use softmig_policy::node::job_conf::MAX_GPUS;

use super::PacedGpu;
use super::cap::Cap;
use crate::driver::{cuda_queries, device};
use crate::identity::share;
use crate::ledger::device::ledger_of;
use crate::os::Errno;
use crate::os::cells::{Fresh, Kept};

/// By number; given up where a GPU's time is not limited.
static GPUS: [Kept<PacedGpu>; MAX_GPUS] = [const { Kept::new() }; MAX_GPUS];

impl PacedGpu {
    /// That of the calling thread's context, if its time is limited; an error where that cannot be done.
    #[inline]
    pub(in crate::pacing) fn current() -> Result<Option<&'static Self>, CUresult> {
        let device = if device::has_one_gpu() {
            0
        } else {
            let mut device = 0;
            if cuda_queries::cuCtxGetDevice(&mut device) != CUDA_SUCCESS {
                return Ok(None);
            }
            device
        };
        Self::for_device(device)
    }

    /// The GPU with this number, likewise.
    #[inline]
    pub(in crate::pacing) fn for_device(
        device: CUdevice,
    ) -> Result<Option<&'static Self>, CUresult> {
        let entry = usize::try_from(device).ok().and_then(|at| GPUS.get(at));
        let entry = entry.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        match entry.get().filter(|gpu| !gpu.is_wiped()) {
            Some(known) => Ok(Some(known)),
            None if entry.is_given_up() => Ok(None),
            None => meet(device, entry),
        }
    }

    /// Whether this is a fork's child in which nothing was launched yet.
    pub(super) fn is_wiped(&self) -> bool {
        self.cap().is_none()
    }

    /// The GPU with this number, if anything was launched there and its time is limited.
    pub(in crate::pacing) fn known(device: CUdevice) -> Option<&'static Self> {
        GPUS.get(usize::try_from(device).ok()?)?.get()
    }

    /// Calls `use_it` with each that is known.
    pub(in crate::pacing) fn each(use_it: impl Fn(&'static Self)) {
        for gpu in GPUS.iter().filter_map(Kept::get) {
            use_it(gpu);
        }
    }
}

/// Finds out what there is to know of a GPU. A process without a ledger, or without memory for this, launches nothing: its time
/// could not be limited.
#[cold]
fn meet(device: CUdevice, entry: &Kept<PacedGpu>) -> Result<Option<&'static PacedGpu>, CUresult> {
    let _errno = Errno::save();
    // The entry of the parent, which the fork has wiped.
    let before = entry.get().filter(|gpu| gpu.is_wiped());
    match (share::for_device(device), device::uuid(device)) {
        (Some(None), _) => {
            entry.give_up(before);
            Ok(entry.get())
        }
        (Some(Some(share)), Some(uuid)) => {
            let new = new(uuid, share).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            Ok(entry.exchange(before, new))
        }
        // The driver is not in use, as in the child of a fork, and launches nothing.
        (None, _) | (_, None) => Ok(None),
    }
}

/// One of which this process has such a share.
fn new(uuid: CUuuid, share: u32) -> Option<Fresh<PacedGpu>> {
    let ledger = ledger_of(&uuid)?;
    let cap = Fresh::new(Cap::new(ledger, share, uuid)).ok()?;
    // A child of a fork has no work on the GPU, no seat, and not the threads that held locks.
    let (gpu, _) = Fresh::<PacedGpu>::zeroed().ok()?;
    gpu.cap.keep(cap.leaked());
    Some(gpu)
}
