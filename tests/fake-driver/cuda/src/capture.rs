//! Captures: work that goes into a graph instead of being done, and the calls that may not be made meanwhile.
//!
//! Which calls those are, what they return and which of them spoil the capture was read off driver 580.159 in all three
//! modes.

use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::graphs::{Graph, NodeWork};
use crate::streams::{self, Default, Order};
use crate::thread::{capture_mode, this_thread};
use crate::work::Op;
use softmig_fake_node::edge::handle;

/// All captures that have not ended.
pub(crate) type Captures = BTreeMap<usize, Capture>;

/// One capture.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: CUstreamCaptureMode,
    thread: usize,
    /// The stream in which it began and must end.
    origin: usize,
    context: usize,
    spoiled: bool,
    /// The handle of the graph that comes of it.
    graph: usize,
    /// Whether there was such a graph before.
    is_given: bool,
    /// The nodes that each stream's next one comes after.
    last: BTreeMap<usize, Vec<usize>>,
    /// The last answer of `cuStreamGetCaptureInfo`; programs read it in place.
    shown: Vec<usize>,
}

/// A piece of captured work.
pub(crate) enum Captured {
    Op(Op),
    /// An event to be recorded each time the graph runs.
    Record(usize),
    /// An event to be waited for each time the graph runs.
    Wait(usize),
}

exports! {
    static SYMBOLS;

    /// Lets a stream's work go into a graph from now on.
    fn cuStreamBeginCapture [cuStreamBeginCapture 10000], cuStreamBeginCapture_ptsz [10000] (stream: CUstream)
        |per_thread| => locked(|driver| {
            begin(driver, stream as usize, Default::of(per_thread), CU_STREAM_CAPTURE_MODE_GLOBAL, None)
        });

    /// Lets a stream's work go into a graph from now on.
    fn cuStreamBeginCapture_v2 [cuStreamBeginCapture 10010], cuStreamBeginCapture_v2_ptsz [10010] (
        stream: CUstream, mode: CUstreamCaptureMode
    ) |per_thread| => locked(|driver| begin(driver, stream as usize, Default::of(per_thread), mode, None));

    /// Ends a capture and gives its graph.
    fn cuStreamEndCapture [cuStreamEndCapture 10000], cuStreamEndCapture_ptsz [10000] (
        stream: CUstream, out: Out<CUgraph>
    ) |per_thread| => locked(|driver| {
        out.set_if_wanted(handle(0));
        let graph = end(driver, stream as usize, Default::of(per_thread))?;
        out.set(handle(graph))
    });

    /// Whether a stream's work goes into a graph.
    fn cuStreamIsCapturing [cuStreamIsCapturing 10000], cuStreamIsCapturing_ptsz [10000] (
        stream: CUstream, out: Out<CUstreamCaptureStatus>
    ) |per_thread| => locked(|driver| {
        let number = streams::resolve(driver, stream as usize, Default::of(per_thread))?;
        refuse_to_tell(driver, number)?;
        out.set(status(driver, number)?.0)
    });

    /// The capture that a stream's work goes into, its graph, and what the next node comes after.
    fn cuStreamGetCaptureInfo_v2 [cuStreamGetCaptureInfo 11030], cuStreamGetCaptureInfo_v2_ptsz [11030] (
        stream: CUstream, status_out: Out<CUstreamCaptureStatus>, id: Out<cuuint64_t>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, count: Out<usize>
    ) |per_thread| => locked(|driver| {
        let number = streams::resolve(driver, stream as usize, Default::of(per_thread))?;
        refuse_to_tell(driver, number)?;
        let (status, capture) = status(driver, number)?;
        status_out.set(status)?;
        let Some(capture) = capture.and_then(|id| driver.captures.get_mut(&id).map(|capture| (id, capture)))
        else {
            return Ok(());
        };
        let (number_of_capture, capture) = capture;
        let last = capture.last.get(&number).cloned().unwrap_or_default();
        capture.shown = last;
        id.set_if_wanted(number_of_capture as u64);
        graph.set_if_wanted(handle(capture.graph));
        // A handle is a number here, so numbers are what the program reads as handles.
        nodes.set_if_wanted(capture.shown.as_ptr().cast());
        count.set_if_wanted(capture.shown.len());
        Ok(())
    });
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Lets a stream's work go into a graph that there is, behind some of its nodes; edges are all alike here.
    fn cuStreamBeginCaptureToGraph [cuStreamBeginCaptureToGraph 12030], cuStreamBeginCaptureToGraph_ptsz [12030] (
        stream: CUstream, graph: CUgraph, after: crate::In<CUgraphNode>, _edges: crate::In<CUgraphEdgeData>,
        count: usize, mode: CUstreamCaptureMode
    ) |per_thread| => locked(|driver| {
        let after = after.list(count)?.into_iter().map(|node| node as usize).collect();
        driver.graphs.get(graph as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        begin(driver, stream as usize, Default::of(per_thread), mode, Some((graph as usize, after)))
    });

    /// Compares a stream's work with a graph: this driver cannot.
    fn cuStreamBeginRecaptureToGraph [cuStreamBeginRecaptureToGraph 13030], cuStreamBeginRecaptureToGraph_ptsz [13030] (
        _stream: CUstream, _mode: CUstreamCaptureMode, _graph: CUgraph, _callback: CUgraphRecaptureCallback,
        _data: *mut std::ffi::c_void
    ) |_per_thread| => Err(CUDA_ERROR_NOT_SUPPORTED);
}

/// The work goes into a new graph, or into one that there is, behind these nodes.
fn begin(
    driver: &mut Driver,
    stream: usize,
    default: Default,
    mode: CUstreamCaptureMode,
    into: Option<(usize, Vec<usize>)>,
) -> Outcome {
    let number = streams::resolve(driver, stream, default)?;
    let stream = streams::get_mut(driver, number)?;
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if stream.order == Order::Legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.capture.is_some() {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    let id = new_handle();
    stream.capture = Some(id);
    let context = stream.context;
    let is_given = into.is_some();
    let (graph, after) = into.unwrap_or_else(|| {
        let graph = new_handle();
        driver.graphs.enter(graph, Graph::new());
        (graph, Vec::new())
    });
    let capture = Capture {
        mode,
        thread: this_thread(),
        origin: number,
        context,
        spoiled: false,
        graph,
        is_given,
        last: BTreeMap::from([(number, after)]),
        shown: Vec::new(),
    };
    driver.captures.insert(id, capture);
    Ok(())
}

fn end(driver: &mut Driver, stream: usize, default: Default) -> Outcome<usize> {
    let number = streams::resolve(driver, stream, default)?;
    let id = streams::get(driver, number)?
        .capture
        .ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let capture = driver.captures.get(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != this_thread() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    let verdict = if capture.spoiled {
        Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    } else if capture.origin != number {
        Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    } else if !all_joined(driver, capture) {
        Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    } else {
        Ok(capture.graph)
    };
    if verdict.is_err() {
        forget(driver, id);
    } else {
        leave(driver, id);
    }
    verdict
}

/// Whether all that other streams did is waited for in the end.
fn all_joined(driver: &Driver, capture: &Capture) -> bool {
    let Some(graph) = driver.graphs.get(capture.graph) else {
        return false;
    };
    let end = capture.last.get(&capture.origin);
    let waited_for = graph.before(end.into_iter().flatten().copied());
    let mut last = capture.last.values().flatten();
    last.all(|node| waited_for.contains(node))
}

fn status(driver: &mut Driver, stream: usize) -> Outcome<(CUstreamCaptureStatus, Option<usize>)> {
    let capture = streams::get(driver, stream)?.capture;
    let known = capture.and_then(|id| driver.captures.get(&id));
    Ok(match known {
        None => (CU_STREAM_CAPTURE_STATUS_NONE, None),
        Some(capture) if capture.spoiled => (CU_STREAM_CAPTURE_STATUS_INVALIDATED, None),
        Some(_) => (CU_STREAM_CAPTURE_STATUS_ACTIVE, capture),
    })
}

/// Puts something into the graph of a capture.
pub(crate) fn add(driver: &mut Driver, id: usize, stream: usize, what: Captured) -> Outcome {
    let work = match what {
        Captured::Op(op) => NodeWork::Op(op),
        Captured::Record(event) => NodeWork::Record(event),
        Captured::Wait(event) => NodeWork::Wait(event),
    };
    add_node(driver, id, stream, work)
}

/// Puts a node into the graph of a capture.
pub(crate) fn add_node(driver: &mut Driver, id: usize, stream: usize, work: NodeWork) -> Outcome {
    let capture = driver
        .captures
        .get_mut(&id)
        .ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.spoiled {
        return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let after = capture.last.get(&stream).cloned().unwrap_or_default();
    let graph = driver.graphs.get_mut(capture.graph)?;
    let node = graph.add(work, after);
    capture.last.insert(stream, vec![node]);
    Ok(())
}

/// The nodes before a stream's next one.
pub(crate) fn last_nodes(driver: &Driver, id: usize, stream: usize) -> Outcome<Vec<usize>> {
    let capture = driver.captures.get(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.spoiled {
        return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    Ok(capture.last.get(&stream).cloned().unwrap_or_default())
}

/// Lets a stream wait for nodes of a capture: its work goes there too.
pub(crate) fn join(driver: &mut Driver, id: usize, stream: usize, nodes: &[usize]) -> Outcome {
    if !driver.captures.contains_key(&id) {
        return Err(CUDA_ERROR_CAPTURED_EVENT);
    }
    let other = streams::get(driver, stream)?.capture;
    if let Some(other) = other.filter(|other| *other != id) {
        spoil(driver, id);
        spoil(driver, other);
        return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    let capture = driver
        .captures
        .get_mut(&id)
        .ok_or(CUDA_ERROR_CAPTURED_EVENT)?;
    let last = capture.last.entry(stream).or_default();
    last.extend(
        nodes
            .iter()
            .filter(|node| !last.contains(node))
            .copied()
            .collect::<Vec<_>>(),
    );
    streams::get_mut(driver, stream)?.capture = Some(id);
    Ok(())
}

/// Makes a capture come to nothing: nothing more goes into it, and its end says so.
pub(crate) fn spoil(driver: &mut Driver, id: usize) {
    if let Some(capture) = driver.captures.get_mut(&id) {
        capture.spoiled = true;
    }
}

/// Ends a capture whose stream is no more.
pub(crate) fn forget(driver: &mut Driver, id: usize) {
    let capture = driver.captures.get(&id);
    let graph = capture.filter(|capture| !capture.is_given);
    let graph = graph.map(|capture| capture.graph);
    leave(driver, id);
    if let Some(graph) = graph {
        driver.graphs.forget(graph);
    }
}

/// Ends the captures of a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    let captures = driver.captures.iter();
    let gone: Vec<usize> = captures
        .filter(|(_, capture)| capture.context == context)
        .map(|(id, _)| *id)
        .collect();
    for id in gone {
        forget(driver, id);
    }
}

fn leave(driver: &mut Driver, id: usize) {
    driver.captures.remove(&id);
    for (_, stream) in driver.streams.values_mut() {
        if stream.capture == Some(id) {
            stream.capture = None;
        }
    }
}

/// Refuses a call that the manual calls unsafe, and spoils the captures for whose sake.
pub(crate) fn refuse_while_capturing(driver: &mut Driver) -> Outcome {
    let (thread, mode) = (this_thread(), capture_mode());
    let mut refused = false;
    for capture in driver.captures.values_mut() {
        let own = capture.thread == thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        refused |= match mode {
            CU_STREAM_CAPTURE_MODE_RELAXED => false,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL if own => spoiled(capture),
            CU_STREAM_CAPTURE_MODE_GLOBAL
                if own || capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL =>
            {
                spoiled(capture)
            }
            _ => false,
        };
    }
    if refused {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

fn spoiled(capture: &mut Capture) -> bool {
    capture.spoiled = true;
    true
}

/// The captures in streams that wait for this one, if it is the default stream.
fn implied(driver: &Driver, stream: usize) -> Outcome<Vec<usize>> {
    let stream = streams::get(driver, stream)?;
    if stream.order != Order::Legacy {
        return Ok(Vec::new());
    }
    let others = driver
        .streams
        .values()
        .filter(|(_, other)| other.context == stream.context && other.order == Order::Blocking);
    Ok(others.filter_map(|(_, other)| other.capture).collect())
}

/// Refuses work in the default stream while a stream that waits for it captures.
pub(crate) fn refuse_implicit(driver: &mut Driver, stream: usize) -> Outcome {
    let captures = implied(driver, stream)?;
    for id in &captures {
        spoil(driver, *id);
    }
    if captures.is_empty() {
        Ok(())
    } else {
        Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }
}

/// Refuses to say of the default stream then whether it captures, and spoils nothing.
fn refuse_to_tell(driver: &Driver, stream: usize) -> Outcome {
    if implied(driver, stream)?.is_empty() {
        Ok(())
    } else {
        Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }
}

/// Refuses to wait for a whole context while something captures in it, in whatever mode.
pub(crate) fn refuse_in_context(driver: &mut Driver, context: usize) -> Outcome {
    let mut captures = driver.captures.values_mut();
    let any = captures
        .by_ref()
        .filter(|capture| capture.context == context)
        .fold(false, |_, capture| spoiled(capture));
    if any {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    refuse_while_capturing(driver)
}
