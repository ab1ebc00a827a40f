//! Primary contexts: one for each device, made for the first that wants it and gone with the last.

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::contexts::{self, Origin};
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use softmig_fake_node::edge::handle;

/// A device's primary context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Primary {
    /// The same each time it comes to be.
    pub(crate) handle: usize,
    /// How many want it.
    retained: u32,
    /// Whether it is there: a reset ends it for all holders, until it is retained anew.
    alive: bool,
    flags: u32,
}

exports! {
    static SYMBOLS;

    /// Makes the primary context, or wants it once more.
    fn cuDevicePrimaryCtxRetain [cuDevicePrimaryCtxRetain 7000] (out: Out<CUcontext>, device: CUdevice) =>
        locked(|driver| {
            let device = driver.device(device)?;
            let context = retain(driver, device)?;
            out.set(handle(context))
        });

    /// Wants it no more.
    fn cuDevicePrimaryCtxRelease [cuDevicePrimaryCtxRelease 7000] (device: CUdevice) =>
        locked(|driver| driver.device(device).and_then(|device| release(driver, device)));

    /// Wants it no more.
    fn cuDevicePrimaryCtxRelease_v2 [cuDevicePrimaryCtxRelease 11000] (device: CUdevice) =>
        locked(|driver| driver.device(device).and_then(|device| release(driver, device)));

    /// Ends it, and all that it has.
    fn cuDevicePrimaryCtxReset [cuDevicePrimaryCtxReset 7000] (device: CUdevice) =>
        locked(|driver| driver.device(device).and_then(|device| reset(driver, device)));

    /// Ends it, and all that it has.
    fn cuDevicePrimaryCtxReset_v2 [cuDevicePrimaryCtxReset 11000] (device: CUdevice) =>
        locked(|driver| driver.device(device).and_then(|device| reset(driver, device)));

    /// Its flags.
    fn cuDevicePrimaryCtxSetFlags_v2 [cuDevicePrimaryCtxSetFlags 11000] (device: CUdevice, flags: u32) =>
        locked(|driver| {
            let device = driver.device(device)?;
            if flags & !CU_CTX_FLAGS_MASK != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            known(driver, device).flags = flags;
            Ok(())
        });

    /// Its flags, and whether it is there.
    fn cuDevicePrimaryCtxGetState [cuDevicePrimaryCtxGetState 7000] (
        device: CUdevice, flags: Out<u32>, active: Out<i32>
    ) => locked(|driver| {
        let device = driver.device(device)?;
        let primary = *known(driver, device);
        flags.set(primary.flags)?;
        active.set(i32::from(primary.alive))
    });
}

fn known(driver: &mut Driver, device: usize) -> &mut Primary {
    let primary = driver.contexts.primary.entry(device);
    primary.or_insert_with(|| Primary {
        handle: new_handle(),
        retained: 0,
        alive: false,
        flags: 0,
    })
}

/// Wants a device's primary context, which takes memory if it is not there.
pub(crate) fn retain(driver: &mut Driver, device: usize) -> Outcome<usize> {
    let primary = *known(driver, device);
    if !primary.alive {
        contexts::begin(driver, device, Origin::Primary, primary.handle)?;
    }
    let known = known(driver, device);
    known.alive = true;
    known.retained += 1;
    Ok(primary.handle)
}

/// Wants it no more; the last takes it away.
pub(crate) fn release(driver: &mut Driver, device: usize) -> Outcome {
    let primary = *known(driver, device);
    match primary.retained {
        0 => return Err(CUDA_ERROR_INVALID_CONTEXT),
        1 => reset(driver, device)?,
        _ => {}
    }
    known(driver, device).retained -= 1;
    Ok(())
}

/// Whether it is there.
pub(crate) fn is_there(driver: &mut Driver, device: usize) -> bool {
    known(driver, device).alive
}

fn reset(driver: &mut Driver, device: usize) -> Outcome {
    let primary = *known(driver, device);
    if primary.alive {
        contexts::end(driver, primary.handle)?;
        known(driver, device).alive = false;
    }
    Ok(())
}
