//! Memory by handle: another process's plain memory, opened here. It takes nothing more of the device.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::edge::Edge;

use crate::Out;
use crate::Outcome;
use crate::driver::Driver;
use crate::entry::locked;
use crate::export::exports;
use crate::memory;
use crate::ranges::Source;
use crate::sharing::{self, Ticket};

/// A handle, which comes by value.
pub(crate) struct Handle(CUipcMemHandle);

impl Edge for Handle {
    type Raw = CUipcMemHandle;

    unsafe fn from_raw(raw: CUipcMemHandle) -> Self {
        Handle(raw)
    }
}

exports! {
    static SYMBOLS;

    /// A handle by which another process can open this memory.
    fn cuIpcGetMemHandle [cuIpcGetMemHandle 4010] (out: Out<CUipcMemHandle>, address: CUdeviceptr) => locked(|driver| {
        let range = driver.ranges.around(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !matches!(range.source, Source::Device { .. }) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let ticket = sharing::share(driver, range.area.start)?;
        out.cast::<[u8; 64]>().set(ticket.to_bytes())
    });

    /// Opens another process's memory.
    fn cuIpcOpenMemHandle [cuIpcOpenMemHandle 4010] (
        out: Out<CUdeviceptr>, handle: Handle, flags: u32
    ) => locked(|driver| out.set(open(driver, &handle.0, flags)?));

    /// Opens another process's memory.
    fn cuIpcOpenMemHandle_v2 [cuIpcOpenMemHandle 11000] (
        out: Out<CUdeviceptr>, handle: Handle, flags: u32
    ) => locked(|driver| out.set(open(driver, &handle.0, flags)?));

    /// Closes it.
    fn cuIpcCloseMemHandle [cuIpcCloseMemHandle 4010] (address: CUdeviceptr) => locked(|driver| {
        let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !matches!(range.source, Source::Imported { .. }) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = driver.ranges.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        memory::release(driver, range);
        Ok(())
    });
}

fn open(driver: &mut Driver, handle: &CUipcMemHandle, flags: u32) -> Outcome<CUdeviceptr> {
    if flags & !CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (context, _) = driver.contexts.current()?;
    let bytes = handle.reserved.map(|byte| byte as u8);
    sharing::open(driver, &Ticket::from_bytes(&bytes), context)
}
