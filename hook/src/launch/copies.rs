//! The work of streams besides kernels and graphs: copies and fills of the GPU's memory, which take its time as kernels do,
//! and what only keeps the stream waiting.

use softmig_driver_sys::cuda::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_SUCCESS, CUdeviceptr, CUmemorytype,
    CUresult,
};

use crate::driver::args::{In, Out};
use crate::driver::device::{device_of, is_on_device};
use crate::driver::stream::Stream;
use crate::pacing::{self, Ticket, Work, captures};

/// One of these.
pub(crate) enum Item {
    /// The GPU works.
    Work(Stream, Work),
    /// It does not: something else is waited for, or the copy engines move what the host has.
    Pause(Stream),
    /// It waits for an event, and for what else is captured if the event is.
    Join(Stream),
    /// From here on what it is given becomes a graph.
    BeginCapture(Stream),
    /// That is over.
    EndCapture(Stream),
}

/// The step after the driver's call.
enum After {
    Nothing,
    /// It is not asked at all.
    Refused(CUresult),
    Work(Ticket),
    Join,
    BeginCapture,
    EndCapture(Stream),
}

/// Gives a stream what `item` says by calling the driver, when the job may have the GPU.
#[inline]
pub(crate) fn give(item: impl FnOnce() -> Item, call: impl FnOnce() -> CUresult) -> CUresult {
    let after = if pacing::may_be_paced() {
        before(&item())
    } else {
        After::Nothing
    };
    let result = match after {
        After::Refused(refused) => refused,
        _ => call(),
    };
    if !matches!(after, After::Nothing) {
        finish(after, result);
    }
    result
}

#[cold]
#[inline(never)]
fn before(item: &Item) -> After {
    match *item {
        Item::Work(stream, work) => match pacing::admit(stream, work) {
            Ok(None) => After::Nothing,
            Ok(Some(ticket)) => After::Work(ticket),
            Err(refused) => After::Refused(refused),
        },
        Item::Pause(stream) => {
            pacing::before_pause(stream);
            After::Nothing
        }
        Item::Join(stream) => {
            pacing::before_pause(stream);
            if !captures::are_any() {
                return After::Nothing;
            }
            captures::begins();
            After::Join
        }
        Item::BeginCapture(stream) => {
            pacing::before_pause(stream);
            captures::begins();
            After::BeginCapture
        }
        Item::EndCapture(stream) if stream.is_capturing() => After::EndCapture(stream),
        Item::EndCapture(_) => After::Nothing,
    }
}

#[cold]
#[inline(never)]
fn finish(after: After, result: CUresult) {
    match after {
        After::Nothing | After::Refused(_) => {}
        After::Work(ticket) => pacing::launched(ticket, result),
        After::Join => captures::has_begun(false),
        After::BeginCapture => captures::has_begun(result == CUDA_SUCCESS),
        // One that was spoilt has ended too, though not if this is another thread than it wants.
        After::EndCapture(stream) if !stream.is_capturing() => captures::ended(),
        After::EndCapture(_) => {}
    }
}

/// Work of a stream becomes a graph from here on.
pub(crate) fn begin_capture(stream: Stream) -> Item {
    Item::BeginCapture(stream)
}

/// That is over.
pub(crate) fn end_capture(stream: Stream) -> Item {
    Item::EndCapture(stream)
}

/// A stream waits for an event.
pub(crate) fn join(stream: Stream) -> Item {
    Item::Join(stream)
}

/// A stream waits, or something else than the GPU works.
pub(crate) fn pause(stream: Stream) -> Item {
    Item::Pause(stream)
}

/// Fills `height` rows of `width` elements of `size` bytes.
pub(crate) fn fill(stream: Stream, size: usize, width: usize, height: usize) -> Item {
    let bytes = size.saturating_mul(width).saturating_mul(height);
    Item::Work(stream, moved(Kind::Fill, bytes))
}

/// Copies in the GPU's memory.
pub(crate) fn within_device(stream: Stream, bytes: usize) -> Item {
    Item::Work(stream, moved(Kind::Copy, bytes))
}

/// Copies, from and to what the addresses tell.
pub(crate) fn copy(stream: Stream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Item {
    let (to, from) = (
        End(CU_MEMORYTYPE_UNIFIED, to),
        End(CU_MEMORYTYPE_UNIFIED, from),
    );
    ends(stream, &to, &from, bytes)
}

/// Copies from one context to another, which is the GPU's own work if both are on the same.
pub(crate) fn between(stream: Stream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Item {
    if device_of(to) == device_of(from) {
        within_device(stream, bytes)
    } else {
        pause(stream)
    }
}

/// Copies several pieces.
pub(crate) fn several(
    to: Out<CUdeviceptr>,
    from: Out<CUdeviceptr>,
    sizes: Out<usize>,
    stream: Stream,
    count: usize,
) -> Item {
    let mut bytes: usize = 0;
    let piece = |at| {
        Some((
            to.input().at(at)?,
            from.input().at(at)?,
            sizes.input().at(at)?,
        ))
    };
    for (to, from, size) in (0..count).map_while(piece) {
        if is_on_device(to) && is_on_device(from) {
            bytes = bytes.saturating_add(size);
        }
    }
    if bytes > 0 {
        within_device(stream, bytes)
    } else {
        pause(stream)
    }
}

/// Copies this number of boxes, wherever they are.
pub(crate) fn boxes(stream: Stream, count: usize) -> Item {
    /// The bytes of one box, at most.
    const BYTES: usize = 1 << 20;
    within_device(stream, count.saturating_mul(BYTES))
}

/// Copies a rectangle.
pub(crate) fn rectangle(copy: In<CUDA_MEMCPY2D>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return pause(stream);
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    let bytes = copy.WidthInBytes.saturating_mul(copy.Height);
    ends(stream, &to, &from, bytes)
}

/// Copies a box.
pub(crate) fn a_box(copy: In<CUDA_MEMCPY3D>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return pause(stream);
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    let area = copy.WidthInBytes.saturating_mul(copy.Height);
    ends(stream, &to, &from, area.saturating_mul(copy.Depth))
}

/// Copies a box from one context to another.
pub(crate) fn box_between(copy: In<CUDA_MEMCPY3D_PEER>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return pause(stream);
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    let area = copy.WidthInBytes.saturating_mul(copy.Height);
    // No call tells where an array is.
    let are_apart = device_of(to.1) != device_of(from.1);
    if are_apart && to.has_address() && from.has_address() {
        pause(stream)
    } else {
        ends(stream, &to, &from, area.saturating_mul(copy.Depth))
    }
}

/// Where a copy begins or ends: the kind of memory, and the address if it is not the host's.
struct End(CUmemorytype, CUdeviceptr);

impl End {
    fn has_address(&self) -> bool {
        !matches!(self.0, CU_MEMORYTYPE_ARRAY | CU_MEMORYTYPE_HOST)
    }

    fn is_on_device(&self) -> bool {
        match self.0 {
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_ARRAY => true,
            CU_MEMORYTYPE_HOST => false,
            // The address tells.
            _ => is_on_device(self.1),
        }
    }
}

fn ends(stream: Stream, to: &End, from: &End, bytes: usize) -> Item {
    if to.is_on_device() && from.is_on_device() {
        within_device(stream, bytes)
    } else {
        pause(stream)
    }
}

/// Estimates tell these apart from kernels, whose handles are addresses.
#[derive(Clone, Copy)]
enum Kind {
    Fill = 1,
    Copy = 2,
}

/// The time of that, until it was measured.
fn moved(kind: Kind, bytes: usize) -> Work {
    /// A rate below that of any GPU that can be shared.
    const BYTES_PER_MICROSECOND: usize = 100_000;
    const START: u64 = 5_000;
    let microseconds = (bytes / BYTES_PER_MICROSECOND) as u64;
    Work {
        what: kind as u64,
        size: rounded(bytes as u64),
        is_chained: false,
        guess: START.saturating_add(microseconds.saturating_mul(1000)),
    }
}

/// Sizes that take about the same time are one: within an eighth.
fn rounded(bytes: u64) -> u64 {
    let below = bytes.checked_ilog2().unwrap_or(0).saturating_sub(3);
    bytes >> below << below
}
