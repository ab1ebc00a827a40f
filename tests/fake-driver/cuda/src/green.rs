//! Green contexts: a part of a device's multiprocessors. Here they run like any other, but take what they take: of
//! the primary context, until that ends.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::{context_memory, memory, primary, streams};
use softmig_fake_node::edge::handle;

/// The one flag that `cuGreenCtxCreate` knows, and demands: CU_GREEN_CTX_DEFAULT_STREAM.
const DEFAULT_STREAM: u32 = 1;
/// Where `CUdevResource` has what it is, and the figures of multiprocessors; the header has 92 bytes between them.
const TYPE: usize = 0;
const MULTIPROCESSORS: usize = 24;

/// A green context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Green {
    device: usize,
    /// The ordinary context of this green one.
    context: usize,
}

exports! {
    static SYMBOLS;

    /// A device's divisible resources.
    fn cuDeviceGetDevResource [cuDeviceGetDevResource 12040] (
        device: CUdevice, out: Out<CUdevResource>, kind: CUdevResourceType
    ) => locked(|driver| {
        let device = driver.device(device)?;
        if kind != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut words = [0u32; 36];
        let count = driver.described(device)?.multiprocessors();
        for (at, word) in [
            (TYPE, kind),
            (MULTIPROCESSORS, count),
            (MULTIPROCESSORS + 1, 8),
            (MULTIPROCESSORS + 2, 8),
        ] {
            *words.get_mut(at).ok_or(CUDA_ERROR_INVALID_VALUE)? = word;
        }
        out.cast::<[u32; 36]>().set(words)
    });

    /// A green context's resources; one kind is like another here.
    fn cuDevResourceGenerateDesc [cuDevResourceGenerateDesc 12040] (
        out: Out<CUdevResourceDesc>, resources: Out<CUdevResource>, count: u32
    ) => locked(|_| {
        if !resources.is_wanted() || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(handle(new_handle()))
    });

    /// Makes a green context.
    fn cuGreenCtxCreate [cuGreenCtxCreate 12040] (
        out: Out<CUgreenCtx>, description: CUdevResourceDesc, device: CUdevice, flags: u32
    ) => locked(|driver| {
        if description.is_null() || flags != DEFAULT_STREAM {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.device(device)?;
        out.set(handle(create(driver, device)?))
    });

    /// Ends a green context.
    fn cuGreenCtxDestroy [cuGreenCtxDestroy 12040] (green: CUgreenCtx) =>
        locked(|driver| destroy(driver, green as usize));

    /// The ordinary context of a green one.
    fn cuCtxFromGreenCtx [cuCtxFromGreenCtx 12040] (out: Out<CUcontext>, green: CUgreenCtx) =>
        locked(|driver| out.set(handle(get(driver, green as usize)?.context)));

    /// A stream of a green context.
    fn cuGreenCtxStreamCreate [cuGreenCtxStreamCreate 12050] (
        out: Out<CUstream>, green: CUgreenCtx, flags: u32, priority: i32
    ) => locked(|driver| {
        let context = get(driver, green as usize)?.context;
        out.set(handle(streams::create(driver, context, flags, priority)?))
    });
}

fn get(driver: &Driver, number: usize) -> Outcome<Green> {
    let green = driver.contexts.green.get(&number).copied();
    green.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn create(driver: &mut Driver, device: usize) -> Outcome<usize> {
    let primary = primary::retain(driver, device)?;
    if let Err(full) = context_memory::provide_green(driver, primary) {
        primary::release(driver, device)?;
        return Err(full);
    }
    let context = driver.contexts.enter_green(device);
    let number = new_handle();
    driver
        .contexts
        .green
        .insert(number, Green { device, context });
    Ok(number)
}

fn destroy(driver: &mut Driver, number: usize) -> Outcome {
    let green = get(driver, number)?;
    memory::end_context(driver, green.context);
    driver.contexts.forget(green.context);
    driver.contexts.green.remove(&number);
    primary::release(driver, green.device)
}
