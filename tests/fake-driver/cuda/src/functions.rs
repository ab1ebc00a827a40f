//! Kernels that can be launched, and what a program asks about them.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::image::{Act, Kernel};

/// All kernels that were looked up.
pub(crate) type Functions = BTreeMap<usize, Function>;

/// One kernel.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) origin: Origin,
    name: CString,
    pub(crate) act: Act,
    /// The stack of a thread, in bytes.
    pub(crate) frame: u64,
    /// Whether it takes memory itself.
    pub(crate) heap: bool,
}

/// Where a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Module(usize),
    #[cfg(not(feature = "old"))]
    Library(usize),
}

exports! {
    static SYMBOLS;

    /// A figure of a kernel.
    fn cuFuncGetAttribute [cuFuncGetAttribute 2020] (
        out: Out<i32>, attribute: CUfunction_attribute, function: CUfunction
    ) => locked(|driver| {
        let frame = get(driver, function as usize)?.frame;
        out.set(match attribute {
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => i32::try_from(frame).unwrap_or(i32::MAX),
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
            CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => 70,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => 49_152,
            other if other <= CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    });

    /// A kernel's name.
    fn cuFuncGetName [cuFuncGetName 12030] (out: Out<*const c_char>, function: CUfunction) => locked(|driver| {
        // It stays where it is until the module goes, as the manual promises.
        out.set(get(driver, function as usize)?.name.as_ptr())
    });

    /// How many blocks of a kernel a multiprocessor holds: what its threads leave room for.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor [cuOccupancyMaxActiveBlocksPerMultiprocessor 6050] (
        out: Out<i32>, function: CUfunction, block: i32, _shared: usize
    ) => locked(|driver| {
        get(driver, function as usize)?;
        let (_, context) = driver.contexts.current()?;
        let threads = driver.described(context.device)?.gpu.threads_per_multiprocessor as i32;
        if !(1..=1024).contains(&block) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set((threads / block).min(32))
    });
}

/// A kernel by its handle, be it a function's or a library kernel's.
pub(crate) fn get(driver: &Driver, number: usize) -> Outcome<&Function> {
    let function = driver.functions.get(&number);
    function.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// The handle of a kernel, the same each time it is asked for.
pub(crate) fn enter(
    driver: &mut Driver,
    origin: Origin,
    name: &str,
    kernel: Kernel,
) -> Outcome<usize> {
    let name = CString::new(name).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let mut known = driver.functions.iter();
    if let Some((number, _)) =
        known.find(|(_, function)| function.origin == origin && function.name == name)
    {
        return Ok(*number);
    }
    let number = new_handle();
    let Kernel { act, frame, heap } = kernel;
    driver.functions.insert(
        number,
        Function {
            origin,
            name,
            act,
            frame,
            heap,
        },
    );
    Ok(number)
}

/// Forgets the kernels of something that is unloaded.
pub(crate) fn forget(driver: &mut Driver, origin: Origin) {
    driver
        .functions
        .retain(|_, function| function.origin != origin);
}
