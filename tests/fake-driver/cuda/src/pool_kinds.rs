//! What the memory of a pool is: a device's, managed, or the host's.

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

/// The device of a pool that is asked for, and what its memory will count as there.
pub(crate) fn place_of(driver: &Driver, asked: &CUmemPoolProps) -> Outcome<(usize, Option<Kind>)> {
    let CUmemLocation { type_, id } = asked.location;
    match (asked.allocType, type_) {
        (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE) => {
            Ok((driver.device(id)?, Some(Kind::Pool)))
        }
        (CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE) => {
            Ok((driver.device(id)?, Some(Kind::Managed)))
        }
        (CU_MEM_ALLOCATION_TYPE_PINNED, place) if is_host(place) => Ok((driver.device(0)?, None)),
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
