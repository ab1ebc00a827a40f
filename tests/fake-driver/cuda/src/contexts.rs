//! Contexts: what they take, which one a thread uses, and what goes with them.

use std::cell::Cell;
use std::collections::BTreeMap;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Group, Kind};

use crate::Out;
use crate::Outcome;
use crate::channels;
use crate::context_memory::Own;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::heap::code;
use crate::limits::Limits;
use softmig_fake_node::edge::handle;

/// All contexts, and what makes some of them special.
#[derive(Default)]
pub(crate) struct Contexts {
    all: BTreeMap<usize, Context>,
    /// By device.
    pub(crate) primary: BTreeMap<usize, crate::primary::Primary>,
    /// By the handle of the green context.
    #[cfg(not(feature = "old"))]
    pub(crate) green: BTreeMap<usize, crate::green::Green>,
}

/// One context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) origin: Origin,
    pub(crate) limits: Limits,
    /// The memory that it takes unasked.
    pub(crate) own: Own,
    /// How many parts of the program hold it.
    pub(crate) holders: u32,
    /// How many bytes of code it still has room for in what it took from the start.
    pub(crate) code_room: u64,
    /// Its channel group, where the device has a scheduler and the context one of its own.
    pub(crate) group: Option<Group>,
}

/// A context's maker, who may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuCtxCreate` of CUDA 2: the 32-bit functions accept no other.
    Old,
    /// `cuCtxCreate_v2` and later.
    Program,
    /// The driver, when the first asked for it.
    Primary,
    /// A green context.
    #[cfg(not(feature = "old"))]
    Green,
}

/// Small modules take nothing besides the context (seen on an H200).
const CODE_ROOM: u64 = 1 << 20;

exports! {
    static SYMBOLS;

    /// Makes a context for programs of the time of 32-bit addresses.
    fn cuCtxCreate [cuCtxCreate 2000] (out: Out<CUcontext>, flags: u32, device: CUdevice) =>
        create(out, flags, device, Origin::Old);

    /// Makes a context.
    fn cuCtxCreate_v2 [cuCtxCreate 3020] (out: Out<CUcontext>, flags: u32, device: CUdevice) =>
        create(out, flags, device, Origin::Program);

    /// Makes a context; on how much of the device it runs is not told apart.
    fn cuCtxCreate_v3 [cuCtxCreate 11040] (
        out: Out<CUcontext>, _affinity: Out<CUexecAffinityParam>, _count: i32, flags: u32, device: CUdevice
    ) => create(out, flags, device, Origin::Program);

    /// Ends a context and all that it has.
    fn cuCtxDestroy [cuCtxDestroy 2000] (context: CUcontext) => locked(|driver| destroy(driver, context as usize));

    /// Ends a context and all that it has.
    fn cuCtxDestroy_v2 [cuCtxDestroy 4000] (context: CUcontext) => locked(|driver| destroy(driver, context as usize));

    /// Makes a context this thread's, above the one it had.
    fn cuCtxPushCurrent_v2 [cuCtxPushCurrent 4000] (context: CUcontext) => locked(|driver| {
        driver.contexts.get(context as usize)?;
        push(context as usize)
    });

    /// Goes back to the context that the thread had before.
    fn cuCtxPopCurrent_v2 [cuCtxPopCurrent 4000] (out: Out<CUcontext>) => locked(|_| {
        let context = pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        out.set_if_wanted(handle(context));
        Ok(())
    });

    /// Makes a context this thread's instead of the one it had; none with null.
    fn cuCtxSetCurrent [cuCtxSetCurrent 4000] (context: CUcontext) => locked(|driver| {
        if context.is_null() {
            pop();
            return Ok(());
        }
        driver.contexts.get(context as usize)?;
        pop();
        push(context as usize)
    });

    /// This thread's context, null where it has none.
    fn cuCtxGetCurrent [cuCtxGetCurrent 4000] (out: Out<CUcontext>) =>
        locked(|_| out.set(handle(top().unwrap_or(0))));

    /// The device of this thread's context.
    fn cuCtxGetDevice [cuCtxGetDevice 2000] (out: Out<CUdevice>) => locked(|driver| {
        let (_, context) = driver.contexts.current()?;
        out.set(driver.ordinal(context.device)?)
    });

    /// The device of a context, this thread's with null.
    fn cuCtxGetDevice_v2 [cuCtxGetDevice 13000] (out: Out<CUdevice>, context: CUcontext) => locked(|driver| {
        let device = driver.contexts.get_or_current(context as usize)?.1.device;
        out.set(driver.ordinal(device)?)
    });
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// Makes a context; its parameters are not told apart.
    fn cuCtxCreate_v4 [cuCtxCreate 12050] (
        out: Out<CUcontext>, _parameters: Out<CUctxCreateParams>, flags: u32, device: CUdevice
    ) => create(out, flags, device, Origin::Program);
}

fn create(out: Out<CUcontext>, flags: u32, ordinal: CUdevice, origin: Origin) -> Outcome {
    locked(|driver| {
        if flags & !CU_CTX_FLAGS_MASK != 0 || !out.is_wanted() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.device(ordinal)?;
        let context = begin(driver, device, origin, new_handle())?;
        push(context)?;
        out.set(handle(context))
    })
}

/// Takes what a context takes, and enters it under this handle.
pub(crate) fn begin(
    driver: &mut Driver,
    device: usize,
    origin: Origin,
    number: usize,
) -> Outcome<usize> {
    let bytes = Own::default().bytes(&driver.described(device)?);
    driver
        .node
        .charge(device, Kind::Context, bytes)
        .map_err(code)?;
    let context = Context {
        device,
        origin,
        limits: Limits::default(),
        own: Own::default(),
        holders: 1,
        code_room: CODE_ROOM,
        group: channels::begin(driver.node, device),
    };
    driver.contexts.all.insert(number, context);
    Ok(number)
}

/// Ends a context that a program made.
pub(crate) fn destroy(driver: &mut Driver, number: usize) -> Outcome {
    if number == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Primary and green contexts end with those that hold them.
    match driver.contexts.get(number)?.origin {
        Origin::Old | Origin::Program => {}
        _ => return Err(CUDA_ERROR_INVALID_CONTEXT),
    }
    end(driver, number)?;
    if top() == Some(number) {
        pop();
    }
    Ok(())
}

/// Ends a context: all that belongs to it goes back.
pub(crate) fn end(driver: &mut Driver, number: usize) -> Outcome {
    crate::memory::end_context(driver, number);
    let context = driver.contexts.get(number)?;
    let bytes = context.own.bytes(&driver.described(context.device)?);
    driver.node.refund(context.device, Kind::Context, bytes);
    if let Some(group) = context.group {
        channels::end(driver.node, group);
    }
    driver.contexts.all.remove(&number);
    Ok(())
}

impl Contexts {
    /// A context that the program names.
    pub(crate) fn get(&self, number: usize) -> Outcome<Context> {
        let context = self.all.get(&number).copied();
        context.ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, number: usize) -> Outcome<&mut Context> {
        let context = self.all.get_mut(&number);
        context.ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The context that has the memory for this one: the primary one for a green one.
    pub(crate) fn bearer(&self, number: usize) -> Outcome<usize> {
        match self.get(number)? {
            #[cfg(not(feature = "old"))]
            Context {
                origin: Origin::Green,
                device,
                ..
            } => {
                let primary = self.primary.get(&device);
                Ok(primary.ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?.handle)
            }
            _ => Ok(number),
        }
    }

    /// The channel group that a context's work goes into.
    pub(crate) fn group(&self, number: usize) -> Outcome<Option<Group>> {
        Ok(self.get(self.bearer(number)?)?.group)
    }

    /// This thread's context and its handle.
    pub(crate) fn current(&self) -> Outcome<(usize, Context)> {
        let number = top().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let context = self.all.get(&number).copied();
        Ok((number, context.ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?))
    }

    /// The context that the program names, or this thread's where it names none.
    pub(crate) fn get_or_current(&self, number: usize) -> Outcome<(usize, Context)> {
        match number {
            0 => self.current(),
            number => Ok((number, self.get(number)?)),
        }
    }

    /// This thread's context, if the 32-bit functions accept it.
    pub(crate) fn old_current(&self) -> Outcome<(usize, Context)> {
        let (number, context) = self.current()?;
        if context.origin != Origin::Old {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        Ok((number, context))
    }

    /// Enters the context of a green one, which takes no memory of its own.
    #[cfg(not(feature = "old"))]
    pub(crate) fn enter_green(&mut self, device: usize) -> usize {
        let number = new_handle();
        let context = Context {
            device,
            origin: Origin::Green,
            limits: Limits::default(),
            own: Own::default(),
            holders: 1,
            code_room: CODE_ROOM,
            group: None,
        };
        self.all.insert(number, context);
        number
    }

    /// Takes a context out without giving anything back.
    #[cfg(not(feature = "old"))]
    pub(crate) fn forget(&mut self, number: usize) {
        self.all.remove(&number);
    }
}

/// How many contexts a thread may have above each other.
const DEPTH: usize = 32;

/// The contexts of a thread. Nothing in it needs dropping: a destructor would keep the library from being unloaded.
#[derive(Clone, Copy)]
struct Stack {
    contexts: [usize; DEPTH],
    length: usize,
}

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new(Stack { contexts: [0; DEPTH], length: 0 }) };
}

/// This thread's context.
pub(crate) fn top() -> Option<usize> {
    let stack = STACK.get();
    stack.contexts.get(stack.length.checked_sub(1)?).copied()
}

/// Makes a context this thread's.
pub(crate) fn push(context: usize) -> Outcome {
    let mut stack = STACK.get();
    *stack
        .contexts
        .get_mut(stack.length)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)? = context;
    stack.length += 1;
    STACK.set(stack);
    Ok(())
}

fn pop() -> Option<usize> {
    let top = top()?;
    let mut stack = STACK.get();
    stack.length -= 1;
    STACK.set(stack);
    Some(top)
}
