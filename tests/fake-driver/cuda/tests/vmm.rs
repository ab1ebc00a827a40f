//! Virtual memory, and memory from outside.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{cu, on};

const PINNED: CUmemAllocationProp = CUmemAllocationProp {
    type_: CU_MEM_ALLOCATION_TYPE_PINNED,
    requestedHandleTypes: CU_MEM_HANDLE_TYPE_NONE,
    location: CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    },
    win32HandleMetaData: std::ptr::null_mut(),
    allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    },
};

#[test]
fn virtual_memory_lives_until_released_and_unmapped() {
    on(
        "virtual_memory_lives_until_released_and_unmapped",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (mut handle, mut again, mut start, mut size) = (0u64, 0u64, 0u64, 0usize);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemGetAllocationGranularity(&raw mut size, &PINNED, 0u32)
                ),
                0
            );
            assert_eq!(size, 2 << 20);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 1usize << 20, &PINNED, 0u64)
                ),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 64usize << 20, &PINNED, 0u64)
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Vmm), 64 * MIB);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAddressReserve(&raw mut start, 128usize << 20, 0usize, 0u64, 0u64)
                ),
                0
            );
            assert_eq!(start % (2 << 20), 0);
            // Nothing is there yet.
            assert_eq!(
                cu!(cuda, cuMemsetD8_v2(start, 1u8, 16usize)),
                CUDA_ERROR_INVALID_VALUE
            );
            // The same memory twice.
            let second = start + (64 << 20);
            assert_eq!(
                cu!(cuda, cuMemMap(start, 64usize << 20, 0usize, handle, 0u64)),
                0
            );
            assert_eq!(
                cu!(cuda, cuMemMap(start, 64usize << 20, 0usize, handle, 0u64)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                cu!(cuda, cuMemMap(second, 64usize << 20, 0usize, handle, 0u64)),
                0
            );
            let access = CUmemAccessDesc {
                location: PINNED.location,
                flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            assert_eq!(
                cu!(
                    cuda,
                    cuMemSetAccess(start, 128usize << 20, &raw const access, 1usize)
                ),
                0
            );
            let mut byte = [0u8];
            assert_eq!(cu!(cuda, cuMemsetD8_v2(start, 5u8, 16usize)), 0);
            assert_eq!(
                cu!(cuda, cuMemcpyDtoH_v2(byte.as_mut_ptr(), second, 1usize)),
                0
            );
            assert_eq!(byte, [5]);
            assert_eq!(cuda.mine(Kind::Vmm), 64 * MIB);

            assert_eq!(
                cu!(cuda, cuMemRetainAllocationHandle(&raw mut again, start)),
                0
            );
            assert_eq!(again, handle);
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(cu!(cuda, cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuda.mine(Kind::Vmm), 64 * MIB);
            assert_eq!(
                cu!(cuda, cuMemAddressFree(start, 128usize << 20)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(cu!(cuda, cuMemUnmap(start, 64usize << 20)), 0);
            assert_eq!(cuda.mine(Kind::Vmm), 64 * MIB);
            // As on an H200, twice is fine.
            assert_eq!(cu!(cuda, cuMemUnmap(start, 64usize << 20)), 0);
            assert_eq!(cu!(cuda, cuMemUnmap(second, 64usize << 20)), 0);
            assert_eq!(cuda.mine(Kind::Vmm), 0);
            assert_eq!(cu!(cuda, cuMemAddressFree(start, 128usize << 20)), 0);
            let mut descriptor = 0i32;
            let code = cu!(
                cuda,
                cuMemExportToShareableHandle(&raw mut descriptor, handle, 1u32, 0u64)
            );
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        },
    );
}

#[test]
fn imported_external_memory_takes_nothing_more() {
    on(
        "imported_external_memory_takes_nothing_more",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let file = tempfile::tempfile().unwrap();
            file.set_len(8 << 20).unwrap();
            // SAFETY: a struct of numbers and a union.
            let mut asked: CUDA_EXTERNAL_MEMORY_HANDLE_DESC = unsafe { std::mem::zeroed() };
            asked.type_ = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
            asked.size = 8 << 20;
            asked.handle.fd = std::os::fd::IntoRawFd::into_raw_fd(file);
            let mut memory = 0usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuImportExternalMemory(&raw mut memory, &raw const asked)
                ),
                0
            );
            // SAFETY: as above.
            let mut part: CUDA_EXTERNAL_MEMORY_BUFFER_DESC = unsafe { std::mem::zeroed() };
            (part.offset, part.size) = (4096, 4096);
            let mut address = 0u64;
            assert_eq!(
                cu!(
                    cuda,
                    cuExternalMemoryGetMappedBuffer(&raw mut address, memory, &raw const part)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuMemsetD8_v2(address, 1u8, 4096usize)), 0);
            assert_eq!(cu!(cuda, cuDestroyExternalMemory(memory)), 0);
            assert_eq!(
                cu!(cuda, cuDestroyExternalMemory(memory)),
                CUDA_ERROR_INVALID_HANDLE
            );
            assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
        },
    );
}

#[test]
fn memory_of_the_host_takes_none_of_the_device() {
    on(
        "memory_of_the_host_takes_none_of_the_device",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut asked = support::PINNED;
            for place in [CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA] {
                asked.location.type_ = place;
                let mut handle = 0u64;
                let code = cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 64usize << 20, &raw const asked, 0u64)
                );
                assert_eq!(code, 0);
                assert_eq!(cuda.node.usage().unwrap()[0].used, 518 * MIB);
                assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            }
        },
    );
}

#[test]
fn a_descriptor_for_other_devices_keeps_memory() {
    on(
        "a_descriptor_for_other_devices_keeps_memory",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (address, mut descriptor) = (cuda.allocate(64 << 20).unwrap(), -1i32);
            let kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
            let mut get = |bytes: usize| {
                cu!(
                    cuda,
                    cuMemGetHandleForAddressRange(&raw mut descriptor, address, bytes, kind, 0u64)
                )
            };
            assert_eq!(get(1000), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(get(128 << 20), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(get(64 << 20), 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            assert_eq!(cuda.mine(Kind::Alloc), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, (518 + 64) * MIB);
            // SAFETY: it is this test's own.
            unsafe { libc::close(descriptor) };
            assert_eq!(cuda.node.usage().unwrap()[0].used, 518 * MIB);
        },
    );
}
