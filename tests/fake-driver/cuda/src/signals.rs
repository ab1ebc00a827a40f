//! Work in a stream that the host sees or takes part in: words in memory, and calls.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::capture;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::streams::{self, Default};
use crate::work::{Called, HostCall, Op};

exports! {
    static SYMBOLS;

    /// Calls the program when the stream gets to it.
    fn cuLaunchHostFunc [cuLaunchHostFunc 10000], cuLaunchHostFunc_ptsz [10000] (
        stream: CUstream, function: CUhostFn, data: *mut c_void
    ) |per_thread| => locked(|driver| {
        call(driver, stream, function, data, per_thread)
    });

    /// Calls the program when the stream gets to it, as old programs want it. A graph cannot have such a call, so it
    /// spoils a capture.
    fn cuStreamAddCallback [cuStreamAddCallback 5000], cuStreamAddCallback_ptsz [7000] (
        stream: CUstream, function: CUstreamCallback, data: *mut c_void, _flags: u32
    ) |per_thread| => locked(|driver| {
        let number = streams::resolve(driver, stream as usize, Default::of(per_thread))?;
        if let Some(id) = streams::get(driver, number)?.capture {
            capture::spoil(driver, id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let call = HostCall {
            function: Called::WithStream(function, stream as usize),
            data: data.expose_provenance(),
        };
        streams::run(driver, number, Op::Host(call))
    });

    /// Lets a stream wait until a word is as wanted.
    fn cuStreamWaitValue32 [cuStreamWaitValue32 8000], cuStreamWaitValue32_ptsz [8000] (
        stream: CUstream, address: CUdeviceptr, value: u32, comparison: u32
    ) |per_thread| => locked(|driver| {
        let op = await_word(address, value, comparison)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Lets a stream wait until a word is as wanted.
    fn cuStreamWaitValue32_v2 [cuStreamWaitValue32 11070], cuStreamWaitValue32_v2_ptsz [11070] (
        stream: CUstream, address: CUdeviceptr, value: u32, comparison: u32
    ) |per_thread| => locked(|driver| {
        let op = await_word(address, value, comparison)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Lets a stream wait until a word of 64 bits is as wanted.
    fn cuStreamWaitValue64 [cuStreamWaitValue64 9000], cuStreamWaitValue64_ptsz [9000] (
        stream: CUstream, address: CUdeviceptr, value: u64, comparison: u32
    ) |per_thread| => locked(|driver| {
        let op = await_wide_word(address, value, comparison)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Lets a stream wait until a word of 64 bits is as wanted.
    fn cuStreamWaitValue64_v2 [cuStreamWaitValue64 11070], cuStreamWaitValue64_v2_ptsz [11070] (
        stream: CUstream, address: CUdeviceptr, value: u64, comparison: u32
    ) |per_thread| => locked(|driver| {
        let op = await_wide_word(address, value, comparison)?;
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    });

    /// Lets a stream wait for words and write some, one after the other.
    fn cuStreamBatchMemOp [cuStreamBatchMemOp 8000], cuStreamBatchMemOp_ptsz [8000] (
        stream: CUstream, count: u32, list: Out<CUstreamBatchMemOpParams>, _flags: u32
    ) |per_thread| => locked(|driver| several(driver, stream, count, list, per_thread));

    /// Lets a stream wait for words and write some, one after the other.
    fn cuStreamBatchMemOp_v2 [cuStreamBatchMemOp 11070], cuStreamBatchMemOp_v2_ptsz [11070] (
        stream: CUstream, count: u32, list: Out<CUstreamBatchMemOpParams>, _flags: u32
    ) |per_thread| => locked(|driver| several(driver, stream, count, list, per_thread));

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

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Calls the program when the stream gets to it; how it waits for that makes no difference.
    fn cuLaunchHostFunc_v2 [cuLaunchHostFunc 13010], cuLaunchHostFunc_v2_ptsz [13010] (
        stream: CUstream, function: CUhostFn, data: *mut c_void, _mode: u32
    ) |per_thread| => locked(|driver| call(driver, stream, function, data, per_thread));
}

fn call(
    driver: &mut Driver,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
    per_thread: bool,
) -> Outcome {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let call = HostCall {
        function: Called::WithData(function),
        data: data.expose_provenance(),
    };
    let default = Default::of(per_thread);
    streams::submit(driver, stream as usize, default, Op::Host(call))
}

fn await_word(address: CUdeviceptr, value: u32, comparison: u32) -> Outcome<Op> {
    Ok(Op::AwaitValue {
        address: word(address)?,
        value: value.into(),
        is_wide: false,
        comparison,
    })
}

fn await_wide_word(address: CUdeviceptr, value: u64, comparison: u32) -> Outcome<Op> {
    if !address.is_multiple_of(8) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Op::AwaitValue {
        address: word(address)?,
        value,
        is_wide: true,
        comparison,
    })
}

/// Each is described in words of 64 bits: which operation, the address, the value and the comparison.
fn several(
    driver: &mut Driver,
    stream: CUstream,
    count: u32,
    list: Out<CUstreamBatchMemOpParams>,
    per_thread: bool,
) -> Outcome {
    for index in 0..count as usize {
        let [operation, address, value, comparison, ..] = list.cast::<[u64; 6]>().at(index)?;
        let (value, narrow, comparison) = (value, value as u32, comparison as u32);
        let op = match operation as u32 {
            CU_STREAM_MEM_OP_WAIT_VALUE_32 => await_word(address, narrow, comparison)?,
            CU_STREAM_MEM_OP_WAIT_VALUE_64 => await_wide_word(address, value, comparison)?,
            CU_STREAM_MEM_OP_WRITE_VALUE_32 => Op::WriteValue {
                address: word(address)?,
                value: narrow,
            },
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        };
        streams::submit(driver, stream as usize, Default::of(per_thread), op)?;
    }
    Ok(())
}

/// Operations of a batch, by the header.
const CU_STREAM_MEM_OP_WAIT_VALUE_32: u32 = 1;
const CU_STREAM_MEM_OP_WRITE_VALUE_32: u32 = 2;
const CU_STREAM_MEM_OP_WAIT_VALUE_64: u32 = 4;

fn word(address: CUdeviceptr) -> Outcome<u64> {
    if address == 0 || !address.is_multiple_of(4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(address)
}
