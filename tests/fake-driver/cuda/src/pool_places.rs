//! Pools by the place and the kind of their memory.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::pool_kinds::{self, Spot};
use crate::pools;
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// The pool that a place comes with.
    fn cuMemGetDefaultMemPool [cuMemGetDefaultMemPool 13000] (
        out: Out<CUmemoryPool>, place: Out<CUmemLocation>, kind: CUmemAllocationType
    ) => locked(|driver| {
        let spot = spot(driver, place, kind)?;
        out.set(handle(pools::default_of(driver, spot)))
    });

    /// The pool that a place uses.
    fn cuMemGetMemPool [cuMemGetMemPool 13000] (
        out: Out<CUmemoryPool>, place: Out<CUmemLocation>, kind: CUmemAllocationType
    ) => locked(|driver| {
        let spot = spot(driver, place, kind)?;
        out.set(handle(pools::current_of(driver, spot)))
    });

    /// Lets a place use another pool.
    fn cuMemSetMemPool [cuMemSetMemPool 13000] (
        place: Out<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool
    ) => locked(|driver| {
        let spot = spot(driver, place, kind)?;
        pools::set_current(driver, spot, pool as usize)
    });
}

fn spot(driver: &Driver, place: Out<CUmemLocation>, kind: CUmemAllocationType) -> Outcome<Spot> {
    pool_kinds::spot(driver, kind, &place.get()?)
}
