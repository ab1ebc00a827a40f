//! Code and its variables. How much a module takes nobody says, and most of it comes when it is first used: so the
//! driver's own figure for the process is looked at, whenever what is free on the GPU has changed by then.

use core::ffi::{c_char, c_uint, c_void};

use softmig_driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option,
    CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};

use crate::account::here;
use crate::memory::stacks;
use crate::rows::cuda::real;

/// After code was loaded: if the job holds more than its limit now, it is unloaded again.
fn loaded(result: CUresult, unload: impl FnOnce() -> CUresult) -> CUresult {
    let Some(gpu) = here().filter(|_| result == CUDA_SUCCESS) else {
        return result;
    };
    if gpu.has_room_for_code() {
        return result;
    }
    let _ = unload();
    gpu.look_again();
    CUDA_ERROR_OUT_OF_MEMORY
}

fn module(module: *mut CUmodule, result: CUresult) -> CUresult {
    loaded(result, || {
        // SAFETY: the driver has just written there.
        let module = unsafe { module.read() };
        // SAFETY: the program has not heard of it.
        unsafe { real::cuModuleUnload(module) }
    })
}

fn library(library: *mut CUlibrary, result: CUresult) -> CUresult {
    loaded(result, || {
        // SAFETY: as above.
        let library = unsafe { library.read() };
        // SAFETY: as above.
        unsafe { real::cuLibraryUnload(library) }
    })
}

pub(crate) unsafe fn load(place: *mut CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    module(place, unsafe { real::cuModuleLoad(place, name) })
}

pub(crate) unsafe fn load_data(place: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as above.
    module(place, unsafe { real::cuModuleLoadData(place, image) })
}

pub(crate) unsafe fn load_data_ex(
    place: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: as above.
    module(place, unsafe {
        real::cuModuleLoadDataEx(place, image, count, options, values)
    })
}

pub(crate) unsafe fn load_fat_binary(place: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as above.
    module(place, unsafe { real::cuModuleLoadFatBinary(place, image) })
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
    library(place, unsafe {
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
    library(place, unsafe {
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
    found(unsafe { real::cuModuleGetGlobal_v2(pointer, bytes, module, name) })
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
    found(unsafe { real::cuLibraryGetGlobal(pointer, bytes, library, name) })
}

pub(crate) unsafe fn library_get_managed(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuLibraryGetManaged(pointer, bytes, library, name) })
}

pub(crate) unsafe fn kernel_get_function(function: *mut CUfunction, kernel: CUkernel) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuKernelGetFunction(function, kernel) })
}

pub(crate) unsafe fn load_function(function: CUfunction) -> CUresult {
    // SAFETY: as above.
    found(unsafe { real::cuFuncLoad(function) })
}
