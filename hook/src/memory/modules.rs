//! Code and its variables. How much a module takes nobody says, and most of it comes when it is first used: so the
//! driver's own figure for the process is looked at, whenever what is free on the GPU has changed by then. Managed variables
//! are in no figure: [`managed`] finds them.

use core::ffi::{CStr, c_char, c_uint, c_void};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option,
    CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};

use crate::driver::cuda::real;
use crate::identity::gate;
use crate::ledger::{here, mappings};
use crate::memory::{managed, stacks};

/// After code was loaded: if the job holds more than its limit now, it is unloaded again.
fn loaded(result: CUresult, function: &CStr, unload: impl FnOnce() -> CUresult) -> CUresult {
    if result != CUDA_SUCCESS || !gate::is_limited_process() {
        return result;
    }
    let gpu = here();
    // A library needs no context, nor do its managed variables.
    let is_free = gpu.is_none() && managed::anywhere().is_none();
    if is_free || managed::code_came(function) && gpu.is_none_or(|gpu| gpu.has_room_for_code()) {
        return result;
    }
    let _ = unload();
    mappings::forget_gone();
    if let Some(gpu) = gpu {
        gpu.look_again();
    }
    CUDA_ERROR_OUT_OF_MEMORY
}

fn module(module: *mut CUmodule, function: &CStr, result: CUresult) -> CUresult {
    loaded(result, function, || {
        // SAFETY: the driver has just written there.
        let module = unsafe { module.read() };
        // SAFETY: the program has not heard of it.
        unsafe { real::cuModuleUnload(module) }
    })
}

fn library(library: *mut CUlibrary, function: &CStr, result: CUresult) -> CUresult {
    loaded(result, function, || {
        // SAFETY: as above.
        let library = unsafe { library.read() };
        // SAFETY: as above.
        unsafe { real::cuLibraryUnload(library) }
    })
}

pub(crate) unsafe fn load(place: *mut CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    module(place, c"cuModuleLoad", unsafe {
        real::cuModuleLoad(place, name)
    })
}

pub(crate) unsafe fn load_data(place: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as above.
    module(place, c"cuModuleLoadData", unsafe {
        real::cuModuleLoadData(place, image)
    })
}

pub(crate) unsafe fn load_data_ex(
    place: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: as above.
    module(place, c"cuModuleLoadDataEx", unsafe {
        real::cuModuleLoadDataEx(place, image, count, options, values)
    })
}

pub(crate) unsafe fn load_fat_binary(place: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as above.
    module(place, c"cuModuleLoadFatBinary", unsafe {
        real::cuModuleLoadFatBinary(place, image)
    })
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
pub(crate) unsafe fn library_load_data(
    place: *mut CUlibrary,
    code: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> CUresult {
    // SAFETY: as above.
    library(place, c"cuLibraryLoadData", unsafe {
        real::cuLibraryLoadData(
            place,
            code,
            jit_options,
            jit_values,
            jit_count,
            options,
            values,
            count,
        )
    })
}

#[expect(clippy::too_many_arguments, reason = "the driver's")]
pub(crate) unsafe fn library_load_from_file(
    place: *mut CUlibrary,
    name: *const c_char,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    values: *mut *mut c_void,
    count: c_uint,
) -> CUresult {
    // SAFETY: as above.
    library(place, c"cuLibraryLoadFromFile", unsafe {
        real::cuLibraryLoadFromFile(
            place,
            name,
            jit_options,
            jit_values,
            jit_count,
            options,
            values,
            count,
        )
    })
}

pub(crate) unsafe fn unload(module: CUmodule) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuModuleUnload(module) };
    unloaded(result)
}

pub(crate) unsafe fn library_unload(library: CUlibrary) -> CUresult {
    // SAFETY: as above.
    let result = unsafe { real::cuLibraryUnload(library) };
    unloaded(result)
}

/// What an unloaded module took is found free when the job next runs out of memory, or now where that is near.
fn unloaded(result: CUresult) -> CUresult {
    stacks::forget();
    mappings::forget_gone();
    if let Some(gpu) = here().filter(|_| result == CUDA_SUCCESS) {
        gpu.expect_change();
    }
    result
}

/// Looks for something in code, which may load it.
fn found(result: CUresult) -> CUresult {
    match here().filter(|_| result == CUDA_SUCCESS) {
        Some(gpu) if !gpu.has_room_for_code() => CUDA_ERROR_OUT_OF_MEMORY,
        _ => result,
    }
}

/// The same of a variable. If it is a managed one of code that was loaded by no name, as old CUDA runtimes load theirs, it is
/// charged now.
fn variable_found(pointer: *mut CUdeviceptr, function: &CStr, result: CUresult) -> CUresult {
    let result = found(result);
    if result != CUDA_SUCCESS || pointer.is_null() || !gate::is_limited_process() {
        return result;
    }
    // SAFETY: the driver has just written there.
    let address = unsafe { pointer.read() };
    if managed::charge(address, function) {
        result
    } else {
        CUDA_ERROR_OUT_OF_MEMORY
    }
}

pub(crate) unsafe fn get_function(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuModuleGetFunction(function, module, name) })
}

pub(crate) unsafe fn get_global(
    pointer: *mut CUdeviceptr_v1,
    bytes: *mut c_uint,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuModuleGetGlobal(pointer, bytes, module, name) })
}

pub(crate) unsafe fn get_global_v2(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    variable_found(pointer, c"cuModuleGetGlobal", unsafe {
        real::cuModuleGetGlobal_v2(pointer, bytes, module, name)
    })
}

pub(crate) unsafe fn library_get_module(module: *mut CUmodule, library: CUlibrary) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuLibraryGetModule(module, library) })
}

pub(crate) unsafe fn library_get_global(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    variable_found(pointer, c"cuLibraryGetGlobal", unsafe {
        real::cuLibraryGetGlobal(pointer, bytes, library, name)
    })
}

pub(crate) unsafe fn library_get_managed(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    variable_found(pointer, c"cuLibraryGetManaged", unsafe {
        real::cuLibraryGetManaged(pointer, bytes, library, name)
    })
}

pub(crate) unsafe fn kernel_get_function(function: *mut CUfunction, kernel: CUkernel) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuKernelGetFunction(function, kernel) })
}

pub(crate) unsafe fn load_function(function: CUfunction) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuFuncLoad(function) })
}
