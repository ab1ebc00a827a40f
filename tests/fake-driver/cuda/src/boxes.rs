//! Copies of rectangles and boxes. Arrays have no content here, so a copy of one only takes its time.

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

/// Bytes that the device copies or fills in a microsecond. Far fewer than a real one, since the host does it.
const BYTES_PER_MICROSECOND: usize = 8192;

/// How long the device takes to copy or fill this many bytes of its memory, in nanoseconds.
pub(crate) fn time_of(bytes: usize) -> u64 {
    (bytes / BYTES_PER_MICROSECOND) as u64 * 1000
}

/// Where rows begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    start: u64,
    /// From one row to the next, in bytes.
    pitch: usize,
    /// From one layer of rows to the next, in bytes.
    layer: usize,
}

impl Place {
    /// One row.
    pub(crate) fn line(start: u64) -> Place {
        Place::rows(start, 0)
    }

    /// One layer of rows.
    pub(crate) fn rows(start: u64, pitch: usize) -> Place {
        Place {
            start,
            pitch,
            layer: 0,
        }
    }

    /// Where a row begins.
    pub(crate) fn row(&self, row: usize, layer: usize) -> u64 {
        let before = row
            .wrapping_mul(self.pitch)
            .wrapping_add(layer.wrapping_mul(self.layer));
        self.start.wrapping_add(before as u64)
    }
}

/// Width in bytes, height and depth.
pub(crate) type Size = (usize, usize, usize);

/// A copy. An array has no [`Place`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    to: Option<Place>,
    from: Option<Place>,
    size: Size,
    /// On the device, in nanoseconds.
    pub(crate) time: u64,
}

/// One end of a copy, as a program describes it.
pub(crate) enum End {
    Array,
    Device(Place),
    Host(Place),
    /// The address tells which.
    Any(Place),
}

impl End {
    /// One row of a device's.
    pub(crate) fn device(start: u64) -> End {
        End::Device(Place::line(start))
    }

    /// One row of the host's.
    pub(crate) fn host(start: u64) -> End {
        End::Host(Place::line(start))
    }

    /// One row, of a device or of the host: the address tells which.
    pub(crate) fn any(start: u64) -> End {
        End::Any(Place::line(start))
    }

    fn place(&self) -> Option<Place> {
        match self {
            End::Array => None,
            End::Device(place) | End::Host(place) | End::Any(place) => Some(*place),
        }
    }

    fn is_on_device(&self, driver: &Driver) -> bool {
        match self {
            End::Array | End::Device(_) => true,
            End::Host(_) => false,
            End::Any(place) => driver
                .ranges
                .around(place.start)
                .is_some_and(|range| range.is_device()),
        }
    }

    fn check(&self, driver: &Driver, size: Size) -> Outcome {
        match self {
            End::Array | End::Host(_) => Ok(()),
            End::Device(place) => check(driver, *place, size, false),
            End::Any(place) => check(driver, *place, size, true),
        }
    }
}

/// Checks that device memory is as long as said. An address that the driver does not know may be the host's, where a
/// function takes both.
pub(crate) fn check(driver: &Driver, place: Place, size: Size, or_host: bool) -> Outcome {
    driver.contexts.current()?;
    let (width, height, depth) = size;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    let last = place.row(height - 1, depth - 1).wrapping_add(width as u64);
    let bytes = last.wrapping_sub(place.start);
    match driver.ranges.around(place.start) {
        Some(range) if range.area.has(place.start, bytes) => Ok(()),
        None if or_host && place.start != 0 => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Copy {
    /// Between these ends, if they are as long as said.
    pub(crate) fn new(driver: &Driver, to: &End, from: &End, size: Size) -> Outcome<Copy> {
        to.check(driver, size)?;
        from.check(driver, size)?;
        let (width, height, depth) = size;
        let bytes = width.saturating_mul(height).saturating_mul(depth);
        let within = to.is_on_device(driver) && from.is_on_device(driver);
        Ok(Copy {
            to: to.place(),
            from: from.place(),
            size,
            time: if within { time_of(bytes) } else { 0 },
        })
    }

    /// Copies.
    pub(crate) fn make(&self) {
        let (Some(to), Some(from)) = (self.to, self.from) else {
            return;
        };
        let (width, height, depth) = self.size;
        for layer in 0..depth {
            for row in 0..height {
                let (to, from) = (to.row(row, layer), from.row(row, layer));
                // SAFETY: device addresses were checked, and for host addresses the program answers.
                unsafe { address::copy(to, from, width) };
            }
        }
    }
}

/// Copies once all that was to be done before is done; who copies from or to the host waits for that.
pub(crate) fn copy_now(to: &End, from: &End, size: Size, per_thread: bool) -> Outcome {
    let default = Default::of(per_thread);
    let within = locked(|driver| Ok(to.is_on_device(driver) && from.is_on_device(driver)))?;
    if within {
        return locked(|driver| {
            let copy = Copy::new(driver, to, from, size)?;
            streams::submit_beside_captures(driver, default, Op::Copy(copy))
        });
    }
    let mut copy = None;
    waiting::wait(|driver| {
        copy = Some(Copy::new(driver, to, from, size)?);
        streams::when_idle(driver, 0, default)
    })?;
    if let Some(copy) = copy {
        copy.make();
    }
    Ok(())
}

/// Copies when a stream gets to it.
pub(crate) fn copy_in(
    stream: CUstream,
    to: &End,
    from: &End,
    size: Size,
    per_thread: bool,
) -> Outcome {
    locked(|driver| {
        let op = Op::Copy(Copy::new(driver, to, from, size)?);
        streams::submit(driver, stream as usize, Default::of(per_thread), op)
    })
}

/// An end of a copy as it is described: its kind, the addresses of which one counts, and what lies before the first byte.
fn end(kind: CUmemorytype, addresses: (u64, u64), pitches: (usize, usize), at: Size) -> End {
    let (host, device) = addresses;
    let (pitch, height) = pitches;
    let place = |start: u64| {
        let all = Place {
            start,
            pitch,
            layer: pitch.saturating_mul(height),
        };
        let (x, y, z) = at;
        Place {
            start: all.row(y, z).wrapping_add(x as u64),
            ..all
        }
    };
    match kind {
        CU_MEMORYTYPE_HOST => End::Host(place(host)),
        CU_MEMORYTYPE_DEVICE => End::Device(place(device)),
        CU_MEMORYTYPE_ARRAY => End::Array,
        _ => End::Any(place(device)),
    }
}

fn rectangle(asked: In<CUDA_MEMCPY2D>) -> Outcome<(End, End, Size)> {
    let asked = asked.get()?;
    let to = end(
        asked.dstMemoryType,
        (asked.dstHost as u64, asked.dstDevice),
        (asked.dstPitch, 0),
        (asked.dstXInBytes, asked.dstY, 0),
    );
    let from = end(
        asked.srcMemoryType,
        (asked.srcHost as u64, asked.srcDevice),
        (asked.srcPitch, 0),
        (asked.srcXInBytes, asked.srcY, 0),
    );
    Ok((to, from, (asked.WidthInBytes, asked.Height, 1)))
}

/// Both kinds of description have these fields.
macro_rules! a_box {
    ($asked:expr) => {{
        let asked = $asked.get()?;
        let to = end(
            asked.dstMemoryType,
            (asked.dstHost as u64, asked.dstDevice),
            (asked.dstPitch, asked.dstHeight),
            (asked.dstXInBytes, asked.dstY, asked.dstZ),
        );
        let from = end(
            asked.srcMemoryType,
            (asked.srcHost as u64, asked.srcDevice),
            (asked.srcPitch, asked.srcHeight),
            (asked.srcXInBytes, asked.srcY, asked.srcZ),
        );
        (to, from, (asked.WidthInBytes, asked.Height, asked.Depth))
    }};
}

fn box_of(asked: In<CUDA_MEMCPY3D>) -> Outcome<(End, End, Size)> {
    Ok(a_box!(asked))
}

fn box_between(asked: In<CUDA_MEMCPY3D_PEER>) -> Outcome<(End, End, Size)> {
    Ok(a_box!(asked))
}

fn now(asked: Outcome<(End, End, Size)>, per_thread: bool) -> Outcome {
    let (to, from, size) = asked?;
    copy_now(&to, &from, size, per_thread)
}

fn later(stream: CUstream, asked: Outcome<(End, End, Size)>, per_thread: bool) -> Outcome {
    let (to, from, size) = asked?;
    copy_in(stream, &to, &from, size, per_thread)
}

exports! {
    static SYMBOLS;

    /// Copies a rectangle.
    fn cuMemcpy2D_v2 [cuMemcpy2D 3020], cuMemcpy2D_v2_ptds [7000] (asked: In<CUDA_MEMCPY2D>)
        |per_thread| => now(rectangle(asked), per_thread);

    /// Copies a rectangle, whatever its pitch.
    fn cuMemcpy2DUnaligned_v2 [cuMemcpy2DUnaligned 3020], cuMemcpy2DUnaligned_v2_ptds [7000] (asked: In<CUDA_MEMCPY2D>)
        |per_thread| => now(rectangle(asked), per_thread);

    /// Copies a rectangle when the stream gets to it.
    fn cuMemcpy2DAsync_v2 [cuMemcpy2DAsync 3020], cuMemcpy2DAsync_v2_ptsz [7000] (
        asked: In<CUDA_MEMCPY2D>, stream: CUstream
    ) |per_thread| => later(stream, rectangle(asked), per_thread);

    /// Copies a box.
    fn cuMemcpy3D_v2 [cuMemcpy3D 3020], cuMemcpy3D_v2_ptds [7000] (asked: In<CUDA_MEMCPY3D>)
        |per_thread| => now(box_of(asked), per_thread);

    /// Copies a box when the stream gets to it.
    fn cuMemcpy3DAsync_v2 [cuMemcpy3DAsync 3020], cuMemcpy3DAsync_v2_ptsz [7000] (
        asked: In<CUDA_MEMCPY3D>, stream: CUstream
    ) |per_thread| => later(stream, box_of(asked), per_thread);

    /// Copies a box from one context to another.
    fn cuMemcpy3DPeer [cuMemcpy3DPeer 4000], cuMemcpy3DPeer_ptds [7000] (asked: In<CUDA_MEMCPY3D_PEER>)
        |per_thread| => now(box_between(asked), per_thread);

    /// Copies a box from one context to another when the stream gets to it.
    fn cuMemcpy3DPeerAsync [cuMemcpy3DPeerAsync 4000], cuMemcpy3DPeerAsync_ptsz [7000] (
        asked: In<CUDA_MEMCPY3D_PEER>, stream: CUstream
    ) |per_thread| => later(stream, box_between(asked), per_thread);

    /// Copies from an array to another.
    fn cuMemcpyAtoA_v2 [cuMemcpyAtoA 3020], cuMemcpyAtoA_v2_ptds [7000] (
        _to: CUarray, _to_offset: usize, _from: CUarray, _from_offset: usize, bytes: usize
    ) |per_thread| => copy_now(&End::Array, &End::Array, (bytes, 1, 1), per_thread);

    /// Copies from an array.
    fn cuMemcpyAtoD_v2 [cuMemcpyAtoD 3020], cuMemcpyAtoD_v2_ptds [7000] (
        to: CUdeviceptr, _from: CUarray, _offset: usize, bytes: usize
    ) |per_thread| => copy_now(&End::device(to), &End::Array, (bytes, 1, 1), per_thread);

    /// Copies into an array.
    fn cuMemcpyDtoA_v2 [cuMemcpyDtoA 3020], cuMemcpyDtoA_v2_ptds [7000] (
        _to: CUarray, _offset: usize, from: CUdeviceptr, bytes: usize
    ) |per_thread| => copy_now(&End::Array, &End::device(from), (bytes, 1, 1), per_thread);
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Copies several boxes: how they are described is not understood.
    fn cuMemcpy3DBatchAsync [cuMemcpy3DBatchAsync 12080], cuMemcpy3DBatchAsync_ptsz [12080] (
        _count: usize, _list: *mut CUDA_MEMCPY3D_BATCH_OP, _failed: crate::Out<usize>, _flags: u64, _stream: CUstream
    ) |_per_thread| => Err(CUDA_ERROR_NOT_SUPPORTED);

    /// Copies several boxes: how they are described is not understood.
    fn cuMemcpy3DBatchAsync_v2 [cuMemcpy3DBatchAsync 13000], cuMemcpy3DBatchAsync_v2_ptsz [13000] (
        _count: usize, _list: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: u64, _stream: CUstream
    ) |_per_thread| => Err(CUDA_ERROR_NOT_SUPPORTED);

    /// Copies a box: how it is described is not understood.
    fn cuMemcpy3DWithAttributesAsync [cuMemcpy3DWithAttributesAsync 13020], cuMemcpy3DWithAttributesAsync_ptsz [13020] (
        _box: *mut CUDA_MEMCPY3D_BATCH_OP, _flags: u64, _stream: CUstream
    ) |_per_thread| => Err(CUDA_ERROR_NOT_SUPPORTED);
}
