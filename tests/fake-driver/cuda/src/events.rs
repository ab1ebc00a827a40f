//! Events: points in a stream's work, whether they are reached, and the time between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::capture::{self, refuse_while_capturing};
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::pools;
use crate::streams::{self, Default};
use crate::thread;
use crate::waiting::{self, Wait};
use crate::work::{Mark, Op};
use softmig_fake_node::Function;
use softmig_fake_node::edge::handle;

/// All events.
pub(crate) type Events = BTreeMap<usize, Event>;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    context: usize,
    /// Whether it has a time that can be asked for.
    timed: bool,
    recorded: Recorded,
}

/// The state of an event.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Never,
    /// A point in a stream's work.
    Mark(Arc<Mark>),
    /// Nodes of a graph that was or is being captured.
    Captured {
        capture: usize,
        nodes: Vec<usize>,
    },
}

/// The flag that makes a record or a wait a node of a graph: CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL.
const EXTERNAL: u32 = 1;

/// A graph does not show it: what is behind such an event in the stream is not what it was before.
static RECORDED_IN_CAPTURE: Function = Function::new("cuEventRecord in a capture");

/// By the thread that launched the kernel before it: that may have ended meanwhile.
static RECORDED_LATE: Function = Function::new("cuEventRecord after asking for another event");

exports! {
    static SYMBOLS;

    /// Makes an event.
    fn cuEventCreate [cuEventCreate 2000] (out: Out<CUevent>, flags: u32) => locked(|driver| {
        let (context, _) = driver.contexts.current()?;
        let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        if flags & !known != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let number = new_handle();
        let timed = flags & CU_EVENT_DISABLE_TIMING == 0;
        driver.events.insert(number, Event { context, timed, recorded: Recorded::Never });
        out.set(handle(number))
    });

    /// Ends an event.
    fn cuEventDestroy_v2 [cuEventDestroy 4000] (event: CUevent) => locked(|driver| {
        driver.events.remove(&(event as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    });

    /// Records an event behind all that a stream was given so far.
    fn cuEventRecord [cuEventRecord 2000], cuEventRecord_ptsz [7000] (event: CUevent, stream: CUstream) |per_thread| =>
        locked(|driver| record(driver, event as usize, stream as usize, Default::of(per_thread), 0));

    /// Records an event behind all that a stream was given so far.
    fn cuEventRecordWithFlags [cuEventRecordWithFlags 11010], cuEventRecordWithFlags_ptsz [11010] (
        event: CUevent, stream: CUstream, flags: u32
    ) |per_thread| =>
        locked(|driver| record(driver, event as usize, stream as usize, Default::of(per_thread), flags));

    /// Whether it is reached.
    fn cuEventQuery [cuEventQuery 2000] (event: CUevent) => locked(|driver| {
        thread::asks();
        match reached(driver, event as usize)? {
            Wait::Done => Ok(()),
            Wait::Until(_) | Wait::Unknown => Err(CUDA_ERROR_NOT_READY),
        }
    });

    /// Waits until it is reached.
    fn cuEventSynchronize [cuEventSynchronize 2000] (event: CUevent) => {
        waiting::wait(|driver| reached(driver, event as usize)).and_then(|()| locked(|driver| {
            pools::after_waiting(driver);
            Ok(())
        }))
    };

    /// The time between two events, in milliseconds.
    fn cuEventElapsedTime [cuEventElapsedTime 2000] (out: Out<f32>, start: CUevent, end: CUevent) =>
        locked(|driver| out.set(elapsed(driver, start as usize, end as usize)?));

    /// The time between two events, in milliseconds.
    fn cuEventElapsedTime_v2 [cuEventElapsedTime 12080] (out: Out<f32>, start: CUevent, end: CUevent) =>
        locked(|driver| out.set(elapsed(driver, start as usize, end as usize)?));

    /// Lets a stream wait for an event.
    fn cuStreamWaitEvent [cuStreamWaitEvent 3020], cuStreamWaitEvent_ptsz [7000] (
        stream: CUstream, event: CUevent, flags: u32
    ) |per_thread| => locked(|driver| {
        wait_in_stream(driver, stream as usize, event as usize, Default::of(per_thread), flags)
    });
}

fn get(driver: &Driver, number: usize) -> Outcome<&Event> {
    driver.events.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn record(
    driver: &mut Driver,
    number: usize,
    stream: usize,
    default: Default,
    flags: u32,
) -> Outcome {
    get(driver, number)?;
    let stream = streams::resolve(driver, stream, default)?;
    let recorded = match streams::get(driver, stream)?.capture {
        None => {
            if thread::records() {
                RECORDED_LATE.count(driver.node);
            }
            let mark = Mark::new();
            streams::run(driver, stream, Op::Mark(mark.clone()))?;
            Recorded::Mark(mark)
        }
        Some(id) if flags & EXTERNAL != 0 => {
            return capture::add(driver, id, stream, capture::Captured::Record(number));
        }
        Some(id) => {
            RECORDED_IN_CAPTURE.count(driver.node);
            Recorded::Captured {
                capture: id,
                nodes: capture::last_nodes(driver, id, stream)?,
            }
        }
    };
    if let Some(event) = driver.events.get_mut(&number) {
        event.recorded = recorded;
    }
    Ok(())
}

/// Records an event where a graph that runs has a node for it.
pub(crate) fn record_now(driver: &mut Driver, number: usize, stream: usize) -> Outcome {
    let mark = Mark::new();
    streams::run(driver, stream, Op::Mark(mark.clone()))?;
    let event = driver.events.get_mut(&number);
    event.ok_or(CUDA_ERROR_INVALID_HANDLE)?.recorded = Recorded::Mark(mark);
    Ok(())
}

/// Waits for an event where a graph that runs has a node for it.
pub(crate) fn wait_now(driver: &mut Driver, number: usize, stream: usize) -> Outcome {
    match get(driver, number)?.recorded.clone() {
        Recorded::Mark(mark) => streams::run(driver, stream, Op::Await(mark)),
        Recorded::Never => Ok(()),
        Recorded::Captured { .. } => Err(CUDA_ERROR_CAPTURED_EVENT),
    }
}

fn reached(driver: &mut Driver, number: usize) -> Outcome<Wait> {
    let recorded = get(driver, number)?.recorded.clone();
    if let Recorded::Captured { capture, .. } = recorded {
        capture::spoil(driver, capture);
        return Err(CUDA_ERROR_CAPTURED_EVENT);
    }
    refuse_while_capturing(driver)?;
    driver.settle();
    let Recorded::Mark(mark) = recorded else {
        return Ok(Wait::Done);
    };
    Ok(match mark.time() {
        Some(time) if time <= driver.node.now() => Wait::Done,
        Some(time) => Wait::Until(time),
        None => Wait::Unknown,
    })
}

fn elapsed(driver: &mut Driver, start: usize, end: usize) -> Outcome<f32> {
    driver.settle();
    let now = driver.node.now();
    let time = |number| {
        let event = get(driver, number)?;
        match &event.recorded {
            Recorded::Captured { .. } => Err(CUDA_ERROR_CAPTURED_EVENT),
            Recorded::Mark(mark) if event.timed => {
                let reached = mark.time().filter(|time| *time <= now);
                reached.ok_or(CUDA_ERROR_NOT_READY)
            }
            Recorded::Mark(_) | Recorded::Never => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    };
    let (start, end) = (time(start)?, time(end)?);
    // Precise to half a microsecond, as the manual says of the real one: no time is lost in the difference.
    Ok((end as f64 - start as f64) as f32 / 1e6)
}

fn wait_in_stream(
    driver: &mut Driver,
    stream: usize,
    number: usize,
    default: Default,
    flags: u32,
) -> Outcome {
    let recorded = get(driver, number)?.recorded.clone();
    let stream = streams::resolve(driver, stream, default)?;
    match (streams::get(driver, stream)?.capture, recorded) {
        (Some(id), _) if flags & EXTERNAL != 0 => {
            capture::add(driver, id, stream, capture::Captured::Wait(number))
        }
        (_, Recorded::Captured { capture, nodes }) => {
            capture::join(driver, capture, stream, &nodes)
        }
        (_, Recorded::Never) => Ok(()),
        (Some(id), Recorded::Mark(_)) => {
            capture::spoil(driver, id);
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (None, Recorded::Mark(mark)) => streams::run(driver, stream, Op::Await(mark)),
    }
}

/// Ends the events of a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    driver.events.retain(|_, event| event.context != context);
}
