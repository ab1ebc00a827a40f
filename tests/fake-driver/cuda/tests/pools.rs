//! Memory pools, and virtual memory.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Actor, Cuda, cu, on, role, say, wait_to_finish};

fn default_pool(cuda: &Cuda) -> usize {
    let mut pool = 0usize;
    assert_eq!(cu!(cuda, cuDeviceGetDefaultMemPool(&raw mut pool, 0i32)), 0);
    pool
}

fn attribute(cuda: &Cuda, pool: usize, which: u32) -> u64 {
    let mut value = 0u64;
    assert_eq!(
        cu!(cuda, cuMemPoolGetAttribute(pool, which, &raw mut value)),
        0
    );
    value
}

fn take(cuda: &Cuda, mib: usize, stream: usize) -> u64 {
    let mut address = 0u64;
    assert_eq!(
        cu!(cuda, cuMemAllocAsync(&raw mut address, mib << 20, stream)),
        0
    );
    address
}

#[test]
fn a_pool_keeps_what_is_freed_until_the_program_waits() {
    on(
        "a_pool_keeps_what_is_freed_until_the_program_waits",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (stream, pool) = (cuda.stream(), default_pool(&cuda));
            // The steps and figures of a run on an H200.
            let one = take(&cuda, 1, stream);
            assert_eq!(cuda.mine(Kind::Pool), 32 * MIB);
            let two = take(&cuda, 1, stream);
            assert_eq!(cuda.mine(Kind::Pool), 32 * MIB);
            let large = take(&cuda, 40, stream);
            assert_eq!(cuda.mine(Kind::Pool), 64 * MIB);
            assert_eq!(
                attribute(&cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                42 * MIB
            );
            assert_eq!(cu!(cuda, cuMemFreeAsync(large, stream)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 64 * MIB);
            assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 32 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(one)), 0);
            assert_eq!(cu!(cuda, cuMemFreeAsync(two, stream)), 0);
            assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 0);
            assert_eq!(
                attribute(&cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
                64 * MIB
            );
        },
    );
}

#[test]
fn a_threshold_keeps_memory_and_a_trim_frees_it() {
    on(
        "a_threshold_keeps_memory_and_a_trim_frees_it",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (stream, pool) = (cuda.stream(), default_pool(&cuda));
            let mut all = u64::MAX;
            let code = cu!(
                cuda,
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &raw mut all)
            );
            assert_eq!(code, 0);
            let address = take(&cuda, 100, stream);
            assert_eq!(cu!(cuda, cuMemFreeAsync(address, stream)), 0);
            assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 128 * MIB);
            assert_eq!(cu!(cuda, cuMemPoolTrimTo(pool, 10usize << 20)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 32 * MIB);
            assert_eq!(cu!(cuda, cuMemPoolTrimTo(pool, 0usize)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 0);
        },
    );
}

#[test]
fn a_pool_of_ones_own_has_its_limit_and_its_end() {
    on(
        "a_pool_of_ones_own_has_its_limit_and_its_end",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let stream = cuda.stream();
            // SAFETY: a struct of numbers and a pointer.
            let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
            properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
            properties.maxSize = 64 << 20;
            let (mut pool, mut address, mut more) = (0usize, 0u64, 0u64);
            assert_eq!(
                cu!(cuda, cuMemPoolCreate(&raw mut pool, &raw const properties)),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAllocFromPoolAsync(&raw mut address, 10usize << 20, pool, stream)
                ),
                0
            );
            let code = cu!(
                cuda,
                cuMemAllocFromPoolAsync(&raw mut more, 100usize << 20, pool, stream)
            );
            assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY);
            assert_eq!(cu!(cuda, cuMemPoolDestroy(pool)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 32 * MIB);
            assert_eq!(cu!(cuda, cuMemFreeAsync(address, stream)), 0);
            assert_eq!(cuda.mine(Kind::Pool), 0);
            assert_eq!(
                cu!(cuda, cuMemPoolTrimTo(pool, 0usize)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(
                cu!(cuda, cuMemPoolDestroy(default_pool(&cuda))),
                CUDA_ERROR_INVALID_VALUE
            );
            // Plain memory can be freed in the order of a stream, too.
            let plain = cuda.allocate(4 << 20).unwrap();
            assert_eq!(cu!(cuda, cuMemFreeAsync(plain, stream)), 0);
            assert_eq!(cuda.mine(Kind::Alloc), 0);
            assert_eq!(
                cu!(cuda, cuMemFreeAsync(0x1234u64, stream)),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}

#[test]
fn what_pools_keep_for_nobody_goes_before_memory_runs_out() {
    on(
        "what_pools_keep_for_nobody_goes_before_memory_runs_out",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (stream, pool) = (cuda.stream(), default_pool(&cuda));
            let mut all = u64::MAX;
            let code = cu!(
                cuda,
                cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &raw mut all)
            );
            assert_eq!(code, 0);
            let address = take(&cuda, 30 << 10, stream);
            assert_eq!(cu!(cuda, cuMemFreeAsync(address, stream)), 0);
            // SAFETY: a struct of numbers and a pointer.
            let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
            properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
            let (mut other, mut address) = (0usize, 0u64);
            assert_eq!(
                cu!(cuda, cuMemPoolCreate(&raw mut other, &raw const properties)),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAllocFromPoolAsync(&raw mut address, 40usize << 30, other, stream)
                ),
                0
            );
            let mut more = 0u64;
            let code = cu!(
                cuda,
                cuMemAllocFromPoolAsync(&raw mut more, 40usize << 30, other, stream)
            );
            assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY);
        },
    );
}

#[test]
fn part_that_imports_a_pool() {
    role("part_that_imports_a_pool", |cuda| {
        cuda.start();
        let descriptor: usize = std::env::var("DESCRIPTOR").unwrap().parse().unwrap();
        let text = std::env::var("TICKET").unwrap();
        let mut ticket = [0u8; 64];
        for (to, pair) in ticket.iter_mut().zip(text.as_bytes().chunks(2)) {
            *to = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        let (mut pool, mut address) = (0usize, 0u64);
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolImportFromShareableHandle(&raw mut pool, descriptor, 1u32, 0u64)
            ),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolImportPointer(&raw mut address, pool, ticket.as_mut_ptr())
            ),
            0
        );
        let mut word = [0u8; 5];
        assert_eq!(
            cu!(cuda, cuMemcpyDtoH_v2(word.as_mut_ptr(), address, 5usize)),
            0
        );
        assert_eq!(&word, b"hello");
        say("ready");
        wait_to_finish();
    });
}

#[test]
fn a_shared_pool_counts_once() {
    on("a_shared_pool_counts_once", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        // SAFETY: a struct of numbers and a pointer.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        let (mut pool, mut address, mut descriptor) = (0usize, 0u64, -1i32);
        assert_eq!(
            cu!(cuda, cuMemPoolCreate(&raw mut pool, &raw const properties)),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemAllocFromPoolAsync(&raw mut address, 4096usize, pool, 0usize)
            ),
            0
        );
        assert_eq!(
            cu!(cuda, cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize)),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolExportToShareableHandle(&raw mut descriptor, pool, 1u32, 0u64)
            ),
            0
        );
        let mut ticket = [0u8; 64];
        assert_eq!(
            cu!(cuda, cuMemPoolExportPointer(ticket.as_mut_ptr(), address)),
            0
        );
        // SAFETY: the driver just opened it for this test; the other gets one without close-on-exec.
        let kept = unsafe { libc::dup(descriptor) };
        let text: String = ticket.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut other = Actor::start("part_that_imports_a_pool", |command| {
            command
                .env("DESCRIPTOR", kept.to_string())
                .env("TICKET", text);
        });
        assert_eq!(other.hears(), "ready");
        assert_eq!(cuda.node.usage().unwrap()[0].used, (2 * 370 + 32) * MIB);
        other.finish();
    });
}

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
