//! Virtual memory: addresses and physical memory, each by itself, and the one mapped to the other.

use std::collections::BTreeMap;
use std::ffi::c_void;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Block;

use crate::Outcome;
use crate::address::{Area, GRANULARITY};
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::heap::code;
use crate::memory;
use crate::pool_kinds;
use crate::ranges::{Range, Source};
use crate::room::with_room;
use crate::sharing;
use crate::streams::{self, Default};
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// Reservations, and physical memory.
#[derive(Default)]
pub(crate) struct Virtual {
    /// Addresses set aside, by the first.
    reserved: BTreeMap<u64, Area>,
    pub(crate) physical: BTreeMap<u64, Physical>,
}

/// Physical memory that this process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) block: Block,
    pub(crate) handle_types: CUmemAllocationHandleType,
    /// How many times the handle is to be released; at 0 it names nothing any more.
    pub(crate) references: u32,
    /// How many times it is mapped.
    mappings: u32,
}

exports! {
    static SYMBOLS;

    /// The size of which physical memory is a multiple.
    fn cuMemGetAllocationGranularity [cuMemGetAllocationGranularity 10020] (
        out: Out<usize>, properties: In<CUmemAllocationProp>, _which: CUmemAllocationGranularity_flags
    ) => locked(|driver| {
        device_of(driver, &properties.get()?)?;
        out.set(GRANULARITY as usize)
    });

    /// Sets addresses aside.
    fn cuMemAddressReserve [cuMemAddressReserve 10020] (
        out: Out<CUdeviceptr>, bytes: usize, alignment: usize, _wish: CUdeviceptr, _flags: u64
    ) => locked(|driver| {
        let (bytes, alignment) = (bytes as u64, alignment as u64);
        if bytes == 0 || bytes % GRANULARITY != 0 || alignment != 0 && !alignment.is_power_of_two() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let area = Area::reserve(bytes, alignment)?;
        driver.memory.reserved.insert(area.start, area);
        out.set(area.start)
    });

    /// Gives addresses back to which nothing is mapped.
    fn cuMemAddressFree [cuMemAddressFree 10020] (start: CUdeviceptr, bytes: usize) => locked(|driver| {
        let area = driver.memory.reserved.get(&start).copied().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mapped = driver.ranges.iter().any(|range| area.has(range.area.start, range.area.length));
        if area.length != bytes as u64 || mapped {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver.memory.reserved.remove(&start);
        area.give_back();
        Ok(())
    });

    /// Takes physical memory.
    fn cuMemCreate [cuMemCreate 10020] (
        out: Out<CUmemGenericAllocationHandle>, bytes: usize, properties: In<CUmemAllocationProp>, flags: u64
    ) => locked(|driver| {
        let asked = properties.get()?;
        let device = device_of(driver, &asked)?;
        let bytes = bytes as u64;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 || !out.is_wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let block = with_room(driver, |driver| {
            let block = match device {
                Some(device) => driver.node.create_block(device, bytes),
                None => driver.node.create_host_block(bytes),
            };
            block.map_err(code)
        })?;
        out.set(enter(driver, block, asked.requestedHandleTypes))
    });

    /// Releases a handle once. The memory stays while it is mapped, or others have it.
    fn cuMemRelease [cuMemRelease 10020] (number: CUmemGenericAllocationHandle) => locked(|driver| {
        get_mut(driver, number)?.references -= 1;
        let_go_if_unused(driver, number);
        Ok(())
    });

    /// Maps physical memory to addresses set aside.
    fn cuMemMap [cuMemMap 10020] (
        start: CUdeviceptr, bytes: usize, offset: usize, number: CUmemGenericAllocationHandle, flags: u64
    ) => locked(|driver| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        map(driver, Area { start, length: bytes as u64 }, offset as u64, number)
    });

    /// Takes away what is mapped to these addresses.
    fn cuMemUnmap [cuMemUnmap 10020] (start: CUdeviceptr, bytes: usize) =>
        locked(|driver| unmap(driver, Area { start, length: bytes as u64 }));

    /// Says which devices reach the memory; here all do, as soon as it is mapped.
    fn cuMemSetAccess [cuMemSetAccess 10020] (
        start: CUdeviceptr, bytes: usize, access: In<CUmemAccessDesc>, count: usize
    ) => locked(|driver| {
        for wanted in access.list(count)? {
            if wanted.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE {
                driver.device(wanted.location.id)?;
            }
        }
        let area = Area { start, length: bytes as u64 };
        let mut mapped: u64 = 0;
        for range in mappings_in(driver, area) {
            mapped += range.area.length;
        }
        if mapped == area.length { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    });

    /// The handle of what is mapped there, to be released once more.
    fn cuMemRetainAllocationHandle [cuMemRetainAllocationHandle 11000] (
        out: Out<CUmemGenericAllocationHandle>, address: *mut c_void
    ) => locked(|driver| {
        let range = driver.ranges.around(address as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Source::Mapped { physical } = range.source else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        let known = driver.memory.physical.get_mut(&physical).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        known.references += 1;
        out.set(physical)
    });

    /// How the memory was asked for.
    fn cuMemGetAllocationPropertiesFromHandle [cuMemGetAllocationPropertiesFromHandle 10020] (
        out: Out<CUmemAllocationProp>, number: CUmemGenericAllocationHandle
    ) => locked(|driver| {
        let physical = *get_mut(driver, number)?;
        out.set(CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: physical.handle_types,
            location: CUmemLocation {
                type_: match physical.block.is_host {
                    true => CU_MEM_LOCATION_TYPE_HOST,
                    false => CU_MEM_LOCATION_TYPE_DEVICE,
                },
                id: driver.ordinal(physical.block.device)?,
            },
            win32HandleMetaData: handle(0),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        })
    });

    /// A descriptor by which another process can have the memory, and which keeps it.
    fn cuMemExportToShareableHandle [cuMemExportToShareableHandle 10020] (
        out: Out<c_void>, number: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64
    ) => locked(|driver| {
        let physical = *get_mut(driver, number)?;
        let wanted = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if kind != wanted || flags != 0 || physical.handle_types & wanted == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = driver.node.export_block(physical.block.id).map_err(sharing::failed)?;
        out.cast::<i32>().set(std::os::fd::IntoRawFd::into_raw_fd(file))
    });

    /// Another process's memory, by a descriptor. It is the program's, and stays open.
    fn cuMemImportFromShareableHandle [cuMemImportFromShareableHandle 10020] (
        out: Out<CUmemGenericAllocationHandle>, descriptor: *mut c_void, kind: CUmemAllocationHandleType
    ) => locked(|driver| {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = sharing::borrow(descriptor as usize)?;
        let block = driver.node.hold_block_of(&file).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(enter(driver, block, kind))
    });

    /// Maps memory into sparse arrays. The memory is counted where it was taken, and arrays have no content here.
    fn cuMemMapArrayAsync [cuMemMapArrayAsync 11010], cuMemMapArrayAsync_ptsz [11010] (
        list: Out<CUarrayMapInfo>, count: u32, stream: CUstream
    ) |per_thread| => locked(|driver| {
        streams::resolve(driver, stream as usize, Default::of(per_thread))?;
        if !list.is_wanted() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    });
}

/// The device of which memory is asked for; `None` for the host's.
fn device_of(driver: &Driver, asked: &CUmemAllocationProp) -> Outcome<Option<usize>> {
    let CUmemLocation { type_, id } = asked.location;
    match (asked.type_, type_) {
        (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE) => driver.device(id).map(Some),
        (CU_MEM_ALLOCATION_TYPE_PINNED, place) if pool_kinds::is_host(place) => Ok(None),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn enter(driver: &mut Driver, block: Block, handle_types: CUmemAllocationHandleType) -> u64 {
    let number = new_handle() as u64;
    let physical = Physical {
        block,
        handle_types,
        references: 1,
        mappings: 0,
    };
    driver.memory.physical.insert(number, physical);
    number
}

/// Memory whose handle is not released.
fn get_mut(driver: &mut Driver, number: u64) -> Outcome<&mut Physical> {
    let physical = driver.memory.physical.get_mut(&number);
    physical
        .filter(|physical| physical.references > 0)
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn map(driver: &mut Driver, area: Area, offset: u64, number: u64) -> Outcome {
    let physical = *get_mut(driver, number)?;
    let free = reservation(driver, area).is_some() && mappings_in(driver, area).next().is_none();
    let fits = offset
        .checked_add(area.length)
        .is_some_and(|end| end <= physical.block.bytes);
    if !free || !fits || area.length == 0 || !offset.is_multiple_of(GRANULARITY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let file = driver.node.open_block(physical.block.id);
    area.replace_by_file(&file.map_err(sharing::failed)?, offset)?;
    get_mut(driver, number)?.mappings += 1;
    driver.ranges.insert(Range {
        area,
        // Of no context: addresses are the device's.
        context: 0,
        device: physical.block.device,
        source: Source::Mapped { physical: number },
    });
    Ok(())
}

fn unmap(driver: &mut Driver, area: Area) -> Outcome {
    if area.length == 0 || reservation(driver, area).is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mappings: Vec<Area> = mappings_in(driver, area).map(|range| range.area).collect();
    // A mapping goes as a whole.
    if !mappings
        .iter()
        .all(|mapping| area.has(mapping.start, mapping.length))
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for mapping in mappings {
        if let Some(range) = driver.ranges.remove(mapping.start) {
            memory::release(driver, range);
        }
    }
    Ok(())
}

/// The addresses set aside that these are among.
fn reservation(driver: &Driver, area: Area) -> Option<Area> {
    let mut reserved = driver.memory.reserved.values();
    reserved
        .find(|reserved| reserved.has(area.start, area.length))
        .copied()
}

/// The mappings at any of these addresses.
fn mappings_in(driver: &Driver, area: Area) -> impl Iterator<Item = &Range> {
    let end = area.start.saturating_add(area.length);
    driver.ranges.iter().filter(move |range| {
        let mapped = matches!(range.source, Source::Mapped { .. });
        mapped && range.area.start < end && area.start < range.area.start + range.area.length
    })
}

/// A mapping is gone.
pub(crate) fn unmapped(driver: &mut Driver, number: u64) {
    if let Some(physical) = driver.memory.physical.get_mut(&number) {
        physical.mappings = physical.mappings.saturating_sub(1);
    }
    let_go_if_unused(driver, number);
}

/// Lets go of memory that has no handle and is not mapped, here or under another handle of the same memory.
fn let_go_if_unused(driver: &mut Driver, number: u64) {
    let Some(physical) = driver.memory.physical.get(&number).copied() else {
        return;
    };
    if physical.references > 0 || physical.mappings > 0 {
        return;
    }
    driver.memory.physical.remove(&number);
    let mut others = driver.memory.physical.values();
    if !others.any(|other| other.block.id == physical.block.id) {
        driver.node.drop_block(physical.block.id);
    }
}
