//! The memory of a pool: a device's, managed, or the host's.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::Outcome;
use crate::driver::Driver;
use crate::heap::code;

/// Takes memory for a pool.
pub(crate) fn charge(driver: &Driver, device: usize, kind: Option<Kind>, bytes: u64) -> Outcome {
    match kind {
        Some(kind) => driver.node.charge(device, kind, bytes).map_err(code),
        None => Ok(()),
    }
}

/// Where a pool's memory is: on which device, and what it counts as there, which for the host's is nothing.
pub(crate) type Spot = (usize, Option<Kind>);

/// Pinned memory of a device.
pub(crate) fn on_device(device: usize) -> Spot {
    (device, Some(Kind::Pool))
}

/// The spot of memory of this kind at this place.
pub(crate) fn spot(
    driver: &Driver,
    kind: CUmemAllocationType,
    place: &CUmemLocation,
) -> Outcome<Spot> {
    // Of the host's memory nothing is on a device, so any will do; managed memory goes to the first.
    match (kind, place.type_) {
        (_, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) => Err(CUDA_ERROR_NOT_SUPPORTED),
        (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE) => {
            Ok((driver.device(place.id)?, Some(Kind::Pool)))
        }
        (CU_MEM_ALLOCATION_TYPE_PINNED, type_) if is_host(type_) => Ok((driver.device(0)?, None)),
        (CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE) => {
            Ok((driver.device(place.id)?, Some(Kind::Managed)))
        }
        (CU_MEM_ALLOCATION_TYPE_MANAGED, type_)
            if is_host(type_) || type_ == CU_MEM_LOCATION_TYPE_NONE =>
        {
            Ok((driver.device(0)?, Some(Kind::Managed)))
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether a place is the host's memory.
pub(crate) fn is_host(place: CUmemLocationType) -> bool {
    matches!(
        place,
        CU_MEM_LOCATION_TYPE_HOST
            | CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
    )
}
