//! Libraries: loaded code that belongs to no context. It takes memory in each in which one of its kernels is used.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::functions::{self, Origin};
use crate::heap::Piece;
use crate::image::Image;
use crate::modules;
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// All libraries.
pub(crate) type Libraries = BTreeMap<usize, Library>;

/// One library.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    image: Image,
    /// What it has in each context in which it was used.
    pieces: BTreeMap<usize, Piece>,
}

exports! {
    static SYMBOLS;

    /// Loads a library from memory; there is nothing to compile, so options mean nothing.
    fn cuLibraryLoadData [cuLibraryLoadData 12000] (
        out: Out<CUlibrary>, image: In<c_void>, _options: Out<CUjit_option>, _values: *mut *mut c_void, _count: u32,
        _library_options: Out<CUlibraryOption>, _library_values: *mut *mut c_void, _library_count: u32
    ) => locked(|driver| out.set(handle(load(driver, modules::read_memory(image)?))));

    /// Loads a library from a file.
    fn cuLibraryLoadFromFile [cuLibraryLoadFromFile 12000] (
        out: Out<CUlibrary>, path: In<c_char>, _options: Out<CUjit_option>, _values: *mut *mut c_void, _count: u32,
        _library_options: Out<CUlibraryOption>, _library_values: *mut *mut c_void, _library_count: u32
    ) => locked(|driver| out.set(handle(load(driver, modules::read_file(&path.text()?)?))));

    /// Unloads a library.
    fn cuLibraryUnload [cuLibraryUnload 12000] (library: CUlibrary) => locked(|driver| {
        let number = library as usize;
        let library = driver.libraries.remove(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        functions::forget(driver, Origin::Library(number));
        for piece in library.pieces.into_values() {
            driver.heap.give_back(driver.node, piece);
        }
        Ok(())
    });

    /// A kernel of a library, for any context.
    fn cuLibraryGetKernel [cuLibraryGetKernel 12000] (out: Out<CUkernel>, library: CUlibrary, name: In<c_char>) =>
        locked(|driver| {
            let (number, name) = (library as usize, name.text()?);
            let library = driver.libraries.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let time = library.image.kernel(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
            out.set(handle(functions::enter(driver, Origin::Library(number), &name, time)?))
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
}

fn load(driver: &mut Driver, image: Image) -> usize {
    let number = new_handle();
    let library = Library {
        image,
        pieces: BTreeMap::new(),
    };
    driver.libraries.insert(number, library);
    number
}

/// Takes what a library needs in this thread's context, unless it has it.
pub(crate) fn use_here(driver: &mut Driver, number: usize) -> Outcome {
    let (context, _) = driver.contexts.current()?;
    let library = driver
        .libraries
        .get(&number)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if library.pieces.contains_key(&context) {
        return Ok(());
    }
    let variables = library.image.variables.iter().map(|(_, bytes)| *bytes);
    let bytes = variables.fold(library.image.code.max(1), u64::saturating_add);
    let piece = modules::take(driver, context, bytes)?;
    if let Some(library) = driver.libraries.get_mut(&number) {
        library.pieces.insert(context, piece);
    }
    Ok(())
}

/// Gives back what libraries have in a context.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    for library in driver.libraries.values_mut() {
        if let Some(piece) = library.pieces.remove(&context) {
            driver.heap.give_back(driver.node, piece);
        }
    }
}
