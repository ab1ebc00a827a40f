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
use crate::heap::{Part, Place};
use crate::image::Image;
use crate::memory;
use crate::ranges::{Range, Source};
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// All modules.
pub(crate) type Modules = BTreeMap<usize, Module>;

/// Where variables are, and what they take.
pub(crate) type Variables = BTreeMap<String, (Area, Part)>;

/// One module.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    context: usize,
    /// Whether it is a library's, with which it goes.
    owned: bool,
    image: Image,
    /// Its code's place, once one of its kernels is looked up.
    code: Code,
    /// Its variables.
    variables: Variables,
}

/// Where a module's code is.
#[derive(Clone, Copy, Debug)]
enum Code {
    /// Not loaded yet.
    Nowhere,
    /// In the room for code that a context has anyway.
    Context,
    Part(Part),
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
            let kernel = module.image.kernel(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
            load_code(driver, number)?;
            out.set(handle(functions::enter(driver, Origin::Module(number), &name, kernel)?))
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
    let variable = module.variables.get(name).copied();
    let (area, _) = variable.ok_or(CUDA_ERROR_NOT_FOUND)?;
    Ok(area)
}

/// The context of a module.
pub(crate) fn context_of(driver: &Driver, number: usize) -> Outcome<usize> {
    let module = driver.modules.get(&number);
    Ok(module.ok_or(CUDA_ERROR_INVALID_HANDLE)?.context)
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

/// First bytes of binary images: ELF, a fat binary, and nvcc's wrapper of one.
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

/// Loads a module into this thread's context.
pub(crate) fn load(driver: &mut Driver, image: Image) -> Outcome<usize> {
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
        code: Code::Nowhere,
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

/// Takes what the module's variables need.
fn fill(driver: &mut Driver, module: &mut Module) -> Outcome {
    let context = module.context;
    let place = place(driver, context)?;
    for (name, bytes) in module.image.variables.clone() {
        let part = driver.heap.take(driver.node, place, bytes)?;
        let area = Area {
            start: part.start,
            length: bytes.max(1),
        };
        module.variables.insert(name, (area, part));
        driver.ranges.insert(Range {
            area,
            context,
            device: place.device,
            source: Source::Variable,
        });
    }
    // A library's are its own.
    if !module.owned {
        let managed = std::mem::take(&mut module.image.managed);
        take_managed(
            driver,
            context,
            place.device,
            &managed,
            &mut module.variables,
        )?;
        module.image.managed = managed;
    }
    Ok(())
}

/// Takes what managed variables need.
pub(crate) fn take_managed(
    driver: &mut Driver,
    context: usize,
    device: usize,
    managed: &[(String, u64)],
    variables: &mut Variables,
) -> Outcome {
    for (name, bytes) in managed {
        let (area, part) = memory::take_managed(driver, device, *bytes)?;
        variables.insert(name.clone(), (area, part));
        driver.ranges.insert(Range {
            area,
            context,
            device,
            source: Source::ManagedVariable,
        });
    }
    Ok(())
}

/// Gives back what variables have.
pub(crate) fn give_back_variables(driver: &mut Driver, variables: Variables) {
    for (area, part) in variables.into_values() {
        driver.ranges.remove(area.start);
        driver.heap.give_back(driver.node, part);
    }
}

/// Takes what a module's code needs, unless it has it: it is left for later when a module is loaded (seen on an H200).
pub(crate) fn load_code(driver: &mut Driver, number: usize) -> Outcome {
    let module = driver
        .modules
        .get(&number)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let (context, bytes) = (module.context, module.image.code);
    if !matches!(module.code, Code::Nowhere) {
        return Ok(());
    }
    let room = &mut driver.contexts.get_mut(context)?.code_room;
    let code = if bytes <= *room {
        *room -= bytes;
        Code::Context
    } else {
        let place = place(driver, context)?;
        Code::Part(driver.heap.take(driver.node, place, bytes)?)
    };
    if let Some(module) = driver.modules.get_mut(&number) {
        module.code = code;
    }
    Ok(())
}

fn place(driver: &Driver, context: usize) -> Outcome<Place> {
    let known = driver.contexts.get(context)?;
    Ok(Place {
        context,
        device: known.device,
        kind: Kind::Module,
        low: known.origin == contexts::Origin::Old,
    })
}

fn give_back(driver: &mut Driver, module: Module) {
    match module.code {
        Code::Nowhere => {}
        Code::Context => {
            if let Ok(context) = driver.contexts.get_mut(module.context) {
                context.code_room += module.image.code;
            }
        }
        Code::Part(part) => driver.heap.give_back(driver.node, part),
    }
    give_back_variables(driver, module.variables);
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
