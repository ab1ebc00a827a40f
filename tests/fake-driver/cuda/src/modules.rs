//! Modules: loaded code with its kernels and variables, in one context.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Kind;

use crate::Outcome;
use crate::address::Area;
use crate::contexts;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::functions::{self, Origin};
use crate::heap::Piece;
use crate::image::Image;
use crate::memory;
use crate::ranges::{Range, Source};
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// All modules.
pub(crate) type Modules = BTreeMap<usize, Module>;

/// One module.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    context: usize,
    /// Whether it is a library's, with which it goes.
    owned: bool,
    image: Image,
    /// What its code and variables take.
    pieces: Vec<Piece>,
    /// Where its variables are.
    variables: BTreeMap<String, Area>,
}

exports! {
    static SYMBOLS;

    /// Loads a module from a file.
    fn cuModuleLoad [cuModuleLoad 2000] (out: Out<CUmodule>, path: In<c_char>) => locked(|driver| {
        let image = read_file(&path.text()?)?;
        out.set(handle(load(driver, image)?))
    });

    /// Loads a module from memory.
    fn cuModuleLoadData [cuModuleLoadData 2000] (out: Out<CUmodule>, image: In<c_void>) =>
        locked(|driver| out.set(handle(load(driver, read_memory(image)?)?)));

    /// Loads a module from memory; there is nothing to compile, so options mean nothing.
    fn cuModuleLoadDataEx [cuModuleLoadDataEx 2010] (
        out: Out<CUmodule>, image: In<c_void>, _count: u32, _options: Out<CUjit_option>, _values: *mut *mut c_void
    ) => locked(|driver| out.set(handle(load(driver, read_memory(image)?)?)));

    /// Loads a module from memory.
    fn cuModuleLoadFatBinary [cuModuleLoadFatBinary 2000] (out: Out<CUmodule>, image: In<c_void>) =>
        locked(|driver| out.set(handle(load(driver, read_memory(image)?)?)));

    /// Unloads a module.
    fn cuModuleUnload [cuModuleUnload 2000] (module: CUmodule) => locked(|driver| {
        let number = module as usize;
        let known = driver.modules.get(&number).filter(|module| !module.owned);
        known.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        unload(driver, number);
        Ok(())
    });

    /// A kernel of a module.
    fn cuModuleGetFunction [cuModuleGetFunction 2000] (out: Out<CUfunction>, module: CUmodule, name: In<c_char>) =>
        locked(|driver| {
            let (number, name) = (module as usize, name.text()?);
            let module = driver.modules.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let time = module.image.kernel(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
            out.set(handle(functions::enter(driver, Origin::Module(number), &name, time)?))
        });

    /// A variable of a module, for programs that count in 32 bits.
    fn cuModuleGetGlobal [cuModuleGetGlobal 2000] (
        address: Out<CUdeviceptr_v1>, bytes: Out<u32>, module: CUmodule, name: In<c_char>
    ) => locked(|driver| {
        driver.contexts.old_current()?;
        let area = variable(driver, module as usize, &name.text()?)?;
        let start = CUdeviceptr_v1::try_from(area.start).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        address.set_if_wanted(start);
        bytes.set_if_wanted(area.length as u32);
        Ok(())
    });

    /// A variable of a module.
    fn cuModuleGetGlobal_v2 [cuModuleGetGlobal 3020] (
        address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: In<c_char>
    ) => locked(|driver| {
        let area = variable(driver, module as usize, &name.text()?)?;
        address.set_if_wanted(area.start);
        bytes.set_if_wanted(area.length as usize);
        Ok(())
    });
}

/// Where a variable is.
pub(crate) fn variable(driver: &Driver, module: usize, name: &str) -> Outcome<Area> {
    let module = driver
        .modules
        .get(&module)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let area = module.variables.get(name).copied();
    area.ok_or(CUDA_ERROR_NOT_FOUND)
}

/// An image in a file.
pub(crate) fn read_file(path: &str) -> Outcome<Image> {
    let bytes = std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    if BINARIES.iter().any(|binary| bytes.starts_with(*binary)) {
        return Ok(Image::binary());
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
    Image::parse(text).ok_or(CUDA_ERROR_INVALID_IMAGE)
}

/// What binary images begin with: ELF, a fat binary, and what nvcc wraps around one.
const BINARIES: [&[u8; 4]; 3] = [
    b"\x7fELF",
    &[0x50, 0xed, 0x55, 0xba],
    &[0xb1, 0x43, 0x62, 0x46],
];

/// An image in memory: a binary one, or a text that ends with a zero.
pub(crate) fn read_memory(image: In<c_void>) -> Outcome<Image> {
    let address = image.address();
    if address == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let start: *const c_char = std::ptr::with_exposed_provenance(address);
    // Byte by byte, since a short text may end before the fourth.
    for binary in BINARIES {
        let mut matches = true;
        for (index, byte) in binary.iter().enumerate() {
            // SAFETY: the image ends with a zero or is longer than this, and the bytes before this one matched.
            let place = unsafe { start.add(index) };
            // SAFETY: as above.
            matches = matches && unsafe { place.read() } as u8 == *byte;
            if !matches {
                break;
            }
        }
        if matches {
            return Ok(Image::binary());
        }
    }
    // SAFETY: an image that is not binary is a text that ends with a zero.
    let text = unsafe { CStr::from_ptr(start) };
    let text = text.to_str().map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
    Image::parse(text).ok_or(CUDA_ERROR_INVALID_IMAGE)
}

fn load(driver: &mut Driver, image: Image) -> Outcome<usize> {
    let (context, _) = driver.contexts.current()?;
    load_into(driver, context, image, false)
}

/// Loads a module into a context.
pub(crate) fn load_into(
    driver: &mut Driver,
    context: usize,
    image: Image,
    owned: bool,
) -> Outcome<usize> {
    let mut module = Module {
        context,
        owned,
        image,
        pieces: Vec::new(),
        variables: BTreeMap::new(),
    };
    match fill(driver, &mut module) {
        Ok(()) => {
            let number = new_handle();
            driver.modules.insert(number, module);
            Ok(number)
        }
        Err(code) => {
            give_back(driver, module);
            Err(code)
        }
    }
}

/// Unloads a module.
pub(crate) fn unload(driver: &mut Driver, number: usize) {
    functions::forget(driver, Origin::Module(number));
    if let Some(module) = driver.modules.remove(&number) {
        give_back(driver, module);
    }
}

/// Takes what the module's code and variables need.
fn fill(driver: &mut Driver, module: &mut Module) -> Outcome {
    let context = module.context;
    let contexts::Context { device, origin, .. } = driver.contexts.get(context)?;
    let code = take(driver, context, module.image.code.max(1))?;
    module.pieces.push(code);
    for (name, bytes) in module.image.variables.clone() {
        let piece = take(driver, context, bytes.max(1))?;
        module.pieces.push(piece);
        let area = match origin {
            contexts::Origin::Old => Area::new_low(bytes.max(1))?,
            _ => Area::new(bytes.max(1))?,
        };
        driver.ranges.insert(Range {
            area,
            context,
            device,
            source: Source::Variable,
        });
        module.variables.insert(name, area);
    }
    Ok(())
}

/// Takes memory for code.
fn take(driver: &mut Driver, context: usize, bytes: u64) -> Outcome<Piece> {
    let device = driver.contexts.get(context)?.device;
    driver
        .heap
        .take(driver.node, context, device, Kind::Module, bytes)
}

fn give_back(driver: &mut Driver, module: Module) {
    for piece in module.pieces {
        driver.heap.give_back(driver.node, piece);
    }
    for area in module.variables.into_values() {
        if let Some(range) = driver.ranges.remove(area.start) {
            memory::release(driver, range);
        }
    }
}

/// Unloads the modules of a context, and what libraries have in it.
pub(crate) fn end_context(driver: &mut Driver, context: usize) {
    let modules = driver.modules.iter();
    let gone: Vec<usize> = modules
        .filter(|(_, module)| module.context == context)
        .map(|(number, _)| *number)
        .collect();
    for number in gone {
        unload(driver, number);
    }
    #[cfg(not(feature = "old"))]
    crate::libraries::end_context(driver, context);
}
