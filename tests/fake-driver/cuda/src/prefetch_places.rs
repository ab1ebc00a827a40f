//! Moving managed memory, as later programs name the place: src/prefetch.rs.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::prefetch::prefetch;
use softmig_fake_node::edge::Edge;

/// A place, which comes by value.
pub(crate) struct Place(CUmemLocation);

impl Edge for Place {
    type Raw = CUmemLocation;

    unsafe fn from_raw(raw: CUmemLocation) -> Self {
        Place(raw)
    }
}

exports! {
    static SYMBOLS;

    /// Moves managed memory to a place.
    fn cuMemPrefetchAsync_v2 [cuMemPrefetchAsync 12020], cuMemPrefetchAsync_v2_ptsz [12020] (
        address: CUdeviceptr, bytes: usize, place: Place, flags: u32, stream: CUstream
    ) |per_thread| => locked(|driver| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        check(driver, &place.0)?;
        prefetch(driver, address, bytes, stream, per_thread)
    });

    /// Moves several pieces of managed memory.
    fn cuMemPrefetchBatchAsync [cuMemPrefetchBatchAsync 13000], cuMemPrefetchBatchAsync_ptsz [13000] (
        addresses: Out<CUdeviceptr>, sizes: Out<usize>, count: usize, places: Out<CUmemLocation>, starts: Out<usize>,
        place_count: usize, flags: u64, stream: CUstream
    ) |per_thread| => locked(|driver| {
        let batch = Batch { addresses, sizes, count, places, starts, place_count, flags };
        prefetch_all(driver, &batch, stream, per_thread)
    });

    /// Drops what is in several pieces of managed memory, and moves them.
    fn cuMemDiscardAndPrefetchBatchAsync [cuMemDiscardAndPrefetchBatchAsync 13000],
        cuMemDiscardAndPrefetchBatchAsync_ptsz [13000] (
        addresses: Out<CUdeviceptr>, sizes: Out<usize>, count: usize, places: Out<CUmemLocation>, starts: Out<usize>,
        place_count: usize, flags: u64, stream: CUstream
    ) |per_thread| => locked(|driver| {
        let batch = Batch { addresses, sizes, count, places, starts, place_count, flags };
        prefetch_all(driver, &batch, stream, per_thread)
    });
}

/// Several pieces; each place is for the pieces from its start on.
struct Batch {
    addresses: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    places: Out<CUmemLocation>,
    starts: Out<usize>,
    place_count: usize,
    flags: u64,
}

fn prefetch_all(driver: &mut Driver, batch: &Batch, stream: CUstream, per_thread: bool) -> Outcome {
    if batch.flags != 0 || batch.count == 0 || batch.place_count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for place in 0..batch.place_count {
        batch.starts.at(place)?;
        check(driver, &batch.places.at(place)?)?;
    }
    for piece in 0..batch.count {
        let (address, bytes) = (batch.addresses.at(piece)?, batch.sizes.at(piece)?);
        prefetch(driver, address, bytes, stream, per_thread)?;
    }
    Ok(())
}

fn check(driver: &Driver, place: &CUmemLocation) -> Outcome {
    match place.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => driver.device(place.id).map(|_| ()),
        CU_MEM_LOCATION_TYPE_HOST => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
