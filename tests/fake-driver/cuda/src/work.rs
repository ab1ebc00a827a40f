//! The work of a stream, its order and its times.
//!
//! A kernel's end is known when it gets to the front: the node says when the device has time. Where the device has a scheduler,
//! it is known when it is over: what comes right behind a kernel is handed to the scheduler as well, which keeps the order.
//! Visible work (a copy, a written word, a call on the host) happens only when the clock gets there; all behind
//! it waits.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult, CUstream};
use softmig_fake_node::edge::handle;
use softmig_fake_node::{Group, Process, Progress};

use crate::address;
use crate::boxes::Copy;
use crate::fills::Fill;
use crate::waiting::Wait;

/// One thing for a stream to do.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Kernel(Kernel),
    /// Notes the time.
    Mark(Arc<Mark>),
    /// Waits for a time noted elsewhere.
    Await(Arc<Mark>),
    /// Waits until a word in memory is as wanted.
    AwaitValue {
        address: u64,
        value: u64,
        /// Whether it has 64 bits.
        is_wide: bool,
        comparison: u32,
    },
    /// Writes a word.
    WriteValue {
        address: u64,
        value: u32,
    },
    /// Copies.
    Copy(Copy),
    /// Fills.
    Fill(Fill),
    /// Calls the program, in a thread of the driver's.
    Host(HostCall),
}

/// A kernel's run: its arguments are read when it is handed in, and not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) deed: Deed,
    pub(crate) function: usize,
    pub(crate) shape: Shape,
}

/// The action of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// It takes this many nanoseconds.
    Run(u64),
    /// It waits until the word at this address is not 0. It holds up only its own stream: others run beside it.
    Await(u64),
    /// It writes a word.
    Write { address: u64, value: u32 },
}

/// How much of a kernel there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory besides the kernel's own.
    pub(crate) shared: u32,
}

/// A function of the program, and what it is called with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) function: Called,
    pub(crate) data: usize,
}

/// A callback of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called {
    WithData(unsafe extern "C" fn(*mut c_void)),
    /// With the stream too, as the program names it, and what came of its work.
    WithStream(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), usize),
}

impl HostCall {
    /// Calls the program.
    pub(crate) fn call(self) {
        let data = std::ptr::with_exposed_provenance_mut(self.data);
        match self.function {
            // SAFETY: the program gave the function to be called so, once its stream gets to it.
            Called::WithData(function) => unsafe { function(data) },
            Called::WithStream(function, stream) => {
                // SAFETY: as above.
                unsafe { function(handle(stream), CUDA_SUCCESS, data) }
            }
        }
    }
}

/// A point in a stream's work, and the time when it was reached.
#[derive(Debug)]
pub(crate) struct Mark(AtomicU64);

impl Mark {
    pub(crate) fn new() -> Arc<Mark> {
        Arc::new(Mark(AtomicU64::new(u64::MAX)))
    }

    /// When it was or will be reached, if that is known.
    pub(crate) fn time(&self) -> Option<u64> {
        // Relaxed, as below: all of it happens under the driver's lock.
        let time = self.0.load(Ordering::Relaxed);
        (time != u64::MAX).then_some(time)
    }

    fn reach(&self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
    }
}

/// Where a stream's work runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    pub(crate) device: usize,
    /// The context's channel group, where the device has a scheduler.
    pub(crate) group: Option<Group>,
}

/// Work that left the queue.
#[derive(Debug, Default)]
struct Given {
    /// When all of it is done, but for what the scheduler has.
    tail: u64,
    /// The scheduler's last work: its number, and the earliest end known.
    running: Option<(u64, u64)>,
    /// Marks behind something that the scheduler has.
    marks: VecDeque<(u64, Arc<Mark>)>,
}

impl Given {
    /// Gives the device work of this duration, in nanoseconds.
    fn run(&mut self, node: &Process, engine: Engine, ready: u64, duration: u64) {
        match engine.group {
            None => self.tail = node.run(engine.device, ready, duration),
            Some(group) => self.running = Some((node.queue(group, duration), 0)),
        }
    }

    fn mark(&mut self, ready: u64, mark: &Arc<Mark>) {
        match self.running {
            None => mark.reach(ready),
            Some((work, _)) => self.marks.push_back((work, mark.clone())),
        }
    }

    /// Sees what of it has ended. Returns whether anything has.
    fn catch_up(&mut self, node: &Process, group: Option<Group>) -> bool {
        let (Some(group), Some((last, _))) = (group, self.running) else {
            return false;
        };
        let mut progress = false;
        while let Some((work, mark)) = self.marks.front()
            && let Progress::Ended(time) = node.progress(group, *work)
        {
            mark.reach(time.max(self.tail));
            self.marks.pop_front();
            progress = true;
        }
        match node.progress(group, last) {
            Progress::NotBefore(time) => self.running = Some((last, time)),
            Progress::Ended(time) => {
                self.tail = self.tail.max(time);
                self.running = None;
                progress = true;
            }
        }
        progress
    }
}

/// The work of a stream.
#[derive(Debug, Default)]
pub(crate) struct Work {
    given: Given,
    /// Work to come, with the time when it was handed in.
    queue: VecDeque<(u64, Op)>,
    /// Whether the front of the queue is a call that has begun.
    calling: bool,
}

impl Work {
    pub(crate) fn push(&mut self, now: u64, op: Op) {
        self.queue.push_back((now, op));
    }

    /// Whether anything waits in the queue.
    pub(crate) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether there is anything that someone may wait for.
    pub(crate) fn has_more(&self) -> bool {
        self.is_queued() || !self.given.marks.is_empty()
    }

    /// How soon everything can be done.
    pub(crate) fn end(&self, now: u64) -> Wait {
        match self.given {
            _ if self.is_queued() => Wait::Unknown,
            Given {
                running: Some((_, not_before)),
                ..
            } => Wait::Until(not_before),
            Given { tail, .. } if tail <= now => Wait::Done,
            Given { tail, .. } => Wait::Until(tail),
        }
    }

    /// Whether everything is done.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.end(now) == Wait::Done
    }

    /// The call at the front has returned.
    pub(crate) fn called(&mut self, now: u64) {
        self.calling = false;
        self.queue.pop_front();
        self.given.tail = self.given.tail.max(now);
    }

    /// Does what can be done by now. Returns whether anything was, and a call that is to be made.
    pub(crate) fn settle(&mut self, node: &Process, engine: Engine) -> (bool, Option<HostCall>) {
        let mut progress = self.given.catch_up(node, engine.group);
        while let Some((submitted, op)) = self.queue.front() {
            let ready = self.given.tail.max(*submitted);
            let now = node.now();
            match op {
                Op::Kernel(Kernel {
                    deed: Deed::Run(duration),
                    ..
                }) => self.given.run(node, engine, ready, *duration),
                Op::Mark(mark) => self.given.mark(ready, mark),
                Op::Await(mark) => match mark.time() {
                    Some(time) => self.given.tail = ready.max(time),
                    None => break,
                },
                // The rest is seen from outside, so it must not be early.
                _ if ready > now || self.given.running.is_some() => break,
                Op::Kernel(Kernel {
                    deed: Deed::Await(address),
                    ..
                }) => {
                    // SAFETY: the program's argument, for which it answers.
                    if unsafe { address::read_word(*address) } == 0 {
                        break;
                    }
                    self.given.tail = now;
                }
                Op::Kernel(Kernel {
                    deed: Deed::Write { address, value },
                    ..
                }) => {
                    // SAFETY: as above.
                    unsafe { address::write_word(*address, *value) };
                }
                Op::AwaitValue {
                    address,
                    value,
                    is_wide,
                    comparison,
                } => {
                    if !is_as_wanted(*address, *value, *is_wide, *comparison) {
                        break;
                    }
                    self.given.tail = now;
                }
                Op::WriteValue { address, value } => {
                    // SAFETY: the address was given for this, and a multiple of four.
                    unsafe { address::write_word(*address, *value) };
                }
                Op::Copy(copy) => {
                    copy.make();
                    self.given.run(node, engine, ready, copy.time);
                }
                Op::Fill(fill) => {
                    fill.make();
                    self.given.run(node, engine, ready, fill.time);
                }
                Op::Host(_) if self.calling => break,
                Op::Host(call) => {
                    self.calling = true;
                    return (progress, Some(*call));
                }
            }
            self.given.tail = self.given.tail.max(*submitted);
            self.queue.pop_front();
            progress = true;
        }
        (progress, None)
    }
}

/// The comparisons of `CUstreamWaitValue_flags`: at least (as a circle), equal, any common bit, any bit that neither has.
fn is_as_wanted(address: u64, value: u64, is_wide: bool, comparison: u32) -> bool {
    let word = if is_wide {
        // SAFETY: the address was given for this, and a multiple of eight.
        unsafe { address::read_wide_word(address) }
    } else {
        // SAFETY: the address was given for this, and a multiple of four.
        u64::from(unsafe { address::read_word(address) })
    };
    let distance = word.wrapping_sub(value);
    match comparison & 3 {
        0 if is_wide => distance as i64 >= 0,
        0 => distance as i32 >= 0,
        1 => word == value,
        2 => word & value != 0,
        _ if is_wide => !(word | value) != 0,
        _ => !((word | value) as u32) != 0,
    }
}
