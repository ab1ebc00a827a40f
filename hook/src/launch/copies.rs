//! The work of streams besides kernels and graphs: copies and fills of the GPU's memory, which take its time as kernels do.
//! Captures are followed here too.

use softmig_driver_sys::cuda::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_SUCCESS, CUdeviceptr, CUmemorytype,
    CUresult,
};

use crate::driver::args::{In, Out};
use crate::driver::device::{device_of, is_on_device};
use crate::driver::stream::Stream;
use crate::pacing::{self, Ticket, captures};

/// One of these.
pub(crate) enum Item {
    /// The GPU works.
    Work(Stream),
    /// It does not: the copy engines move what the host has.
    Transfer,
    /// It waits for an event, and for what else is captured if the event is.
    Join,
    /// From here on what it is given becomes a graph.
    BeginCapture,
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
        Item::Work(stream) => match pacing::admit(stream) {
            Ok(None) => After::Nothing,
            Ok(Some(ticket)) => After::Work(ticket),
            Err(refused) => After::Refused(refused),
        },
        Item::Join if captures::are_any() => {
            captures::begins();
            After::Join
        }
        Item::Transfer | Item::Join => After::Nothing,
        Item::BeginCapture => {
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
        After::Work(ticket) => ticket.launched(),
        After::Join => captures::has_begun(false),
        After::BeginCapture => captures::has_begun(result == CUDA_SUCCESS),
        // One that was spoilt has ended too, though not if this is another thread than it wants.
        After::EndCapture(stream) if !stream.is_capturing() => captures::ended(),
        After::EndCapture(_) => {}
    }
}

/// Work of a stream becomes a graph from here on.
pub(crate) fn begin_capture() -> Item {
    Item::BeginCapture
}

/// That is over.
pub(crate) fn end_capture(stream: Stream) -> Item {
    Item::EndCapture(stream)
}

/// A stream waits for an event.
pub(crate) fn join() -> Item {
    Item::Join
}

/// Fills or copies the GPU's memory.
pub(crate) fn within_device(stream: Stream) -> Item {
    Item::Work(stream)
}

/// Copies, from and to what the addresses tell.
pub(crate) fn copy(stream: Stream, to: CUdeviceptr, from: CUdeviceptr) -> Item {
    let (to, from) = (
        End(CU_MEMORYTYPE_UNIFIED, to),
        End(CU_MEMORYTYPE_UNIFIED, from),
    );
    ends(stream, &to, &from)
}

/// Copies from one context to another, which is the GPU's own work if both are on the same.
pub(crate) fn between(stream: Stream, to: CUdeviceptr, from: CUdeviceptr) -> Item {
    if device_of(to) == device_of(from) {
        Item::Work(stream)
    } else {
        Item::Transfer
    }
}

/// Copies several pieces.
pub(crate) fn several(
    to: Out<CUdeviceptr>,
    from: Out<CUdeviceptr>,
    stream: Stream,
    count: usize,
) -> Item {
    let piece = |at| Some((to.input().at(at)?, from.input().at(at)?));
    let is_any = (0..count)
        .map_while(piece)
        .any(|(to, from)| is_on_device(to) && is_on_device(from));
    if is_any {
        Item::Work(stream)
    } else {
        Item::Transfer
    }
}

/// Copies a rectangle.
pub(crate) fn rectangle(copy: In<CUDA_MEMCPY2D>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return Item::Transfer;
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    ends(stream, &to, &from)
}

/// Copies a box.
pub(crate) fn a_box(copy: In<CUDA_MEMCPY3D>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return Item::Transfer;
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    ends(stream, &to, &from)
}

/// Copies a box from one context to another.
pub(crate) fn box_between(copy: In<CUDA_MEMCPY3D_PEER>, stream: Stream) -> Item {
    let Some(copy) = copy.get() else {
        return Item::Transfer;
    };
    let to = End(copy.dstMemoryType, copy.dstDevice);
    let from = End(copy.srcMemoryType, copy.srcDevice);
    // No call tells where an array is.
    let are_apart = device_of(to.1) != device_of(from.1);
    if are_apart && to.has_address() && from.has_address() {
        Item::Transfer
    } else {
        ends(stream, &to, &from)
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

fn ends(stream: Stream, to: &End, from: &End) -> Item {
    if to.is_on_device() && from.is_on_device() {
        Item::Work(stream)
    } else {
        Item::Transfer
    }
}
