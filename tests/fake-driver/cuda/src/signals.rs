//! Work in a stream that the host sees or takes part in: words in memory, and calls.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::entry::locked;
use crate::export::exports;
use crate::streams::{self, Default};
use crate::work::{HostCall, Op};

exports! {
    static SYMBOLS;

    /// Calls the program when the stream gets to it.
    fn cuLaunchHostFunc [cuLaunchHostFunc 10000], cuLaunchHostFunc_ptsz [10000] (
        stream: CUstream, function: CUhostFn, data: *mut c_void
    ) |per_thread| => locked(|driver| {
        let call = HostCall {
            function: function.ok_or(CUDA_ERROR_INVALID_VALUE)?,
            data: data.expose_provenance(),
        };
        streams::submit(driver, stream as usize, Default::of(per_thread), Op::Host(call))
    });

    /// Lets a stream wait until a word is as wanted.
    fn cuStreamWaitValue32_v2 [cuStreamWaitValue32 11070], cuStreamWaitValue32_v2_ptsz [11070] (
        stream: CUstream, address: CUdeviceptr, value: u32, comparison: u32
    ) |per_thread| => locked(|driver| {
        let op = Op::AwaitValue { address: word(address)?, value, comparison };
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Writes a word when the stream gets to it.
    fn cuStreamWriteValue32_v2 [cuStreamWriteValue32 11070], cuStreamWriteValue32_v2_ptsz [11070] (
        stream: CUstream, address: CUdeviceptr, value: u32, _flags: u32
    ) |per_thread| => locked(|driver| {
        let op = Op::WriteValue { address: word(address)?, value };
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Changes how strict the driver is with this thread while something captures.
    fn cuThreadExchangeStreamCaptureMode [cuThreadExchangeStreamCaptureMode 10010] (
        mode: Out<CUstreamCaptureMode>
    ) => locked(|_| {
        let new = mode.get()?;
        if new > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        mode.set(crate::thread::exchange_capture_mode(new))
    });
}

fn word(address: CUdeviceptr) -> Outcome<u64> {
    if address == 0 || !address.is_multiple_of(4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(address)
}
