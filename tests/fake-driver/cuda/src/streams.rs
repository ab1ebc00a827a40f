//! Streams: which one a program means, in what order they work, and whether they are done.

use std::collections::{BTreeMap, VecDeque};

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::capture::{self, refuse_while_capturing};
use crate::context_memory;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::thread::this_thread;
use crate::waiting::{self, Wait};
use crate::work::{Engine, HostCall, Mark, Op, Work};
use crate::{Outcome, pools};
use softmig_fake_node::Group;
use softmig_fake_node::edge::handle;

/// All streams.
#[derive(Default)]
pub(crate) struct Streams {
    all: BTreeMap<usize, Stream>,
    /// The default streams: of a context, and of a thread in a context.
    defaults: BTreeMap<(usize, Option<usize>), usize>,
    /// Calls to the program that are due, each with its stream.
    pub(crate) due: VecDeque<(usize, HostCall)>,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) device: usize,
    group: Option<Group>,
    pub(crate) order: Order,
    pub(crate) work: Work,
    /// The capture that its work goes into.
    pub(crate) capture: Option<usize>,
}

/// Which other streams of its context a stream waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The default stream: it and blocking ones wait for each other.
    Legacy,
    /// It and the default stream wait for each other.
    Blocking,
    /// It minds its own business.
    Independent,
}

/// Which stream "no stream" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// The context's.
    Legacy,
    /// The thread's.
    PerThread,
}

impl Default {
    pub(crate) fn of(per_thread: bool) -> Default {
        if per_thread {
            Default::PerThread
        } else {
            Default::Legacy
        }
    }
}

/// The handles that mean default streams, whatever the function.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

exports! {
    static SYMBOLS;

    /// Makes a stream.
    fn cuStreamCreate [cuStreamCreate 2000] (out: Out<CUstream>, flags: u32) => locked(|driver| {
        let (context, _) = driver.contexts.current()?;
        out.set(handle(create(driver, context, flags, 0)?))
    });

    /// Makes a stream; there is but one priority.
    fn cuStreamCreateWithPriority [cuStreamCreateWithPriority 5050] (
        out: Out<CUstream>, flags: u32, priority: i32
    ) => locked(|driver| {
        let (context, _) = driver.contexts.current()?;
        out.set(handle(create(driver, context, flags, priority)?))
    });

    /// Ends a stream once its work is done; the caller does not wait for that.
    fn cuStreamDestroy [cuStreamDestroy 2000] (stream: CUstream) => locked(|driver| destroy(driver, stream as usize));

    /// Ends a stream once its work is done; the caller does not wait for that.
    fn cuStreamDestroy_v2 [cuStreamDestroy 4000] (stream: CUstream) => locked(|driver| destroy(driver, stream as usize));

    /// Waits until all work is done.
    fn cuStreamSynchronize [cuStreamSynchronize 2000], cuStreamSynchronize_ptsz [7000] (stream: CUstream)
        |per_thread| => synchronize(stream as usize, Default::of(per_thread));

    /// Whether all work is done.
    fn cuStreamQuery [cuStreamQuery 2000], cuStreamQuery_ptsz [7000] (stream: CUstream) |per_thread| =>
        locked(|driver| {
            let number = resolve(driver, stream as usize, Default::of(per_thread))?;
            refuse_to_wait(driver, number)?;
            match when_idle(driver, number, Default::Legacy)? {
                Wait::Done => Ok(()),
                Wait::Until(_) | Wait::Unknown => Err(CUDA_ERROR_NOT_READY),
            }
        });

    /// The context of a stream.
    fn cuStreamGetCtx [cuStreamGetCtx 9020], cuStreamGetCtx_ptsz [9020] (stream: CUstream, out: Out<CUcontext>)
        |per_thread| => locked(|driver| {
            let number = resolve(driver, stream as usize, Default::of(per_thread))?;
            out.set(handle(get(driver, number)?.context))
        });

    /// Waits until all work of this thread's context is done.
    fn cuCtxSynchronize [cuCtxSynchronize 2000] () => synchronize_context(0);

    /// Waits until all work of a context is done, this thread's with null.
    fn cuCtxSynchronize_v2 [cuCtxSynchronize 13000] like none (context: CUcontext) =>
        synchronize_context(context as usize);
}

fn destroy(driver: &mut Driver, number: usize) -> Outcome {
    let stream = get(driver, number)?;
    if let Some(id) = stream.capture {
        capture::forget(driver, id);
    }
    driver.streams.retire(number);
    Ok(())
}

/// Makes a stream.
pub(crate) fn create(
    driver: &mut Driver,
    context: usize,
    flags: u32,
    _priority: i32,
) -> Outcome<usize> {
    let order = match flags {
        CU_STREAM_DEFAULT => Order::Blocking,
        CU_STREAM_NON_BLOCKING => Order::Independent,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let device = driver.contexts.get(context)?.device;
    let others = driver.streams.values();
    let others = others.filter(|(_, stream)| stream.context == context);
    let count = others.count() + 1;
    context_memory::provide_streams(driver, context, count)?;
    let group = driver.contexts.group(context)?;
    Ok(driver.streams.enter(context, (device, group), order))
}

/// The stream that a program means by this handle.
pub(crate) fn resolve(driver: &mut Driver, number: usize, default: Default) -> Outcome<usize> {
    let thread = match (number, default) {
        (LEGACY, _) | (0, Default::Legacy) => None,
        (PER_THREAD, _) | (0, Default::PerThread) => Some(this_thread()),
        _ => {
            get(driver, number)?;
            return Ok(number);
        }
    };
    let (context, described) = driver.contexts.current()?;
    if let Some(known) = driver.streams.defaults.get(&(context, thread)) {
        return Ok(*known);
    }
    let order = match thread {
        None => Order::Legacy,
        Some(_) => Order::Blocking,
    };
    let group = driver.contexts.group(context)?;
    let place = (described.device, group);
    let made = driver.streams.enter(context, place, order);
    driver.streams.defaults.insert((context, thread), made);
    Ok(made)
}

/// A stream by its own handle.
pub(crate) fn get(driver: &Driver, number: usize) -> Outcome<&Stream> {
    let stream = driver.streams.all.get(&number);
    stream.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The same, to be changed.
pub(crate) fn get_mut(driver: &mut Driver, number: usize) -> Outcome<&mut Stream> {
    let stream = driver.streams.all.get_mut(&number);
    stream.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Hands a stream something to do; or a capture, where the stream's work goes into one.
pub(crate) fn submit(driver: &mut Driver, number: usize, default: Default, op: Op) -> Outcome {
    let number = resolve(driver, number, default)?;
    match get(driver, number)?.capture {
        Some(id) => capture::add(driver, id, number, capture::Captured::Op(op)),
        None => run(driver, number, op),
    }
}

/// Hands the default stream something to do, for functions that mind no capture in other streams.
pub(crate) fn submit_beside_captures(driver: &mut Driver, default: Default, op: Op) -> Outcome {
    let number = resolve(driver, 0, default)?;
    run(driver, number, op)
}

/// Hands a stream something to do that is not captured.
pub(crate) fn run(driver: &mut Driver, number: usize, op: Op) -> Outcome {
    capture::refuse_implicit(driver, number)?;
    let now = driver.node.now();
    driver.streams.order(number, now);
    get_mut(driver, number)?.work.push(now, op);
    driver.settle();
    Ok(())
}

/// Whether a stream's work is done, and when it will be.
pub(crate) fn when_idle(driver: &mut Driver, number: usize, default: Default) -> Outcome<Wait> {
    let number = resolve(driver, number, default)?;
    driver.settle();
    let order = get(driver, number)?.order;
    let context = get(driver, number)?.context;
    // The default stream's work comes after that of all blocking ones.
    let waited_for = driver.streams.all.iter().filter(|(other, stream)| {
        **other == number
            || order == Order::Legacy
                && stream.context == context
                && stream.order == Order::Blocking
                && stream.capture.is_none()
    });
    Ok(Wait::for_all(
        waited_for.map(|(_, stream)| &stream.work),
        driver.node.now(),
    ))
}

pub(crate) fn synchronize(number: usize, default: Default) -> Outcome {
    waiting::wait(|driver| {
        let number = resolve(driver, number, default)?;
        refuse_to_wait(driver, number)?;
        when_idle(driver, number, default)
    })?;
    locked(|driver| {
        pools::after_waiting(driver);
        Ok(())
    })
}

fn synchronize_context(number: usize) -> Outcome {
    waiting::wait(|driver| {
        let (context, _) = driver.contexts.get_or_current(number)?;
        capture::refuse_in_context(driver, context)?;
        driver.settle();
        let mut streams = driver.streams.all.values();
        Ok(Wait::for_all(
            streams
                .by_ref()
                .filter(|stream| stream.context == context)
                .map(|stream| &stream.work),
            driver.node.now(),
        ))
    })?;
    locked(|driver| {
        pools::after_waiting(driver);
        Ok(())
    })
}

/// A stream whose work goes into a capture has nothing to wait for, and asking spoils the capture.
fn refuse_to_wait(driver: &mut Driver, number: usize) -> Outcome {
    if let Some(id) = get(driver, number)?.capture {
        capture::spoil(driver, id);
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::refuse_implicit(driver, number)?;
    refuse_while_capturing(driver)
}

/// Ends the streams of a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    capture::end_context(driver, context);
    let streams = &mut driver.streams;
    streams.all.retain(|_, stream| stream.context != context);
    streams.defaults.retain(|(of, _), _| *of != context);
}

impl Streams {
    fn enter(
        &mut self,
        context: usize,
        (device, group): (usize, Option<Group>),
        order: Order,
    ) -> usize {
        let number = new_handle();
        let stream = Stream {
            context,
            device,
            group,
            order,
            work: Work::default(),
            capture: None,
        };
        self.all.insert(number, stream);
        number
    }

    /// Ends a stream; its remaining work stays, under a handle that no program has.
    fn retire(&mut self, number: usize) {
        if let Some(mut stream) = self.all.remove(&number)
            && stream.work.has_more()
        {
            stream.order = Order::Independent;
            self.all.insert(new_handle(), stream);
        }
    }

    /// Lets the default stream and the blocking ones of its context wait for each other.
    fn order(&mut self, number: usize, now: u64) {
        let Some(stream) = self.all.get(&number) else {
            return;
        };
        let other = match stream.order {
            Order::Independent => return,
            Order::Legacy => Order::Blocking,
            Order::Blocking => Order::Legacy,
        };
        let context = stream.context;
        let before: Vec<_> = self
            .all
            .values_mut()
            .filter(|stream| stream.context == context && stream.order == other)
            .filter(|stream| stream.capture.is_none() && !stream.work.is_idle(now))
            .map(|stream| {
                let mark = Mark::new();
                stream.work.push(now, Op::Mark(mark.clone()));
                mark
            })
            .collect();
        if let Some(stream) = self.all.get_mut(&number) {
            for mark in before {
                stream.work.push(now, Op::Await(mark));
            }
        }
    }

    /// Whether anything waits in a queue.
    pub(crate) fn any_queued(&self) -> bool {
        self.all.values().any(|stream| stream.work.is_queued())
    }

    /// All streams, to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (usize, &mut Stream)> {
        self.all
            .iter_mut()
            .map(|(number, stream)| (*number, stream))
    }

    /// All streams.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, &Stream)> {
        self.all.iter().map(|(number, stream)| (*number, stream))
    }
}

impl Driver {
    /// Lets all streams do what they can by now.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut progress = false;
            let Streams { all, due, .. } = &mut self.streams;
            for (number, stream) in all.iter_mut() {
                let engine = Engine {
                    device: stream.device,
                    group: stream.group,
                };
                let (some, call) = stream.work.settle(self.node, engine);
                progress |= some;
                due.extend(call.map(|call| (*number, call)));
            }
            // One stream may have waited for what another just did.
            if !progress {
                break;
            }
        }
        waiting::attend(self);
    }
}
