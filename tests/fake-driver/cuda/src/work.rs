//! What a stream does, one thing after the other, and when.
//!
//! A kernel's end is known when it gets to the front: the node says when the device has time. What can be seen from
//! outside (a copy, a written word, a call on the host) happens only when the clock gets there; all behind it waits.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use softmig_driver_sys::cuda::{CUDA_SUCCESS, CUresult, CUstream};
use softmig_fake_node::Process;
use softmig_fake_node::edge::handle;

use crate::address;
use crate::boxes::Copy;
use crate::fills::Fill;

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

/// What a kernel does when it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// It takes so many nanoseconds.
    Run(u64),
    /// It waits until the word at this address is not 0. It holds up its stream alone: there is room for others.
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

/// What the program wants to be called.
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

/// The work of a stream.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// When all that has left the queue is done.
    tail: u64,
    /// What the stream has not got to, and when it was handed in.
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

    /// When everything is done; `None` if that depends on something else.
    pub(crate) fn end(&self) -> Option<u64> {
        self.queue.is_empty().then_some(self.tail)
    }

    /// Whether everything is done.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        self.end().is_some_and(|end| end <= now)
    }

    /// The call at the front has returned.
    pub(crate) fn called(&mut self, now: u64) {
        self.calling = false;
        self.queue.pop_front();
        self.tail = self.tail.max(now);
    }

    /// Does what can be done by now. Returns whether anything was, and a call that is to be made.
    pub(crate) fn settle(&mut self, node: &Process, device: usize) -> (bool, Option<HostCall>) {
        let mut progress = false;
        while let Some((submitted, op)) = self.queue.front() {
            let ready = self.tail.max(*submitted);
            let now = node.now();
            match op {
                Op::Kernel(Kernel {
                    deed: Deed::Run(duration),
                    ..
                }) => self.tail = node.run(device, ready, *duration),
                Op::Mark(mark) => mark.reach(ready),
                Op::Await(mark) => match mark.time() {
                    Some(time) => self.tail = ready.max(time),
                    None => break,
                },
                // What follows is seen from outside, so it must not be early.
                _ if ready > now => break,
                Op::Kernel(Kernel {
                    deed: Deed::Await(address),
                    ..
                }) => {
                    // SAFETY: the program's argument, for which it answers.
                    if unsafe { address::read_word(*address) } == 0 {
                        break;
                    }
                    self.tail = now;
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
                    self.tail = now;
                }
                Op::WriteValue { address, value } => {
                    // SAFETY: the address was given for this, and a multiple of four.
                    unsafe { address::write_word(*address, *value) };
                }
                Op::Copy(copy) => {
                    copy.make();
                    self.tail = node.run(device, ready, copy.time);
                }
                Op::Fill(fill) => {
                    fill.make();
                    self.tail = node.run(device, ready, fill.time);
                }
                Op::Host(_) if self.calling => break,
                Op::Host(call) => {
                    self.calling = true;
                    return (progress, Some(*call));
                }
            }
            self.tail = self.tail.max(*submitted);
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
