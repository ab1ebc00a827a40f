//! Limits of a context, and the memory that they take.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Device, Kind};

use crate::Out;
use crate::Outcome;
use crate::capture::refuse_while_capturing;
use crate::entry::locked;
use crate::export::exports;
use crate::heap::code;

/// The stack that each thread of a kernel has unless a program wants more: part of what a context takes anyway.
const STACK: u64 = 1024;

/// What the program set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits([u64; 11]);

impl Default for Limits {
    fn default() -> Limits {
        // As an H200 has them: stack, printf buffer, heap, and then what touches no memory here.
        Limits([STACK, 8_650_752, 8 << 20, 2, 2048, 128, 0, 0, 0, 0, 0])
    }
}

impl Limits {
    /// What they take besides the context's own memory: a stack for each thread that the device can hold. The buffer
    /// and the heap take nothing until a kernel that needs them is loaded (seen on an H200).
    pub(crate) fn memory(&self, device: &Device<'_>) -> u64 {
        let stack = self.0.first().copied().unwrap_or(STACK);
        let threads = device.gpu.threads_per_multiprocessor * device.multiprocessors();
        stack
            .saturating_sub(STACK)
            .saturating_mul(u64::from(threads))
    }
}

exports! {
    static SYMBOLS;

    /// Changes a limit of this thread's context.
    fn cuCtxSetLimit [cuCtxSetLimit 3010] (limit: CUlimit, value: usize) => set(limit, value);

    /// A limit of this thread's context.
    fn cuCtxGetLimit [cuCtxGetLimit 3010] (out: Out<usize>, limit: CUlimit) => locked(|driver| {
        let (_, context) = driver.contexts.current()?;
        let value = context.limits.0.get(limit as usize);
        out.set(*value.ok_or(CUDA_ERROR_INVALID_VALUE)? as usize)
    });
}

fn set(limit: CUlimit, value: usize) -> Outcome {
    locked(|driver| {
        refuse_while_capturing(driver)?;
        let (number, context) = driver.contexts.current()?;
        let described = driver.described(context.device)?;
        let mut limits = context.limits;
        *limits
            .0
            .get_mut(limit as usize)
            .ok_or(CUDA_ERROR_INVALID_VALUE)? = value as u64;
        let (before, after) = (context.limits.memory(&described), limits.memory(&described));
        if after > before {
            let more = after - before;
            driver
                .node
                .charge(context.device, Kind::Context, more)
                .map_err(code)?;
        } else {
            let less = before - after;
            driver.node.refund(context.device, Kind::Context, less);
        }
        driver.contexts.get_mut(number)?.limits = limits;
        Ok(())
    })
}
