//! Code and its variables. How much a module takes is unknown, and most of it comes when it is first used: so the
//! driver's own figure for the process is looked at, whenever what is free on the GPU has changed by then. Managed variables
//! are in no figure: [`managed`] finds them.

use core::ffi::CStr;

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUlibrary, CUmodule, CUresult,
};

use crate::driver::args::Given;
use crate::driver::cuda_queries;
use crate::identity::gate;
use crate::ledger::{here, mappings};
use crate::memory::{managed, stacks};

/// After code was loaded: if the job holds more than its limit now, it is unloaded again.
fn loaded(function: &CStr, result: CUresult, unload: &dyn Fn()) -> CUresult {
    if result != CUDA_SUCCESS || !gate::is_limited_process() {
        return result;
    }
    let gpu = here();
    // A library needs no context, nor do its managed variables.
    let is_free = gpu.is_none() && managed::anywhere().is_none();
    if is_free || managed::code_came(function) && gpu.is_none_or(|gpu| gpu.has_room_for_code()) {
        return result;
    }
    unload();
    mappings::forget_gone();
    if let Some(gpu) = gpu {
        gpu.look_again();
    }
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Loads a module.
pub(crate) fn load(
    module: &Given<CUmodule>,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    loaded(function, call(), &|| {
        let _ = module.get().map(cuda_queries::cuModuleUnload);
    })
}

/// Loads a library of modules.
pub(crate) fn load_library(
    library: &Given<CUlibrary>,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    loaded(function, call(), &|| {
        let _ = library.get().map(cuda_queries::cuLibraryUnload);
    })
}

/// Unloads code. Its memory is found free when the job next runs out of memory.
pub(crate) fn unload(call: impl FnOnce() -> CUresult) -> CUresult {
    unloaded(call())
}

fn unloaded(result: CUresult) -> CUresult {
    stacks::forget();
    mappings::forget_gone();
    if let Some(gpu) = here().filter(|_| result == CUDA_SUCCESS) {
        gpu.expect_change();
    }
    result
}

/// Looks for something in code, which may load it.
pub(crate) fn find(call: impl FnOnce() -> CUresult) -> CUresult {
    found(call())
}

fn found(result: CUresult) -> CUresult {
    match here().filter(|_| result == CUDA_SUCCESS) {
        Some(gpu) if !gpu.has_room_for_code() => CUDA_ERROR_OUT_OF_MEMORY,
        _ => result,
    }
}

/// The same of a variable. If it is a managed one of code that was loaded by no name, as old CUDA runtimes load theirs, it is
/// charged now.
pub(crate) fn find_variable(
    pointer: &Given<CUdeviceptr>,
    function: &CStr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    variable_found(pointer, function, found(call()))
}

fn variable_found(pointer: &Given<CUdeviceptr>, function: &CStr, result: CUresult) -> CUresult {
    if result != CUDA_SUCCESS || !gate::is_limited_process() {
        return result;
    }
    let Some(address) = pointer.get() else {
        return result;
    };
    if managed::charge(address, function) {
        result
    } else {
        CUDA_ERROR_OUT_OF_MEMORY
    }
}
