//! Memory pools.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Cuda, cu, on};

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
            assert_eq!(cu!(cuda, cuMemPoolDestroy(pool)), CUDA_ERROR_INVALID_VALUE);
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
fn unused_memory_of_pools_goes_before_memory_runs_out() {
    on(
        "unused_memory_of_pools_goes_before_memory_runs_out",
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
fn a_pool_keeps_what_there_was_when_it_wanted_more() {
    on(
        "a_pool_keeps_what_there_was_when_it_wanted_more",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (mut free, mut total) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
            cuda.allocate(free - (100 << 20)).unwrap();
            let mut memory = 0u64;
            let mut take = || {
                cu!(
                    cuda,
                    cuMemAllocAsync(&raw mut memory, 200usize << 20, 0usize)
                )
            };
            assert_eq!(take(), CUDA_ERROR_OUT_OF_MEMORY);
            assert_eq!(cuda.mine(Kind::Pool), 0);
            let mut threshold = u64::MAX;
            let code = cu!(
                cuda,
                cuMemPoolSetAttribute(
                    default_pool(&cuda),
                    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                    &raw mut threshold
                )
            );
            assert_eq!(code, 0);
            assert_eq!(take(), CUDA_ERROR_OUT_OF_MEMORY);
            assert_eq!(cuda.mine(Kind::Pool), 96 * MIB);
            // The pool's unused memory goes to the next allocation.
            cuda.allocate(64 << 20).unwrap();
            assert_eq!(cuda.mine(Kind::Pool), 0);
        },
    );
}

/// A pool of its own, with memory of such a kind at such a place.
fn pool_of(cuda: &Cuda, kind: u32, place: u32) -> usize {
    // SAFETY: a struct of numbers and pointers.
    let mut asked: CUmemPoolProps = unsafe { std::mem::zeroed() };
    asked.allocType = kind;
    asked.location.type_ = place;
    let mut pool = 0usize;
    assert_eq!(
        cu!(cuda, cuMemPoolCreate(&raw mut pool, &raw const asked)),
        0
    );
    pool
}

#[test]
fn pools_of_other_memory_take_none_of_the_device_for_good() {
    on(
        "pools_of_other_memory_take_none_of_the_device_for_good",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut memory = 0u64;
            let host = pool_of(
                &cuda,
                CU_MEM_ALLOCATION_TYPE_PINNED,
                CU_MEM_LOCATION_TYPE_HOST,
            );
            let mut from = |pool: usize, bytes: usize| {
                cu!(
                    cuda,
                    cuMemAllocFromPoolAsync(&raw mut memory, bytes, pool, 0usize)
                )
            };
            assert_eq!(from(host, 100 << 20), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 518 * MIB);
            let managed = pool_of(
                &cuda,
                CU_MEM_ALLOCATION_TYPE_MANAGED,
                CU_MEM_LOCATION_TYPE_DEVICE,
            );
            // More than the device has: what does not fit is on the host.
            assert_eq!(from(managed, 200 << 30), 0);
            assert_eq!(cuda.mine(Kind::Pool), 0);
            assert_eq!(cuda.mine(Kind::Managed), 200 << 30);
            let (mut free, mut total) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
            assert_eq!(free, 0);
            cuda.allocate(64 << 20).unwrap();
        },
    );
}

#[test]
fn a_plain_free_gives_back_to_the_device_and_is_not_counted() {
    on(
        "a_plain_free_gives_back_to_the_device_and_is_not_counted",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let pool = default_pool(&cuda);
            let memory = take(&cuda, 40, 0);
            assert_eq!(cuda.mine(Kind::Pool), 64 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(memory)), 0);
            // As on an H200: the pool believes it to be in use.
            assert_eq!(cuda.mine(Kind::Pool), 0);
            let reserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
            assert_eq!(attribute(&cuda, pool, reserved), 0);
            assert_eq!(
                attribute(&cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                40 * MIB
            );
        },
    );
}

#[test]
fn a_place_has_its_pools_by_whatever_name() {
    on(
        "a_place_has_its_pools_by_whatever_name",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut place = CUmemLocation {
                type_: CU_MEM_LOCATION_TYPE_DEVICE,
                id: 0,
            };
            let pinned = CU_MEM_ALLOCATION_TYPE_PINNED;
            let (default, mut found) = (default_pool(&cuda), 0usize);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemGetDefaultMemPool(&raw mut found, &raw mut place, pinned)
                ),
                0
            );
            assert_eq!(found, default);
            let own = pool_of(&cuda, pinned, CU_MEM_LOCATION_TYPE_DEVICE);
            assert_eq!(cu!(cuda, cuMemSetMemPool(&raw mut place, pinned, own)), 0);
            for _ in 0..2 {
                assert_eq!(cu!(cuda, cuDeviceGetMemPool(&raw mut found, 0i32)), 0);
                assert_eq!(found, own);
            }
            assert_eq!(cu!(cuda, cuDeviceSetMemPool(0i32, default)), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemGetMemPool(&raw mut found, &raw mut place, pinned)
                ),
                0
            );
            assert_eq!(found, default);
            // Managed memory and the host's have their own.
            for (kind, type_) in [
                (CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_NONE),
                (CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE),
                (pinned, CU_MEM_LOCATION_TYPE_HOST),
            ] {
                place.type_ = type_;
                assert_eq!(
                    cu!(cuda, cuMemGetMemPool(&raw mut found, &raw mut place, kind)),
                    0
                );
                assert!(found != default && found != own);
            }
            place.type_ = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
            assert_eq!(
                cu!(
                    cuda,
                    cuMemGetMemPool(&raw mut found, &raw mut place, pinned)
                ),
                CUDA_ERROR_NOT_SUPPORTED
            );
        },
    );
}
