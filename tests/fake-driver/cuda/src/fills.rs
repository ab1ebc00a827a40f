//! Filling device memory. That takes time on the device, and happens when the stream gets to it.

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::address;
use crate::boxes::{Place, check, time_of};
use crate::entry::locked;
use crate::export::exports;
use crate::streams::{self, Default};
use crate::work::Op;

/// Rows of elements that all become one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    to: Place,
    value: u32,
    /// Of an element, in bytes.
    size: usize,
    width: usize,
    height: usize,
    /// On the device, in nanoseconds.
    pub(crate) time: u64,
}

impl Fill {
    fn new(to: Place, value: u32, size: usize, (width, height): (usize, usize)) -> Fill {
        let bytes = width.saturating_mul(height).saturating_mul(size);
        Fill {
            to,
            value,
            size,
            width,
            height,
            time: time_of(bytes),
        }
    }

    /// Fills.
    pub(crate) fn make(&self) {
        for row in 0..self.height {
            // SAFETY: the addresses were checked when this was handed in.
            unsafe { address::fill(self.to.row(row, 0), self.value, self.size, self.width) };
        }
    }
}

/// Fills in the default stream, or when a stream gets to it.
fn fill(fill: Fill, stream: Option<CUstream>, per_thread: bool) -> Outcome {
    locked(|driver| {
        let size = (fill.width.saturating_mul(fill.size), fill.height, 1);
        check(driver, fill.to, size, false)?;
        let (op, default) = (Op::Fill(fill), Default::of(per_thread));
        match stream {
            Some(stream) => streams::submit(driver, stream as usize, default, op),
            None => streams::submit_beside_captures(driver, default, op),
        }
    })
}

fn line(to: CUdeviceptr, value: u32, size: usize, count: usize) -> Fill {
    Fill::new(Place::line(to), value, size, (count, 1))
}

fn rows(to: (CUdeviceptr, usize), value: u32, size: usize, asked: (usize, usize)) -> Fill {
    let (start, pitch) = to;
    Fill::new(Place::rows(start, pitch), value, size, asked)
}

exports! {
    static SYMBOLS;

    /// Fills with a byte.
    fn cuMemsetD8_v2 [cuMemsetD8 3020], cuMemsetD8_v2_ptds [7000] (to: CUdeviceptr, byte: u8, count: usize)
        |per_thread| => fill(line(to, byte.into(), 1, count), None, per_thread);

    /// Fills with two bytes.
    fn cuMemsetD16_v2 [cuMemsetD16 3020], cuMemsetD16_v2_ptds [7000] (to: CUdeviceptr, value: u16, count: usize)
        |per_thread| => fill(line(to, value.into(), 2, count), None, per_thread);

    /// Fills with four bytes.
    fn cuMemsetD32_v2 [cuMemsetD32 3020], cuMemsetD32_v2_ptds [7000] (to: CUdeviceptr, value: u32, count: usize)
        |per_thread| => fill(line(to, value, 4, count), None, per_thread);

    /// Fills with a byte when the stream gets to it.
    fn cuMemsetD8Async [cuMemsetD8Async 3020], cuMemsetD8Async_ptsz [7000] (
        to: CUdeviceptr, byte: u8, count: usize, stream: CUstream
    ) |per_thread| => fill(line(to, byte.into(), 1, count), Some(stream), per_thread);

    /// Fills with two bytes when the stream gets to it.
    fn cuMemsetD16Async [cuMemsetD16Async 3020], cuMemsetD16Async_ptsz [7000] (
        to: CUdeviceptr, value: u16, count: usize, stream: CUstream
    ) |per_thread| => fill(line(to, value.into(), 2, count), Some(stream), per_thread);

    /// Fills with four bytes when the stream gets to it.
    fn cuMemsetD32Async [cuMemsetD32Async 3020], cuMemsetD32Async_ptsz [7000] (
        to: CUdeviceptr, value: u32, count: usize, stream: CUstream
    ) |per_thread| => fill(line(to, value, 4, count), Some(stream), per_thread);

    /// Fills rows with a byte.
    fn cuMemsetD2D8_v2 [cuMemsetD2D8 3020], cuMemsetD2D8_v2_ptds [7000] (
        to: CUdeviceptr, pitch: usize, byte: u8, width: usize, height: usize
    ) |per_thread| => fill(rows((to, pitch), byte.into(), 1, (width, height)), None, per_thread);

    /// Fills rows with two bytes.
    fn cuMemsetD2D16_v2 [cuMemsetD2D16 3020], cuMemsetD2D16_v2_ptds [7000] (
        to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize
    ) |per_thread| => fill(rows((to, pitch), value.into(), 2, (width, height)), None, per_thread);

    /// Fills rows with four bytes.
    fn cuMemsetD2D32_v2 [cuMemsetD2D32 3020], cuMemsetD2D32_v2_ptds [7000] (
        to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize
    ) |per_thread| => fill(rows((to, pitch), value, 4, (width, height)), None, per_thread);

    /// Fills rows with a byte when the stream gets to it.
    fn cuMemsetD2D8Async [cuMemsetD2D8Async 3020], cuMemsetD2D8Async_ptsz [7000] (
        to: CUdeviceptr, pitch: usize, byte: u8, width: usize, height: usize, stream: CUstream
    ) |per_thread| => fill(rows((to, pitch), byte.into(), 1, (width, height)), Some(stream), per_thread);

    /// Fills rows with two bytes when the stream gets to it.
    fn cuMemsetD2D16Async [cuMemsetD2D16Async 3020], cuMemsetD2D16Async_ptsz [7000] (
        to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream
    ) |per_thread| => fill(rows((to, pitch), value.into(), 2, (width, height)), Some(stream), per_thread);

    /// Fills rows with four bytes when the stream gets to it.
    fn cuMemsetD2D32Async [cuMemsetD2D32Async 3020], cuMemsetD2D32Async_ptsz [7000] (
        to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream
    ) |per_thread| => fill(rows((to, pitch), value, 4, (width, height)), Some(stream), per_thread);
}
