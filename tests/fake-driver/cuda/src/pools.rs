//! Memory pools: memory taken and given back in the order of a stream, and kept for the next that wants it.
//!
//! As seen on an H200: a pool takes 32 MiB at a time from the device; what is freed stays until the program waits for
//! a stream, an event or a context, and then goes back down to the pool's threshold. Blocks are not told apart: a pool
//! has no gaps, and what is freed can be had again at once, in whatever stream.

use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::address::Area;
use crate::capture::{self, refuse_while_capturing};
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::graphs::NodeWork;
use crate::pool_kinds::{Spot, charge, on_device, spot};
use crate::ranges::{Range, Source};
use crate::room::with_room;
use crate::streams::{self, Default};
use crate::{In, Out};
use crate::{Outcome, graph_memory, memory};
use softmig_fake_node::edge::handle;

/// How much a pool takes at a time.
pub(crate) const CHUNK: u64 = 32 << 20;
/// Allocations are rounded up to it.
const ALIGNMENT: u64 = 512;

/// All pools.
#[derive(Default)]
pub(crate) struct Pools {
    pub(crate) all: BTreeMap<usize, Pool>,
    /// By spot: the one it comes with, and the one in use.
    defaults: BTreeMap<Spot, usize>,
    current: BTreeMap<Spot, usize>,
}

/// One pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// The kind of its memory; `None` for the host's.
    kind: Option<Kind>,
    pub(crate) used: u64,
    /// Given back by `cuMemFree`; the driver still counts it as used (seen on an H200).
    pub(crate) forgotten: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Bytes kept when the program waits.
    pub(crate) threshold: u64,
    /// The most that it may have; 0 for no limit.
    max: u64,
    /// REUSE_FOLLOW_EVENT_DEPENDENCIES and its two brothers: kept for who asks.
    pub(crate) reuse: [i32; 3],
    /// Whether others may use its memory.
    pub(crate) shareable: bool,
    /// Whether it is another process's, whose memory is counted there.
    pub(crate) imported: bool,
    /// Destroyed, but not all of its memory is given back.
    ended: bool,
}

exports! {
    static SYMBOLS;

    /// The pool that a device comes with.
    fn cuDeviceGetDefaultMemPool [cuDeviceGetDefaultMemPool 11020] (out: Out<CUmemoryPool>, device: CUdevice) =>
        locked(|driver| {
            let device = driver.device(device)?;
            out.set(handle(default_of(driver, on_device(device))))
        });

    /// The pool that a device uses.
    fn cuDeviceGetMemPool [cuDeviceGetMemPool 11020] (out: Out<CUmemoryPool>, device: CUdevice) => locked(|driver| {
        let device = driver.device(device)?;
        out.set(handle(current_of(driver, on_device(device))))
    });

    /// Lets a device use another pool.
    fn cuDeviceSetMemPool [cuDeviceSetMemPool 11020] (device: CUdevice, pool: CUmemoryPool) => locked(|driver| {
        let device = driver.device(device)?;
        set_current(driver, on_device(device), pool as usize)
    });

    /// Makes a pool.
    fn cuMemPoolCreate [cuMemPoolCreate 11020] (out: Out<CUmemoryPool>, properties: In<CUmemPoolProps>) =>
        locked(|driver| {
            refuse_while_capturing(driver)?;
            let asked = properties.get()?;
            let mut pool = Pool::new(spot(driver, asked.allocType, &asked.location)?);
            // 0 stays no limit; the rest is rounded up (seen on an H200).
            let max = (asked.maxSize as u64).checked_next_multiple_of(CHUNK);
            pool.max = max.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            pool.shareable = asked.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            let number = new_handle();
            driver.pools.all.insert(number, pool);
            out.set(handle(number))
        });

    /// Ends a pool; its memory goes back with the last that was taken of it.
    fn cuMemPoolDestroy [cuMemPoolDestroy 11020] (pool: CUmemoryPool) => locked(|driver| {
        let number = pool as usize;
        get(driver, number)?;
        if driver.pools.defaults.values().any(|default| *default == number) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver.pools.current.retain(|_, current| *current != number);
        get_mut(driver, number)?.ended = true;
        shrink(driver, number, 0);
        Ok(())
    });

    /// Gives back what a pool keeps beyond this.
    fn cuMemPoolTrimTo [cuMemPoolTrimTo 11020] (pool: CUmemoryPool, keep: usize) => locked(|driver| {
        refuse_while_capturing(driver)?;
        read(driver, pool as usize)?;
        shrink(driver, pool as usize, keep as u64);
        Ok(())
    });

    /// Takes memory of the pool that the stream's device uses.
    fn cuMemAllocAsync [cuMemAllocAsync 11020], cuMemAllocAsync_ptsz [11020] (
        out: Out<CUdeviceptr>, bytes: usize, stream: CUstream
    ) |per_thread| => locked(|driver| out.set(allocate(driver, bytes, None, stream as usize, per_thread)?));

    /// Takes memory of a pool.
    fn cuMemAllocFromPoolAsync [cuMemAllocFromPoolAsync 11020], cuMemAllocFromPoolAsync_ptsz [11020] (
        out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream
    ) |per_thread| => locked(|driver| {
        out.set(allocate(driver, bytes, Some(pool as usize), stream as usize, per_thread)?)
    });

    /// Gives memory back, a pool's or plain memory.
    fn cuMemFreeAsync [cuMemFreeAsync 11020], cuMemFreeAsync_ptsz [11020] (address: CUdeviceptr, stream: CUstream)
        |per_thread| => locked(|driver| free(driver, address, stream as usize, per_thread));
}

impl Pool {
    pub(crate) fn new((device, kind): Spot) -> Pool {
        Pool {
            device,
            kind,
            used: 0,
            forgotten: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            threshold: 0,
            max: 0,
            reuse: [1; 3],
            shareable: false,
            imported: false,
            ended: false,
        }
    }
}

/// A pool that is not destroyed.
pub(crate) fn get(driver: &Driver, number: usize) -> Outcome<&Pool> {
    let pool = driver.pools.all.get(&number);
    pool.filter(|pool| !pool.ended)
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The same where the driver reads what lies at the handle. Once the last of a destroyed pool is given back, something else
/// may lie there, and the driver dies of that (seen on an H100): this one dies at once.
pub(crate) fn read(driver: &Driver, number: usize) -> Outcome<&Pool> {
    if !driver.pools.all.contains_key(&number) {
        eprintln!("fake driver: {number:#x} is no pool");
        std::process::abort();
    }
    get(driver, number)
}

/// The same, to be changed.
pub(crate) fn get_mut(driver: &mut Driver, number: usize) -> Outcome<&mut Pool> {
    let pool = driver.pools.all.get_mut(&number);
    pool.filter(|pool| !pool.ended)
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The pool that a spot comes with.
pub(crate) fn default_of(driver: &mut Driver, spot: Spot) -> usize {
    if let Some(known) = driver.pools.defaults.get(&spot) {
        return *known;
    }
    let number = new_handle();
    driver.pools.all.insert(number, Pool::new(spot));
    driver.pools.defaults.insert(spot, number);
    number
}

/// The pool that a spot uses.
pub(crate) fn current_of(driver: &mut Driver, spot: Spot) -> usize {
    match driver.pools.current.get(&spot) {
        Some(known) => *known,
        None => default_of(driver, spot),
    }
}

/// Lets a spot use another pool of its own.
pub(crate) fn set_current(driver: &mut Driver, spot: Spot, number: usize) -> Outcome {
    let pool = get(driver, number)?;
    if (pool.device, pool.kind) != spot {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    driver.pools.current.insert(spot, number);
    Ok(())
}

fn allocate(
    driver: &mut Driver,
    bytes: usize,
    pool: Option<usize>,
    stream: usize,
    per_thread: bool,
) -> Outcome<CUdeviceptr> {
    let stream = streams::resolve(driver, stream, Default::of(per_thread))?;
    let (device, capture) = {
        let stream = streams::get(driver, stream)?;
        (stream.device, stream.capture)
    };
    if let Some(id) = capture {
        let address = graph_memory::plan_on(driver, device, bytes)?;
        capture::add_node(driver, id, stream, NodeWork::Allocate(address))?;
        return Ok(address);
    }
    refuse_while_capturing(driver)?;
    let number = match pool {
        Some(number) => number,
        None => current_of(driver, on_device(device)),
    };
    if get(driver, number)?.imported {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if bytes == 0 {
        // As the real one: success, and an address that frees to nothing.
        return Ok(0);
    }
    let counted = (bytes as u64)
        .checked_next_multiple_of(ALIGNMENT)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    take(driver, number, counted)?;
    let area = if is_managed(driver, number) {
        Area::managed(bytes as u64)
    } else {
        Area::new(bytes as u64)
    };
    let area = area.inspect_err(|_| give_back(driver, number, counted))?;
    let device = get(driver, number)?.device;
    driver.ranges.insert(Range {
        area,
        // Of no context: a pool outlives them.
        context: 0,
        device,
        source: Source::Pool {
            pool: number,
            bytes: counted,
            shared: None,
        },
    });
    Ok(area.start)
}

fn free(driver: &mut Driver, address: CUdeviceptr, stream: usize, per_thread: bool) -> Outcome {
    let stream = streams::resolve(driver, stream, Default::of(per_thread))?;
    let capture = streams::get(driver, stream)?.capture;
    if address == 0 {
        return Ok(());
    }
    let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match (&range.source, capture) {
        (Source::Graph { .. }, Some(id)) => {
            capture::add_node(driver, id, stream, NodeWork::Free(address))
        }
        // Memory from outside cannot be given back in a graph.
        (_, Some(_)) => Err(CUDA_ERROR_INVALID_VALUE),
        (Source::Graph { .. }, None) => graph_memory::free(driver, address),
        (Source::Pool { .. } | Source::Device { .. } | Source::Managed { .. }, None) => {
            refuse_while_capturing(driver)?;
            let range = driver.ranges.remove(address);
            memory::release(driver, range.ok_or(CUDA_ERROR_INVALID_VALUE)?);
            Ok(())
        }
        (Source::Imported { .. }, None) => {
            let range = driver.ranges.remove(address);
            memory::release(driver, range.ok_or(CUDA_ERROR_INVALID_VALUE)?);
            Ok(())
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether host and device share a pool's memory.
pub(crate) fn is_managed(driver: &Driver, number: usize) -> bool {
    let pool = driver.pools.all.get(&number);
    pool.is_some_and(|pool| pool.kind == Some(Kind::Managed))
}

/// Takes memory of a pool, and for the pool of the device where it has not enough.
fn take(driver: &mut Driver, number: usize, bytes: u64) -> Outcome {
    let pool = get(driver, number)?;
    let used = pool
        .used
        .checked_add(bytes)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if pool.max != 0 && used > pool.max {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let wanted = used
        .checked_next_multiple_of(CHUNK)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let grown = with_room(driver, |driver| {
        let Pool {
            device,
            kind,
            reserved,
            ..
        } = *get(driver, number)?;
        let more = wanted.saturating_sub(reserved);
        charge(driver, device, kind, more)?;
        get_mut(driver, number)?.reserved += more;
        Ok(())
    });
    if let Err(code) = grown {
        keep_what_there_is(driver, number, wanted)?;
        return Err(code);
    }
    let pool = get_mut(driver, number)?;
    pool.used = used;
    pool.used_high = pool.used_high.max(used);
    pool.reserved_high = pool.reserved_high.max(pool.reserved);
    Ok(())
}

/// A pool that did not get all that it wanted has what there was, unless its threshold is lower (seen on an H200).
fn keep_what_there_is(driver: &mut Driver, number: usize, wanted: u64) -> Outcome {
    let Pool {
        device,
        kind,
        threshold,
        ..
    } = *get(driver, number)?;
    let wanted = wanted.min(threshold);
    while get(driver, number)?.reserved < wanted && charge(driver, device, kind, CHUNK).is_ok() {
        get_mut(driver, number)?.reserved += CHUNK;
    }
    Ok(())
}

/// `cuMemFree` gave memory back: it waits for the device, so the pool goes back to its threshold.
pub(crate) fn settle(driver: &mut Driver, number: usize, bytes: u64) {
    if let Some(pool) = driver.pools.all.get_mut(&number) {
        pool.forgotten += bytes;
        let threshold = pool.threshold;
        shrink(driver, number, threshold);
    }
}

/// Gives memory back to a pool.
pub(crate) fn give_back(driver: &mut Driver, number: usize, bytes: u64) {
    let Some(pool) = driver.pools.all.get_mut(&number) else {
        return;
    };
    pool.used = pool.used.saturating_sub(bytes);
    if pool.ended {
        shrink(driver, number, 0);
    }
}

/// Gives back to the device what a pool has beyond what is used, and beyond what is to be kept.
pub(crate) fn shrink(driver: &mut Driver, number: usize, keep: u64) {
    let Some(pool) = driver.pools.all.get_mut(&number) else {
        return;
    };
    let kept = pool
        .used
        .max(keep)
        .checked_next_multiple_of(CHUNK)
        .unwrap_or(u64::MAX);
    let less = pool.reserved.saturating_sub(kept);
    pool.reserved -= less;
    if let Some(kind) = pool.kind {
        driver.node.refund(pool.device, kind, less);
    }
    if pool.ended && pool.used == 0 {
        driver.pools.all.remove(&number);
    }
}

/// Gives unused memory of all pools back to the device.
pub(crate) fn shrink_all(driver: &mut Driver) {
    let all: Vec<usize> = driver.pools.all.keys().copied().collect();
    for number in all {
        shrink(driver, number, 0);
    }
}

/// The program has waited for something: pools go back to their thresholds.
pub(crate) fn after_waiting(driver: &mut Driver) {
    let pools = driver.pools.all.iter();
    let thresholds: Vec<_> = pools
        .map(|(number, pool)| (*number, pool.threshold))
        .collect();
    for (number, threshold) in thresholds {
        shrink(driver, number, threshold);
    }
}
