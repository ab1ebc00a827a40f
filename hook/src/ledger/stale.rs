//! Charges for memory that the driver has given up meanwhile.

use softmig_driver_sys::cuda::CU_POINTER_ATTRIBUTE_RANGE_SIZE;

use super::allocations::Kind;
use super::device::LimitedGpu;
use super::{charge, mappings};
use crate::driver::device::attribute_of;

/// In the count of an address: the program has freed it.
pub(crate) const FREED: u32 = u32::MAX;

/// Refunds what was freed in the order of a stream that has come to it.
pub(crate) fn forget_freed(gpu: &LimitedGpu) {
    for kind in [Kind::Address, Kind::Managed] {
        gpu.holdings().each(kind, |address, held| {
            if held.count != FREED || held.device != gpu.number() {
                return;
            }
            if attribute_of(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE).is_none()
                && let Some(held) = gpu.holdings().take(kind, address)
            {
                charge::refund(kind, &held);
            }
        });
    }
    mappings::forget_gone();
}
