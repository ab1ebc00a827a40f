//! Memory that another interface made (Vulkan, say), handed over by a descriptor. Importing it takes nothing more.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use softmig_driver_sys::cuda::*;

use crate::Outcome;
use crate::address::Area;
use crate::driver::{Driver, new_handle};
use crate::entry::locked;
use crate::export::exports;
use crate::ranges::{Range, Source};
use crate::sharing;
use crate::{In, Out};
use softmig_fake_node::edge::handle;

/// External memory that was imported. Any file can be it.
#[derive(Debug)]
pub(crate) struct External {
    file: File,
    bytes: u64,
}

exports! {
    static SYMBOLS;

    /// Imports memory. Its descriptor is the driver's from now on.
    fn cuImportExternalMemory [cuImportExternalMemory 10000] (
        out: Out<CUexternalMemory>, description: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>
    ) => locked(|driver| {
        driver.contexts.current()?;
        let asked = description.get()?;
        if asked.type_ != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: the type says that the handle is a descriptor.
        let descriptor = unsafe { asked.handle.fd };
        let file = sharing::borrow(descriptor as usize)?;
        let available = file.metadata().map_err(sharing::failed)?.len();
        if asked.size == 0 || asked.size > available {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: it is open, as was seen above, and the manual makes it the driver's; `file` is another one of it.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let number = new_handle();
        driver.external.insert(number, External { file, bytes: asked.size });
        out.set(handle(number))
    });

    /// Maps a part of it.
    fn cuExternalMemoryGetMappedBuffer [cuExternalMemoryGetMappedBuffer 10000] (
        out: Out<CUdeviceptr>, memory: CUexternalMemory, description: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>
    ) => locked(|driver| {
        let asked = description.get()?;
        out.set(map(driver, memory as usize, asked.offset, asked.size)?)
    });

    /// Lets a stream wait for semaphores of another interface. None can be imported, so it names none.
    fn cuWaitExternalSemaphoresAsync [cuWaitExternalSemaphoresAsync 10000], cuWaitExternalSemaphoresAsync_ptsz [10000] (
        _list: In<CUexternalSemaphore>, _how: In<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>, count: u32, _stream: CUstream
    ) |_per_thread| => if count == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) };

    /// Gives it up; what is mapped stays until freed.
    fn cuDestroyExternalMemory [cuDestroyExternalMemory 10000] (memory: CUexternalMemory) => locked(|driver| {
        driver.external.remove(&(memory as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    });
}

fn map(driver: &mut Driver, number: usize, offset: u64, bytes: u64) -> Outcome<CUdeviceptr> {
    let (context, described) = driver.contexts.current()?;
    let external = driver
        .external
        .get(&number)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let end = offset.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if bytes == 0 || end > external.bytes {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // From the file's beginning, since a mapping begins on a page; the program's part lies within.
    let all = Area::of_file(&external.file, end)?;
    let area = Area {
        start: all.start + offset,
        length: bytes,
    };
    driver.ranges.insert(Range {
        area,
        context,
        device: described.device,
        source: Source::External,
    });
    Ok(area.start)
}
