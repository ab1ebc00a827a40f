//! Private tables: functions that no name leads to, as the CUDA runtime uses for contexts.
//!
//! The one here is known by the UUID `66616b65-6375-6461-7461-626c65000001` (the bytes of "fakecudatable", then 0, 0
//! and 1). It begins with its size in bytes, 8 bytes wide; four functions follow:
//! `CUresult retain(CUcontext *, CUdevice)` makes a device's primary context, or wants it once more;
//! `CUresult release(CUdevice)`; `CUresult is_there(CUdevice, int *)`; `CUresult load(CUmodule *, const void *)`, as
//! `cuModuleLoadData`. Their calls are not counted.

use std::ffi::c_void;

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::entry::{code, locked};
use crate::export::exports;
use crate::modules;
use crate::primary;
use crate::{In, Out};
use softmig_fake_node::edge::{Edge, handle};

/// The table's name.
const NAME: [u8; 16] = *b"fakecudatable\0\0\x01";

#[repr(C)]
struct Table {
    bytes: usize,
    retain: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult,
    release: extern "C" fn(CUdevice) -> CUresult,
    is_there: unsafe extern "C" fn(CUdevice, *mut i32) -> CUresult,
    load: unsafe extern "C" fn(*mut CUmodule, *const c_void) -> CUresult,
}

static TABLE: Table = Table {
    bytes: size_of::<Table>(),
    retain,
    release,
    is_there,
    load,
};

exports! {
    static SYMBOLS;

    /// A private table by its name. Needs nothing before it.
    fn cuGetExportTable [cuGetExportTable 3000] (out: Out<*const c_void>, name: In<CUuuid>) => table(out, name);
}

fn table(out: Out<*const c_void>, name: In<CUuuid>) -> Outcome {
    if name.get()?.bytes.map(|byte| byte as u8) != NAME {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(std::ptr::from_ref(&TABLE).cast())
}

unsafe extern "C" fn retain(out: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: as for exported functions, the caller gives a valid pointer or null.
    let out = unsafe { Out::from_raw(out) };
    code(locked(|driver| {
        let device = driver.device(device)?;
        let context = primary::retain(driver, device)?;
        out.set(handle(context))
    }))
}

extern "C" fn release(device: CUdevice) -> CUresult {
    code(locked(|driver| {
        let device = driver.device(device)?;
        primary::release(driver, device)
    }))
}

unsafe extern "C" fn is_there(device: CUdevice, out: *mut i32) -> CUresult {
    // SAFETY: as for exported functions, the caller gives a valid pointer or null.
    let out = unsafe { Out::from_raw(out) };
    code(locked(|driver| {
        let device = driver.device(device)?;
        out.set(i32::from(primary::is_there(driver, device)))
    }))
}

unsafe extern "C" fn load(out: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: as for exported functions, the caller gives a valid pointer or null.
    let out = unsafe { Out::from_raw(out) };
    // SAFETY: as above.
    let image = unsafe { In::from_raw(image) };
    code(locked(|driver| {
        let image = modules::read_memory(image)?;
        out.set(handle(modules::load(driver, image)?))
    }))
}
