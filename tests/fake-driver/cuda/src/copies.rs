//! Copying and filling. Both take no time on the device; they happen when their stream gets to them.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::In;
use crate::Outcome;
use crate::address;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::streams::{self, Default};
use crate::waiting;
use crate::work::Op;

exports! {
    static SYMBOLS;

    /// Copies from the host to a device, once all that was to be done before is done.
    fn cuMemcpyHtoD_v2 [cuMemcpyHtoD 3020], cuMemcpyHtoD_v2_ptds [7000] (
        to: CUdeviceptr, from: In<c_void>, bytes: usize
    ) |per_thread| => copy_now(to, from.address() as u64, bytes, Host::From, per_thread);

    /// Copies from a device to the host, once all that was to be done before is done.
    fn cuMemcpyDtoH_v2 [cuMemcpyDtoH 3020], cuMemcpyDtoH_v2_ptds [7000] (
        to: *mut c_void, from: CUdeviceptr, bytes: usize
    ) |per_thread| => copy_now(to as u64, from, bytes, Host::To, per_thread);

    /// Copies between devices, once all that was to be done before is done.
    fn cuMemcpyDtoD_v2 [cuMemcpyDtoD 3020], cuMemcpyDtoD_v2_ptds [7000] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize
    ) |per_thread| => copy_now(to, from, bytes, Host::Neither, per_thread);

    /// Copies from and to anywhere, once all that was to be done before is done.
    fn cuMemcpy [cuMemcpy 4000], cuMemcpy_ptds [7000] (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |per_thread| =>
        copy_now(to, from, bytes, Host::Maybe, per_thread);

    /// Copies when the stream gets to it.
    fn cuMemcpyAsync [cuMemcpyAsync 4000], cuMemcpyAsync_ptsz [7000] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |per_thread| => locked(|driver| {
        check(driver, to, bytes, Host::Maybe)?;
        check(driver, from, bytes, Host::Maybe)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), Op::Copy { to, from, bytes })
    });

    /// Fills device memory with a byte.
    fn cuMemsetD8_v2 [cuMemsetD8 3020], cuMemsetD8_v2_ptds [7000] (to: CUdeviceptr, byte: u8, bytes: usize)
        |per_thread| => locked(|driver| {
            check(driver, to, bytes, Host::Neither)?;
            streams::submit_beside_captures(driver, Default::of(per_thread), Op::Fill { to, byte, bytes })
        });

    /// Fills device memory with a byte when the stream gets to it.
    fn cuMemsetD8Async [cuMemsetD8Async 3020], cuMemsetD8Async_ptsz [7000] (
        to: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream
    ) |per_thread| => locked(|driver| {
        check(driver, to, bytes, Host::Neither)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), Op::Fill { to, byte, bytes })
    });
}

/// Which of two addresses are the host's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    From,
    To,
    Neither,
    Maybe,
}

fn copy_now(to: u64, from: u64, bytes: usize, host: Host, per_thread: bool) -> Outcome {
    waiting::wait(|driver| {
        if host != Host::To {
            check(driver, to, bytes, host)?;
        }
        if host != Host::From {
            check(driver, from, bytes, host)?;
        }
        streams::when_idle(driver, 0, Default::of(per_thread))
    })?;
    // SAFETY: device addresses were checked above, and for host addresses the program answers.
    unsafe { address::copy(to, from, bytes) };
    Ok(())
}

/// Checks that device memory is as long as said. An address that the driver does not know may be the host's, where a
/// function takes both.
fn check(driver: &Driver, start: u64, bytes: usize, host: Host) -> Outcome {
    driver.contexts.current()?;
    match driver.ranges.around(start) {
        Some(range) if range.area.has(start, bytes as u64) => Ok(()),
        None if host == Host::Maybe && start != 0 => Ok(()),
        _ if bytes == 0 => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
