//! The share of a GPU's time that this process's job may have.

use core::ffi::c_int;

use softmig_policy::node::identity::ProcessRules;
use softmig_policy::node::job_conf::MAX_GPUS;
use softmig_policy::node::limits::Limits;
use softmig_region::seat::WHOLE;

use super::{gate, neighbours};

/// The share of the GPU with this number in CUDA's order, of [`WHOLE`]. The inner `None` means that it is not limited,
/// the outer that it is not known yet.
pub(crate) fn for_device(device: c_int) -> Option<Option<u32>> {
    gate::with_finding(|finding| {
        if finding.observe {
            return Some(None);
        }
        match &finding.standing {
            ProcessRules::Job(conf) => Some(conf.limits.as_ref().and_then(of_limits)),
            ProcessRules::Neighbours => neighbours::neighbours_share(),
            ProcessRules::Own(limits) => {
                let number = usize::try_from(device).ok();
                let compute = number.and_then(|number| limits.for_gpu(number).compute);
                let share = |tenths: u16| (WHOLE / 1000).saturating_mul(tenths.into());
                Some(compute.map(|compute| share(compute.get())))
            }
            ProcessRules::Passive | ProcessRules::Denied(_) => Some(None),
        }
    })
}

/// The share of a job's limits; `None` for all of the GPU.
pub(crate) fn of_limits(limits: &Limits) -> Option<u32> {
    let share = limits.share().part_of(WHOLE.into());
    u32::try_from(share).ok().filter(|share| *share < WHOLE)
}

/// True if any GPU's time is limited; `None` while this is not known.
pub(crate) fn is_any() -> Option<bool> {
    let mut shares = (0..MAX_GPUS).filter_map(|device| c_int::try_from(device).ok());
    shares.try_fold(false, |any, device| {
        Some(any || for_device(device)?.is_some())
    })
}
