//! Libraries: loaded code that belongs to no context. It takes memory in each in which one of its kernels is used.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::functions::{self, Origin};
use crate::image::Image;
use crate::modules::{self, Variables};
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// All libraries.
pub(crate) type Libraries = BTreeMap<usize, Library>;

/// One library.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    image: Image,
    /// Its module in each context in which it was used.
    modules: BTreeMap<usize, usize>,
    /// Its managed variables, from the load on, in whatever context or none.
    managed: Variables,
}

exports! {
    static SYMBOLS;

    /// Loads a library from memory; there is nothing to compile, so options mean nothing.
    fn cuLibraryLoadData [cuLibraryLoadData 12000] (
        out: Out<CUlibrary>, image: In<c_void>, _options: Out<CUjit_option>, _values: *mut *mut c_void, _count: u32,
        _library_options: Out<CUlibraryOption>, _library_values: *mut *mut c_void, _library_count: u32
    ) => locked(|driver| out.set(handle(load(driver, modules::read_memory(image)?)?)));

    /// Loads a library from a file.
    fn cuLibraryLoadFromFile [cuLibraryLoadFromFile 12000] (
        out: Out<CUlibrary>, path: In<c_char>, _options: Out<CUjit_option>, _values: *mut *mut c_void, _count: u32,
        _library_options: Out<CUlibraryOption>, _library_values: *mut *mut c_void, _library_count: u32
    ) => locked(|driver| out.set(handle(load(driver, modules::read_file(&path.text()?)?)?)));

    /// Unloads a library.
    fn cuLibraryUnload [cuLibraryUnload 12000] (library: CUlibrary) => locked(|driver| {
        let number = library as usize;
        let library = driver.libraries.remove(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        functions::forget(driver, Origin::Library(number));
        for module in library.modules.into_values() {
            modules::unload(driver, module);
        }
        modules::give_back_variables(driver, library.managed);
        Ok(())
    });

    /// A library's module in this thread's context.
    fn cuLibraryGetModule [cuLibraryGetModule 12000] (out: Out<CUmodule>, library: CUlibrary) =>
        locked(|driver| out.set(handle(use_here(driver, library as usize)?)));

    /// A variable of a library, in this thread's context.
    fn cuLibraryGetGlobal [cuLibraryGetGlobal 12000] (
        address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: In<c_char>
    ) => locked(|driver| {
        let module = use_here(driver, library as usize)?;
        let area = modules::variable(driver, module, &name.text()?)?;
        address.set_if_wanted(area.start);
        bytes.set_if_wanted(area.length as usize);
        Ok(())
    });

    /// A managed variable of a library.
    fn cuLibraryGetManaged [cuLibraryGetManaged 12000] (
        address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: In<c_char>
    ) => locked(|driver| {
        let library = driver.libraries.get(&(library as usize)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (area, _) = library.managed.get(&name.text()?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        address.set_if_wanted(area.start);
        bytes.set_if_wanted(area.length as usize);
        Ok(())
    });

    /// A kernel of a library, for any context.
    fn cuLibraryGetKernel [cuLibraryGetKernel 12000] (out: Out<CUkernel>, library: CUlibrary, name: In<c_char>) =>
        locked(|driver| {
            let (number, name) = (library as usize, name.text()?);
            let library = driver.libraries.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let kernel = library.image.kernel(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
            out.set(handle(functions::enter(driver, Origin::Library(number), &name, kernel)?))
        });

    /// A kernel in this thread's context.
    fn cuKernelGetFunction [cuKernelGetFunction 12000] (out: Out<CUfunction>, kernel: CUkernel) => locked(|driver| {
        let Origin::Library(library) = functions::get(driver, kernel as usize)?.origin else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        use_here(driver, library)?;
        // Function and kernel are one here: both can be launched.
        out.set(handle(kernel as usize))
    });

    /// Loads a kernel, unless it is.
    fn cuFuncLoad [cuFuncLoad 12040] (function: CUfunction) => locked(|driver| {
        if let Origin::Library(library) = functions::get(driver, function as usize)?.origin {
            use_here(driver, library)?;
        }
        Ok(())
    });
}

fn load(driver: &mut Driver, image: Image) -> Outcome<usize> {
    // Without a context they are the first device's (seen on an H200).
    let current = driver.contexts.current();
    let device = current.map_or_else(|_| driver.device(0), |(_, context)| Ok(context.device))?;
    let mut managed = Variables::new();
    let taken = modules::take_managed(driver, 0, device, &image.managed, &mut managed);
    if let Err(code) = taken {
        modules::give_back_variables(driver, managed);
        return Err(code);
    }
    let number = new_handle();
    let library = Library {
        image,
        modules: BTreeMap::new(),
        managed,
    };
    driver.libraries.insert(number, library);
    Ok(number)
}

/// Takes what a library needs in this thread's context, unless that was taken before. Returns the library's module.
pub(crate) fn use_here(driver: &mut Driver, number: usize) -> Outcome<usize> {
    let (context, _) = driver.contexts.current()?;
    let library = driver
        .libraries
        .get(&number)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if let Some(known) = library.modules.get(&context) {
        return Ok(*known);
    }
    let image = library.image.clone();
    let module = modules::load_into(driver, context, image, true)?;
    if let Err(code) = modules::load_code(driver, module) {
        modules::unload(driver, module);
        return Err(code);
    }
    if let Some(library) = driver.libraries.get_mut(&number) {
        library.modules.insert(context, module);
    }
    Ok(module)
}

/// Forgets what libraries had in a context, which ended with it.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    for library in driver.libraries.values_mut() {
        library.modules.remove(&context);
    }
}
