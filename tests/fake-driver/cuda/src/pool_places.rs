//! Pools by the place of their memory. Here only the pinned memory of devices comes in pools.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::pools;
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// The pool that a place comes with.
    fn cuMemGetDefaultMemPool [cuMemGetDefaultMemPool 13000] (
        out: Out<CUmemoryPool>, place: Out<CUmemLocation>, kind: CUmemAllocationType
    ) => locked(|driver| {
        let device = device_of(driver, place, kind)?;
        out.set(handle(pools::default_of(driver, device)))
    });

    /// The pool that a place uses.
    fn cuMemGetMemPool [cuMemGetMemPool 13000] (
        out: Out<CUmemoryPool>, place: Out<CUmemLocation>, kind: CUmemAllocationType
    ) => locked(|driver| {
        let device = device_of(driver, place, kind)?;
        out.set(handle(pools::current_of(driver, device)))
    });

    /// Lets a place use another pool.
    fn cuMemSetMemPool [cuMemSetMemPool 13000] (
        place: Out<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool
    ) => locked(|driver| {
        let device = device_of(driver, place, kind)?;
        pools::set_current(driver, device, pool as usize)
    });
}

fn device_of(
    driver: &Driver,
    place: Out<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Outcome<usize> {
    let place = place.get()?;
    match (kind, place.type_) {
        (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE) => driver.device(place.id),
        _ => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}
