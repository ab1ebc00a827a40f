//! Memory that a context takes unasked: the stacks of its kernels' threads, and what streams and graphs need.
//!
//! As seen on an H200: a context begins with stacks of 1 KiB, for all threads that the device can hold. A higher limit,
//! or the launch of a kernel that wants more, gives the old stacks back and takes larger ones. If the larger ones do
//! not fit, the next launch takes stacks anew. Only another limit makes them smaller. Memory of streams, graphs, green
//! contexts and the heap of kernels stays until the context ends.

use softmig_fake_node::{Device, Kind, MIB};

use crate::Outcome;
use crate::address::GRANULARITY;
use crate::driver::Driver;
use crate::functions::{self, Origin};
use crate::graphs::NodeWork;
use crate::heap::code;
use crate::work::{Kernel, Op};

/// The stack of a thread unless a program wants more.
pub(crate) const STACK: u64 = 1024;
/// The memory of a used stream, and of a kernel in a graph that is ready to run.
const STREAM: u64 = 573_440;
const NODE: u64 = 2307;
/// The overhead of the heap of kernels.
const HEAP: u64 = 2 * MIB;

/// One context's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// How much of the stacks each thread has; `None` after there was no room.
    stack: Option<u64>,
    streams: u64,
    graphs: u64,
    #[cfg_attr(feature = "old", allow(dead_code, reason = "of green contexts"))]
    green: u64,
    heap: u64,
}

impl Default for Own {
    fn default() -> Own {
        Own {
            stack: Some(STACK),
            streams: 0,
            graphs: 0,
            green: 0,
            heap: 0,
        }
    }
}

impl Own {
    /// All of it.
    pub(crate) fn bytes(&self, device: &Device<'_>) -> u64 {
        let stacks = self.stack.map_or(0, |stack| stacks(device, stack));
        fixed(device) + stacks + self.streams + self.graphs + self.green + self.heap
    }

    /// Whether a kernel has used the heap.
    pub(crate) fn has_heap(&self) -> bool {
        self.heap > 0
    }
}

/// The fixed memory of a context.
fn fixed(device: &Device<'_>) -> u64 {
    (device.gpu.context / 5).next_multiple_of(GRANULARITY)
}

fn stacks(device: &Device<'_>, stack: u64) -> u64 {
    let threads = u64::from(device.gpu.threads_per_multiprocessor * device.multiprocessors());
    let more = stack.saturating_sub(STACK).saturating_mul(threads);
    (device.gpu.context - fixed(device)).saturating_add(more)
}

/// Sees to it that a kernel with such a frame can run.
pub(crate) fn provide(driver: &mut Driver, context: usize, kernel: &Kernel) -> Outcome {
    let function = functions::get(driver, kernel.function)?;
    let (frame, heap) = (function.frame, function.heap);
    let number = driver.contexts.bearer(context)?;
    let known = driver.contexts.get(number)?;
    if known.own.stack.is_none_or(|stack| stack < frame) {
        set_stack(driver, number, frame.max(known.limits.stack()))?;
    }
    if heap && !known.own.has_heap() {
        let wanted = known.limits.heap().saturating_add(HEAP);
        grow(driver, number, wanted, |own| &mut own.heap)?;
    }
    Ok(())
}

/// Gives each thread such a stack, if the device has room for that.
pub(crate) fn set_stack(driver: &mut Driver, number: usize, stack: u64) -> Outcome {
    let known = driver.contexts.get(number)?;
    let described = driver.described(known.device)?;
    if let Some(old) = known.own.stack {
        let bytes = stacks(&described, old);
        driver.node.refund(known.device, Kind::Context, bytes);
    }
    driver.contexts.get_mut(number)?.own.stack = None;
    let stack = stack.max(STACK);
    let bytes = stacks(&described, stack);
    driver
        .node
        .charge(known.device, Kind::Context, bytes)
        .map_err(code)?;
    driver.contexts.get_mut(number)?.own.stack = Some(stack);
    Ok(())
}

/// Takes what `count` streams of a context need.
pub(crate) fn provide_streams(driver: &mut Driver, context: usize, count: usize) -> Outcome {
    let wanted = (count as u64).saturating_mul(STREAM) / GRANULARITY * GRANULARITY;
    let number = driver.contexts.bearer(context)?;
    grow(driver, number, wanted, |own| &mut own.streams)
}

/// Takes what the graphs that are ready to run need, this one among them.
pub(crate) fn provide_graph(driver: &mut Driver, work: &[NodeWork], count: usize) -> Outcome {
    for work in work {
        if let NodeWork::Op(Op::Kernel(kernel)) = work {
            let context = match functions::get(driver, kernel.function)?.origin {
                Origin::Module(module) => crate::modules::context_of(driver, module)?,
                #[cfg(not(feature = "old"))]
                Origin::Library(_) => driver.contexts.current()?.0,
            };
            provide(driver, context, kernel)?;
        }
    }
    let Ok((context, _)) = driver.contexts.current() else {
        return Ok(());
    };
    let wanted = (count as u64).saturating_mul(NODE) / GRANULARITY * GRANULARITY;
    let number = driver.contexts.bearer(context)?;
    grow(driver, number, wanted.max(GRANULARITY), |own| {
        &mut own.graphs
    })
}

/// Takes what a green context of this one needs, the first one more than the others.
#[cfg(not(feature = "old"))]
pub(crate) fn provide_green(driver: &mut Driver, number: usize) -> Outcome {
    let before = driver.contexts.get(number)?.own.green;
    let more = if before == 0 { 6 * MIB } else { 4 * MIB };
    grow(driver, number, before + more, |own| &mut own.green)
}

fn grow(
    driver: &mut Driver,
    number: usize,
    wanted: u64,
    which: impl Fn(&mut Own) -> &mut u64,
) -> Outcome {
    let known = driver.contexts.get_mut(number)?;
    let device = known.device;
    let more = wanted.saturating_sub(*which(&mut known.own));
    driver
        .node
        .charge(device, Kind::Context, more)
        .map_err(code)?;
    *which(&mut driver.contexts.get_mut(number)?.own) += more;
    Ok(())
}
