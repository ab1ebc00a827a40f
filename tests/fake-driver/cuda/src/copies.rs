//! Copying. Within device memory that takes time on the device; it happens when the stream gets to it.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::boxes::{End, copy_in, copy_now};
use crate::export::exports;
use crate::{In, Outcome};

fn line(stream: Option<CUstream>, to: End, from: End, bytes: usize, per_thread: bool) -> Outcome {
    let size = (bytes, 1, 1);
    match stream {
        Some(stream) => copy_in(stream, &to, &from, size, per_thread),
        None => copy_now(&to, &from, size, per_thread),
    }
}

exports! {
    static SYMBOLS;

    /// Copies from the host to a device, once all that was to be done before is done.
    fn cuMemcpyHtoD_v2 [cuMemcpyHtoD 3020], cuMemcpyHtoD_v2_ptds [7000] (
        to: CUdeviceptr, from: In<c_void>, bytes: usize
    ) |per_thread| => line(None, End::device(to), End::host(from.address() as u64), bytes, per_thread);

    /// Copies from a device to the host, once all that was to be done before is done.
    fn cuMemcpyDtoH_v2 [cuMemcpyDtoH 3020], cuMemcpyDtoH_v2_ptds [7000] (
        to: *mut c_void, from: CUdeviceptr, bytes: usize
    ) |per_thread| => line(None, End::host(to as u64), End::device(from), bytes, per_thread);

    /// Copies between devices.
    fn cuMemcpyDtoD_v2 [cuMemcpyDtoD 3020], cuMemcpyDtoD_v2_ptds [7000] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize
    ) |per_thread| => line(None, End::device(to), End::device(from), bytes, per_thread);

    /// Copies from and to anywhere, once all that was to be done before is done.
    fn cuMemcpy [cuMemcpy 4000], cuMemcpy_ptds [7000] (to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
        |per_thread| => line(None, End::any(to), End::any(from), bytes, per_thread);

    /// Copies from one context to another.
    fn cuMemcpyPeer [cuMemcpyPeer 4000], cuMemcpyPeer_ptds [7000] (
        to: CUdeviceptr, _to_context: CUcontext, from: CUdeviceptr, _from_context: CUcontext, bytes: usize
    ) |per_thread| => line(None, End::device(to), End::device(from), bytes, per_thread);

    /// Copies from the host to a device when the stream gets to it.
    fn cuMemcpyHtoDAsync_v2 [cuMemcpyHtoDAsync 3020], cuMemcpyHtoDAsync_v2_ptsz [7000] (
        to: CUdeviceptr, from: In<c_void>, bytes: usize, stream: CUstream
    ) |per_thread| => line(Some(stream), End::device(to), End::host(from.address() as u64), bytes, per_thread);

    /// Copies from a device to the host when the stream gets to it.
    fn cuMemcpyDtoHAsync_v2 [cuMemcpyDtoHAsync 3020], cuMemcpyDtoHAsync_v2_ptsz [7000] (
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |per_thread| => line(Some(stream), End::host(to as u64), End::device(from), bytes, per_thread);

    /// Copies between devices when the stream gets to it.
    fn cuMemcpyDtoDAsync_v2 [cuMemcpyDtoDAsync 3020], cuMemcpyDtoDAsync_v2_ptsz [7000] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |per_thread| => line(Some(stream), End::device(to), End::device(from), bytes, per_thread);

    /// Copies from and to anywhere when the stream gets to it.
    fn cuMemcpyAsync [cuMemcpyAsync 4000], cuMemcpyAsync_ptsz [7000] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
    ) |per_thread| => line(Some(stream), End::any(to), End::any(from), bytes, per_thread);

    /// Copies from one context to another when the stream gets to it.
    fn cuMemcpyPeerAsync [cuMemcpyPeerAsync 4000], cuMemcpyPeerAsync_ptsz [7000] (
        to: CUdeviceptr, _to_context: CUcontext, from: CUdeviceptr, _from_context: CUcontext, bytes: usize,
        stream: CUstream
    ) |per_thread| => line(Some(stream), End::device(to), End::device(from), bytes, per_thread);
}

#[cfg(not(feature = "old"))]
fn several(
    stream: CUstream,
    to: crate::Out<CUdeviceptr>,
    from: crate::Out<CUdeviceptr>,
    sizes: crate::Out<usize>,
    count: usize,
    per_thread: bool,
) -> Outcome {
    (0..count).try_for_each(|index| {
        let (to, from) = (End::any(to.at(index)?), End::any(from.at(index)?));
        line(Some(stream), to, from, sizes.at(index)?, per_thread)
    })
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Copies several pieces when the stream gets to it.
    fn cuMemcpyBatchAsync [cuMemcpyBatchAsync 12080], cuMemcpyBatchAsync_ptsz [12080] (
        to: crate::Out<CUdeviceptr>, from: crate::Out<CUdeviceptr>, sizes: crate::Out<usize>, count: usize,
        _attributes: *mut CUmemcpyAttributes, _of: *mut usize, _attribute_count: usize, _failed: *mut usize,
        stream: CUstream
    ) |per_thread| => several(stream, to, from, sizes, count, per_thread);

    /// Copies several pieces when the stream gets to it.
    fn cuMemcpyBatchAsync_v2 [cuMemcpyBatchAsync 13000], cuMemcpyBatchAsync_v2_ptsz [13000] (
        to: crate::Out<CUdeviceptr>, from: crate::Out<CUdeviceptr>, sizes: crate::Out<usize>, count: usize,
        _attributes: *mut CUmemcpyAttributes, _of: *mut usize, _attribute_count: usize, stream: CUstream
    ) |per_thread| => several(stream, to, from, sizes, count, per_thread);

    /// Copies when the stream gets to it.
    fn cuMemcpyWithAttributesAsync [cuMemcpyWithAttributesAsync 13020], cuMemcpyWithAttributesAsync_ptsz [13020] (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, _attributes: *mut CUmemcpyAttributes, stream: CUstream
    ) |per_thread| => line(Some(stream), End::any(to), End::any(from), bytes, per_thread);
}
