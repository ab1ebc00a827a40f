//! Pools whose memory another process uses: it is counted for the process that made the pool, and once.

use std::ffi::c_void;
use std::fs::File;

use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;

use softmig_driver_sys::cuda::*;

use crate::Out;
use crate::Outcome;
use crate::driver::new_handle;
use crate::entry::locked;
use crate::export::exports;
use crate::pool_kinds::on_device;
use crate::pools::{self, Pool};
use crate::ranges::Source;
use crate::sharing::{self, Ticket};
use softmig_fake_node::edge::handle;

/// First bytes of the file behind an exported pool; the device's number follows.
const MARK: &[u8; 8] = b"fakepool";

exports! {
    static SYMBOLS;

    /// A descriptor by which another process can use a pool.
    fn cuMemPoolExportToShareableHandle [cuMemPoolExportToShareableHandle 11020] (
        out: Out<c_void>, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: u64
    ) => locked(|driver| {
        let pool = pools::get(driver, pool as usize)?;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 || !pool.shareable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (number, file) = driver.node.shared_file(16).map_err(sharing::failed)?;
        // Descriptors are all that is needed of it.
        driver.node.remove_shared_file(number);
        let mut text = MARK.to_vec();
        text.extend((pool.device as u64).to_le_bytes());
        file.write_all_at(&text, 0).map_err(sharing::failed)?;
        out.cast::<i32>().set(file.into_raw_fd())
    });

    /// Another process's pool, by a descriptor. It is the program's, and stays open.
    fn cuMemPoolImportFromShareableHandle [cuMemPoolImportFromShareableHandle 11020] (
        out: Out<CUmemoryPool>, descriptor: *mut c_void, kind: CUmemAllocationHandleType, flags: u64
    ) => locked(|driver| {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = sharing::borrow(descriptor as usize)?;
        let device = read_pool(&file)?;
        driver.ordinal(device)?;
        let mut pool = Pool::new(on_device(device));
        pool.imported = true;
        let number = new_handle();
        driver.pools.all.insert(number, pool);
        out.set(handle(number))
    });

    /// A handle of pool memory for another process.
    fn cuMemPoolExportPointer [cuMemPoolExportPointer 11020] (
        out: Out<CUmemPoolPtrExportData>, address: CUdeviceptr
    ) => locked(|driver| {
        let range = driver.ranges.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Source::Pool { pool, .. } = range.source else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if !pools::get(driver, pool)?.shareable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let ticket = sharing::share(driver, address)?;
        out.cast::<[u8; 64]>().set(ticket.to_bytes())
    });

    /// Another process's memory of a pool that was imported. It takes nothing of the device.
    fn cuMemPoolImportPointer [cuMemPoolImportPointer 11020] (
        out: Out<CUdeviceptr>, pool: CUmemoryPool, data: Out<CUmemPoolPtrExportData>
    ) => locked(|driver| {
        if !pools::get(driver, pool as usize)?.imported {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let ticket = Ticket::from_bytes(&data.cast::<[u8; 64]>().get()?);
        out.set(sharing::open(driver, &ticket, 0)?)
    });
}

/// The device of the pool whose descriptor this is.
fn read_pool(file: &File) -> Outcome<usize> {
    let mut text = [0; 16];
    file.read_exact_at(&mut text, 0)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let (mark, device) = text.split_at(MARK.len());
    if mark != MARK {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = device.try_into().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(u64::from_le_bytes(device) as usize)
}
