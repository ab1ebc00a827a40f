//! The GPU that a call is about.

use core::sync::atomic::Ordering;

use super::device::LimitedGpu;
use super::nvml_usage;
use crate::driver::context;
use crate::identity::gate;

/// The GPU of the calling thread's context; `None` without a context, or if nothing is limited on the GPU.
#[inline]
pub(crate) fn here() -> Option<LimitedGpu> {
    if !gate::is_limited_process() {
        return None;
    }
    let gpu = LimitedGpu::on(context::device()?)?;
    // Relaxed: looked at again where it matters.
    if gpu.state().overhead.load(Ordering::Relaxed) == 0 {
        meet(&gpu);
    }
    Some(gpu)
}

/// Charges a context that was made without a call that was seen, unless a thread is about to.
#[cold]
fn meet(gpu: &LimitedGpu) {
    if let Some(_guard) = gpu.state().context_lock.lock()
        && gpu.state().overhead.load(Ordering::Relaxed) == 0
    {
        nvml_usage::meet(gpu);
    }
}
