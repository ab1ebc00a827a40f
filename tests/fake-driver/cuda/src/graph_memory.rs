//! Memory of graphs: taken from the device when a graph first needs it, and kept until it is trimmed.
//!
//! As seen on an H200: adding a node and making the graph ready take nothing, an upload or a launch takes it, 32 MiB at
//! a time; giving it back leaves it reserved; what is reserved is also what the driver calls used.

use std::collections::BTreeMap;
use std::ffi::c_void;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::Out;
use crate::Outcome;
use crate::address::{Area, GRANULARITY};
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::graph_ready::Ready;
use crate::graphs::NodeWork;
use crate::heap::code;
use crate::pools::{self, CHUNK};
use crate::ranges::{Range, Source};
use softmig_fake_node::edge::handle;

/// Memory of graphs, by device.
pub(crate) type GraphMemory = BTreeMap<usize, Holding>;

/// Memory of graphs on one device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    /// Taken by launches, and not given back.
    live: u64,
    /// Taken from the device.
    reserved: u64,
    /// The most that was.
    high: u64,
}

/// The flag CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.
const AUTO_FREE: u64 = 1;

exports! {
    static SYMBOLS;

    /// Gives back what graphs keep and do not need.
    fn cuDeviceGraphMemTrim [cuDeviceGraphMemTrim 11040] (device: CUdevice) => locked(|driver| {
        let device = driver.device(device)?;
        trim(driver, device);
        Ok(())
    });

    /// Memory of graphs on a device.
    fn cuDeviceGetGraphMemAttribute [cuDeviceGetGraphMemAttribute 11040] (
        device: CUdevice, attribute: CUgraphMem_attribute, out: Out<c_void>
    ) => locked(|driver| {
        let device = driver.device(device)?;
        let holding = driver.graph_memory.get(&device).copied().unwrap_or_default();
        let bytes = match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT | CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => holding.reserved,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH | CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => holding.high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        out.cast::<u64>().set(bytes)
    });
}

fn trim(driver: &mut Driver, device: usize) {
    let holding = driver.graph_memory.entry(device).or_default();
    let kept = holding.live.next_multiple_of(CHUNK);
    let less = holding.reserved.saturating_sub(kept);
    holding.reserved -= less;
    driver.node.refund(device, Kind::Graph, less);
}

/// Gives back what graphs keep of any device and do not need.
pub(crate) fn trim_all(driver: &mut Driver) {
    let devices: Vec<usize> = driver.graph_memory.keys().copied().collect();
    for device in devices {
        trim(driver, device);
    }
}

/// Sets addresses aside for a node that will take memory.
pub(crate) fn plan(
    driver: &mut Driver,
    properties: &CUmemPoolProps,
    bytes: usize,
) -> Outcome<CUdeviceptr> {
    if properties.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE
        || properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = driver.device(properties.location.id)?;
    plan_on(driver, device, bytes)
}

/// The same for an allocation that was captured.
pub(crate) fn plan_on(driver: &mut Driver, device: usize, bytes: usize) -> Outcome<CUdeviceptr> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = bytes as u64;
    let counted = bytes
        .checked_next_multiple_of(GRANULARITY)
        .filter(|counted| {
            driver
                .described(device)
                .is_ok_and(|device| *counted <= device.usable())
        })
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let area = Area::new(bytes)?;
    driver.ranges.insert(Range {
        area,
        // Of no context: it may be launched in any.
        context: 0,
        device,
        source: Source::Graph {
            bytes: counted,
            live: false,
        },
    });
    Ok(area.start)
}

/// How a node's memory was asked for.
pub(crate) fn parameters(
    driver: &Driver,
    address: CUdeviceptr,
) -> Outcome<CUDA_MEM_ALLOC_NODE_PARAMS> {
    is_planned(driver, address)?;
    let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CU_MEM_LOCATION_TYPE_DEVICE,
                id: driver.ordinal(range.device)?,
            },
            win32SecurityAttributes: handle(0),
            maxSize: 0,
            usage: 0,
            gpuDirectRDMACapable: 0,
            reserved: [0; 53],
        },
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: range.area.length as usize,
        dptr: address,
    })
}

/// Checks that an address is a node's.
pub(crate) fn is_planned(driver: &Driver, address: CUdeviceptr) -> Outcome {
    let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match range.source {
        Source::Graph { .. } => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Checks that the addresses of a graph's nodes are still there.
pub(crate) fn check(driver: &Driver, ready: &Ready) -> Outcome {
    for node in ready.work() {
        if let NodeWork::Allocate(address) | NodeWork::Free(address) = node {
            is_planned(driver, *address)?;
        }
    }
    Ok(())
}

/// Gives back memory that a launch took and the graph did not give back.
pub(crate) fn free(driver: &mut Driver, address: CUdeviceptr) -> Outcome {
    let range = driver
        .ranges
        .at_mut(address)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let Source::Graph { bytes, live } = &mut range.source else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    if !*live {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    *live = false;
    let (device, bytes) = (range.device, *bytes);
    let holding = driver.graph_memory.entry(device).or_default();
    holding.live = holding.live.saturating_sub(bytes);
    Ok(())
}

/// Takes what a graph needs from the devices, before it runs.
pub(crate) fn provide(driver: &mut Driver, ready: &Ready) -> Outcome {
    let mut live: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for node in ready.work() {
        let (NodeWork::Allocate(address) | NodeWork::Free(address)) = node else {
            continue;
        };
        let Some((device, bytes, taken)) = planned(driver, *address) else {
            continue;
        };
        let before = driver
            .graph_memory
            .get(&device)
            .map_or(0, |holding| holding.live);
        let (now, most) = live.entry(device).or_insert((before, before));
        match node {
            // It is there from an earlier launch.
            NodeWork::Allocate(_) if taken => {}
            NodeWork::Allocate(_) => *now += bytes,
            _ => *now = now.saturating_sub(bytes),
        }
        *most = (*most).max(*now);
    }
    for (device, (_, most)) in live {
        reserve(driver, device, most)?;
    }
    Ok(())
}

/// Takes what a graph needs, and notes what will be taken when it has run.
pub(crate) fn begin(driver: &mut Driver, ready: &Ready) -> Outcome {
    for node in ready.work() {
        let NodeWork::Allocate(address) = node else {
            continue;
        };
        if let Some((_, _, true)) = planned(driver, *address) {
            if ready.flags & AUTO_FREE == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            free(driver, *address)?;
        }
    }
    provide(driver, ready)?;
    for node in ready.work() {
        match node {
            NodeWork::Allocate(address) => take(driver, *address)?,
            NodeWork::Free(address) => free(driver, *address)?,
            _ => {}
        }
    }
    Ok(())
}

fn take(driver: &mut Driver, address: CUdeviceptr) -> Outcome {
    let range = driver
        .ranges
        .at_mut(address)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let device = range.device;
    if let Source::Graph { bytes, live } = &mut range.source {
        *live = true;
        driver.graph_memory.entry(device).or_default().live += *bytes;
    }
    Ok(())
}

/// A node's device, how much it takes, and whether it is taken now.
fn planned(driver: &Driver, address: CUdeviceptr) -> Option<(usize, u64, bool)> {
    let range = driver.ranges.at(address)?;
    match range.source {
        Source::Graph { bytes, live } => Some((range.device, bytes, live)),
        _ => None,
    }
}

/// Takes memory of the device for graphs; what there was of it stays, also where that is not enough (seen on an H200).
fn reserve(driver: &mut Driver, device: usize, bytes: u64) -> Outcome {
    let wanted = bytes
        .checked_next_multiple_of(CHUNK)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    loop {
        let holding = driver.graph_memory.entry(device).or_default();
        holding.high = holding.high.max(holding.reserved);
        if holding.reserved >= wanted {
            return Ok(());
        }
        let taken = driver.node.charge(device, Kind::Graph, CHUNK);
        if let Err(full) = taken {
            pools::shrink_all(driver);
            let again = driver.node.charge(device, Kind::Graph, CHUNK);
            again.map_err(|_| code(full))?;
        }
        driver.graph_memory.entry(device).or_default().reserved += CHUNK;
    }
}
