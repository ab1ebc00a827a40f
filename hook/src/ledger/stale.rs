//! Charges for memory that the driver has given up meanwhile.

use softmig_driver_sys::cuda::CUDA_SUCCESS;

use super::allocations::Kind;
use super::device::LimitedGpu;
use super::{charge, mappings};
use crate::driver::cuda_queries;

/// In the count of an address: the program has freed it.
pub(crate) const FREED: u32 = u32::MAX;

/// Refunds what was freed in the order of a stream that has come to it.
pub(crate) fn forget_freed(gpu: &LimitedGpu) {
    for kind in [Kind::Address, Kind::Managed] {
        gpu.holdings().each(kind, |address, held| {
            if held.count != FREED || held.device != gpu.number() {
                return;
            }
            let (mut base, mut size) = (0, 0);
            let known = cuda_queries::cuMemGetAddressRange_v2(&mut base, &mut size, address);
            if known != CUDA_SUCCESS
                && let Some(held) = gpu.holdings().take(kind, address)
            {
                charge::refund(kind, &held);
            }
        });
    }
    mappings::forget_gone();
}
