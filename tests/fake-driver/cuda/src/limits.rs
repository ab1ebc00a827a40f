//! Limits of a context; src/context_memory.rs has the memory that they take.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::capture::refuse_while_capturing;
use crate::context_memory::{self, STACK};
use crate::entry::locked;
use crate::export::exports;
use crate::room::with_room;

/// A context's limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits([u64; 11]);

impl Default for Limits {
    fn default() -> Limits {
        // As an H200 has them: stack, printf buffer, heap, and then what touches no memory here.
        Limits([STACK, 8_650_752, 8 << 20, 2, 2048, 128, 0, 0, 0, 0, 0])
    }
}

impl Limits {
    /// The stack of a thread.
    pub(crate) fn stack(&self) -> u64 {
        self.0.first().copied().unwrap_or(STACK)
    }

    /// The heap of kernels.
    pub(crate) fn heap(&self) -> u64 {
        let [_, _, heap, ..] = self.0;
        heap
    }
}

exports! {
    static SYMBOLS;

    /// Changes a limit of this thread's context.
    fn cuCtxSetLimit [cuCtxSetLimit 3010] (limit: CUlimit, value: usize) => set(limit, value);

    /// A limit of this thread's context.
    fn cuCtxGetLimit [cuCtxGetLimit 3010] (out: Out<usize>, limit: CUlimit) => locked(|driver| {
        let (current, _) = driver.contexts.current()?;
        let number = driver.contexts.bearer(current)?;
        let value = driver.contexts.get(number)?.limits.0.get(limit as usize).copied();
        out.set(value.ok_or(CUDA_ERROR_INVALID_VALUE)? as usize)
    });
}

fn set(limit: CUlimit, value: usize) -> Outcome {
    locked(|driver| {
        refuse_while_capturing(driver)?;
        let (current, _) = driver.contexts.current()?;
        let number = driver.contexts.bearer(current)?;
        let known = driver.contexts.get_mut(number)?;
        // Once kernels use the heap, it stays as large as it is.
        if limit == CU_LIMIT_MALLOC_HEAP_SIZE && known.own.has_heap() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let place = known.limits.0.get_mut(limit as usize);
        *place.ok_or(CUDA_ERROR_INVALID_VALUE)? = value as u64;
        if limit != CU_LIMIT_STACK_SIZE {
            return Ok(());
        }
        let set = with_room(driver, |driver| {
            context_memory::set_stack(driver, number, value as u64)
        });
        if set.is_err() {
            let [stack, ..] = &mut driver.contexts.get_mut(number)?.limits.0;
            *stack = STACK;
        }
        set
    })
}
