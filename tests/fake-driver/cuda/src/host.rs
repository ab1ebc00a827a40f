//! Host memory that devices can reach: it takes nothing of any device.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::address::Area;
use crate::capture::refuse_while_capturing;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::memory;
use crate::ranges::{Range, Source};
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// Takes host memory.
    fn cuMemHostAlloc [cuMemHostAlloc 2020] (out: Out<*mut c_void>, bytes: usize, _flags: u32) =>
        locked(|driver| out.set(handle(allocate(driver, bytes)?)));

    /// Takes host memory.
    fn cuMemAllocHost_v2 [cuMemAllocHost 3020] (out: Out<*mut c_void>, bytes: usize) =>
        locked(|driver| out.set(handle(allocate(driver, bytes)?)));

    /// Gives host memory back.
    fn cuMemFreeHost [cuMemFreeHost 2000] (address: *mut c_void) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let range = take_out(driver, address, Source::is_host).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        memory::release(driver, range);
        Ok(())
    });

    /// Announces memory that the program has.
    fn cuMemHostRegister_v2 [cuMemHostRegister 6050] (address: *mut c_void, bytes: usize, _flags: u32) =>
        locked(|driver| register(driver, address as u64, bytes as u64));

    /// Takes the announcement back.
    fn cuMemHostUnregister [cuMemHostUnregister 4000] (address: *mut c_void) => locked(|driver| {
        refuse_while_capturing(driver)?;
        let range = take_out(driver, address, Source::is_registered);
        range.map(|_| ()).ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    });
}

fn allocate(driver: &mut Driver, bytes: usize) -> Outcome<usize> {
    refuse_while_capturing(driver)?;
    let (context, described) = driver.contexts.current()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let area = Area::new(bytes as u64)?;
    driver.ranges.insert(Range {
        area,
        context,
        device: described.device,
        source: Source::Host,
    });
    Ok(area.start as usize)
}

fn register(driver: &mut Driver, start: u64, length: u64) -> Outcome {
    refuse_while_capturing(driver)?;
    let (context, described) = driver.contexts.current()?;
    if start == 0 || length == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if driver.ranges.around(start).is_some() {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    driver.ranges.insert(Range {
        area: Area { start, length },
        context,
        device: described.device,
        source: Source::Registered,
    });
    Ok(())
}

fn take_out(
    driver: &mut Driver,
    address: *mut c_void,
    which: impl FnOnce(&Source) -> bool,
) -> Option<Range> {
    let start = address as u64;
    if !which(&driver.ranges.at(start)?.source) {
        return None;
    }
    driver.ranges.remove(start)
}

impl Source {
    fn is_host(&self) -> bool {
        matches!(self, Source::Host)
    }

    fn is_registered(&self) -> bool {
        matches!(self, Source::Registered)
    }
}
