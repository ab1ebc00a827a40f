//! Plain device memory: taken for the current context, and given back by address.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::Out;
use crate::address::Area;
use crate::capture::refuse_while_capturing;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::heap::{Part, Place};
use crate::ranges::{Range, Source};
use crate::room::with_room;
use crate::{Outcome, arrays, events, graph_memory, modules, pools, sharing, streams, vmm};

/// Rows of two-dimensional memory begin at multiples of it.
const PITCH: u64 = 512;

exports! {
    static SYMBOLS;

    /// Takes memory below 4 GiB, in contexts of that time.
    fn cuMemAlloc [cuMemAlloc 2000] (out: Out<CUdeviceptr_v1>, bytes: u32) =>
        locked(|driver| out.set(allocate_old(driver, bytes.into())?));

    /// Takes memory.
    fn cuMemAlloc_v2 [cuMemAlloc 3020] (out: Out<CUdeviceptr>, bytes: usize) =>
        locked(|driver| {
            if !out.is_wanted() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            out.set(allocate(driver, bytes as u64)?)
        });

    /// Takes memory below 4 GiB for rows, in contexts of that time.
    fn cuMemAllocPitch [cuMemAllocPitch 2000] (
        out: Out<CUdeviceptr_v1>, pitch: Out<u32>, width: u32, height: u32, element: u32
    ) => locked(|driver| {
        let row = pitch_of(width.into(), element)?;
        out.set(allocate_old(driver, row * u64::from(height))?)?;
        pitch.set(row as u32)
    });

    /// Takes memory for rows.
    fn cuMemAllocPitch_v2 [cuMemAllocPitch 3020] (
        out: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32
    ) => locked(|driver| {
        let row = pitch_of(width as u64, element)?;
        let bytes = row.checked_mul(height as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        out.set(allocate(driver, bytes)?)?;
        pitch.set(row as usize)
    });

    /// Takes memory that host and device share. It counts for the device from the start, not once it is touched.
    fn cuMemAllocManaged [cuMemAllocManaged 6000] (out: Out<CUdeviceptr>, bytes: usize, flags: u32) =>
        locked(|driver| {
            if flags & (CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            out.set(allocate_managed(driver, bytes as u64)?)
        });

    /// Gives memory back, in contexts of the time of 32-bit addresses.
    fn cuMemFree [cuMemFree 2000] (address: CUdeviceptr_v1) => locked(|driver| {
        driver.contexts.old_current()?;
        free(driver, address.into())
    });

    /// Gives memory back.
    fn cuMemFree_v2 [cuMemFree 3020] (address: CUdeviceptr) => locked(|driver| free(driver, address));
}

fn pitch_of(width: u64, element: u32) -> Outcome<u64> {
    if width == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    width
        .checked_next_multiple_of(PITCH)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

fn allocate(driver: &mut Driver, bytes: u64) -> Outcome<CUdeviceptr> {
    refuse_while_capturing(driver)?;
    let (context, _) = driver.contexts.current()?;
    take(driver, context, bytes, false)
}

fn allocate_old(driver: &mut Driver, bytes: u64) -> Outcome<CUdeviceptr_v1> {
    refuse_while_capturing(driver)?;
    let (context, _) = driver.contexts.old_current()?;
    let address = take(driver, context, bytes, true)?;
    CUdeviceptr_v1::try_from(address).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

fn take(driver: &mut Driver, context: usize, bytes: u64, low: bool) -> Outcome<CUdeviceptr> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = driver.contexts.get(context)?.device;
    let place = Place {
        context,
        device,
        kind: Kind::Alloc,
        low,
    };
    let part = with_room(driver, |driver| driver.heap.take(driver.node, place, bytes))?;
    let area = Area {
        start: part.start,
        length: bytes,
    };
    driver.ranges.insert(Range {
        area,
        context,
        device,
        source: Source::Device { part },
    });
    Ok(area.start)
}

fn allocate_managed(driver: &mut Driver, bytes: u64) -> Outcome<CUdeviceptr> {
    refuse_while_capturing(driver)?;
    let (context, known) = driver.contexts.current()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = known.device;
    let (area, part) = take_managed(driver, device, bytes)?;
    driver.ranges.insert(Range {
        area,
        context,
        device,
        source: Source::Managed { part },
    });
    Ok(area.start)
}

/// Takes memory that host and device share. All contexts, and those who have none, take it from the same pieces (seen on an
/// H200).
pub(crate) fn take_managed(
    driver: &mut Driver,
    device: usize,
    bytes: u64,
) -> Outcome<(Area, Part)> {
    let place = Place {
        context: 0,
        device,
        kind: Kind::Managed,
        low: false,
    };
    let part = driver.heap.take(driver.node, place, bytes)?;
    let area = Area {
        start: part.start,
        length: bytes.max(1),
    };
    Ok((area, part))
}

/// Gives back what begins at this address, if it is for `cuMemFree` to give back.
fn free(driver: &mut Driver, address: CUdeviceptr) -> Outcome {
    refuse_while_capturing(driver)?;
    if address == 0 {
        return Ok(());
    }
    let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match range.source {
        Source::Device { .. } | Source::Managed { .. } | Source::Pool { .. } => {
            let range = driver
                .ranges
                .remove(address)
                .ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let pooled = match range.source {
                Source::Pool { pool, bytes, .. } => Some((pool, bytes)),
                _ => None,
            };
            release(driver, range);
            if let Some((pool, bytes)) = pooled {
                pools::settle(driver, pool, bytes);
            }
            Ok(())
        }
        Source::Graph { .. } => graph_memory::free(driver, address),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Gives back the memory and the addresses of an allocation that was taken out of the list.
pub(crate) fn release(driver: &mut Driver, range: Range) {
    match range.source {
        // The addresses are the piece's, as those of variables are.
        Source::Device { part } | Source::Managed { part } => {
            driver.heap.give_back(driver.node, part);
            return;
        }
        Source::Variable | Source::ManagedVariable => return,
        Source::Pool {
            pool,
            bytes,
            shared,
        } => {
            pools::give_back(driver, pool, bytes);
            if let Some(block) = shared {
                // From now on it counts by itself, if others have it.
                pools::shrink(driver, pool, 0);
                driver.node.drop_block(block);
            }
        }
        Source::Mapped { physical } => {
            vmm::unmapped(driver, physical);
            // The addresses stay set aside. If the system refuses, they keep pages, which are not counted.
            let _ = range.area.empty();
            return;
        }
        Source::Imported { whole, block } => {
            sharing::let_go(driver, block);
            whole.give_back();
            return;
        }
        // Their accounts are kept elsewhere, or there are none.
        Source::Graph { .. } | Source::External | Source::Host => {}
        // The addresses are the program's own.
        Source::Registered => return,
    }
    range.area.give_back();
}

/// Gives back all that belongs to a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    streams::end_context(driver, context);
    events::end_context(driver, context);
    modules::end_context(driver, context);
    arrays::end_context(driver, context);
    for range in driver.ranges.remove_context(context) {
        release(driver, range);
    }
}
