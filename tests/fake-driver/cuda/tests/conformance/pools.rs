//! Pools: what they keep, and when they give it back.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

fn default_pool() -> usize {
    new!(cuDeviceGetDefaultMemPool(0i32))
}

/// A figure of a pool in MiB.
fn attribute(pool: usize, which: u32) -> u64 {
    let mut value = 0u64;
    ok!(cuMemPoolGetAttribute(pool, which, &raw mut value));
    value >> 20
}

/// Has a pool keep all.
fn keep_all(pool: usize) {
    let (which, mut all) = (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
    ok!(cuMemPoolSetAttribute(pool, which, &raw mut all));
}

fn take(mib: usize, stream: usize) -> u64 {
    new!(cuMemAllocAsync(mib * MIB, stream))
}

/// A pool of its own, with memory of such a kind at such a place.
fn pool_of(kind: u32, place: u32, most: usize) -> usize {
    let mut asked: CUmemPoolProps = zeroed();
    asked.allocType = kind;
    asked.location.type_ = place;
    asked.maxSize = most;
    new!(cuMemPoolCreate(&raw const asked))
}

fn from(pool: usize, bytes: usize) -> Result<u64, u32> {
    let mut memory = 0u64;
    match cu!(cuMemAllocFromPoolAsync(
        &raw mut memory,
        bytes,
        pool,
        0usize
    )) {
        0 => Ok(memory),
        code => Err(code),
    }
}

#[test]
fn a_pool_keeps_what_is_freed_until_the_program_waits() {
    test(|| {
        start();
        let (stream, pool) = (stream(), default_pool());
        let one = take(1, stream);
        assert_eq!(taken(), 32);
        let two = take(1, stream);
        assert_eq!(taken(), 32);
        let large = take(40, stream);
        assert_eq!(taken(), 64);
        assert_eq!(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 42);
        ok!(cuMemFreeAsync(large, stream));
        assert_eq!(taken(), 64);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(taken(), 32);
        ok!(cuMemFreeAsync(one, stream));
        ok!(cuMemFreeAsync(two, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(taken(), 0);
        assert_eq!(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64);
    });
}

#[test]
fn a_threshold_keeps_memory_and_a_trim_frees_it() {
    test(|| {
        start();
        let (stream, pool) = (stream(), default_pool());
        keep_all(pool);
        ok!(cuMemFreeAsync(take(100, stream), stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(taken(), 128);
        ok!(cuMemPoolTrimTo(pool, 10 * MIB));
        assert_eq!(taken(), 32);
        ok!(cuMemPoolTrimTo(pool, 0usize));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_pool_of_its_own_has_its_limit_and_its_end() {
    test(|| {
        start();
        let (kind, place) = (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE);
        let pool = pool_of(kind, place, 64 * MIB);
        let memory = from(pool, 10 * MIB).unwrap();
        assert_eq!(from(pool, 100 * MIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
        ok!(cuMemPoolDestroy(pool));
        assert_eq!(taken(), 32);
        ok!(cuMemFreeAsync(memory, 0usize));
        ok!(cuStreamSynchronize(0usize));
        assert_eq!(taken(), 0);
        let code = cu!(cuMemPoolDestroy(default_pool()));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        // Plain memory can be freed in the order of a stream, too.
        ok!(cuMemFreeAsync(allocate(4 * MIB).unwrap(), 0usize));
        ok!(cuStreamSynchronize(0usize));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_pool_keeps_what_there_was_when_it_wanted_more() {
    test(|| {
        start();
        let all = allocate(info().0 - 100 * MIB).unwrap();
        let before = taken();
        let pool = default_pool();
        assert_eq!(from(pool, 200 * MIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(taken(), before);
        keep_all(pool);
        assert_eq!(from(pool, 200 * MIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(taken(), before + 96);
        // The pool's unused memory goes to the next allocation.
        allocate(64 * MIB).unwrap();
        ok!(cuMemFree_v2(all));
        assert_eq!(taken(), 64);
    });
}

#[test]
fn pools_of_other_memory_take_none_of_the_device() {
    test(|| {
        start();
        let (kind, place) = (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST);
        from(pool_of(kind, place, 0), 100 * MIB).unwrap();
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_plain_free_gives_back_and_is_not_counted() {
    test(|| {
        start();
        let memory = take(40, 0);
        assert_eq!(taken(), 64);
        ok!(cuMemFree_v2(memory));
        assert_eq!(taken(), 0);
        // The pool believes it to be in use.
        let used = attribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        assert_eq!(used, 40);
    });
}

#[test]
fn a_place_has_its_pool_by_whatever_name() {
    test(|| {
        start();
        let (mut place, kind) = (DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED);
        let default = default_pool();
        let found: usize = new!(cuMemGetDefaultMemPool(&raw mut place, kind));
        assert_eq!(found, default);
        let own = pool_of(kind, CU_MEM_LOCATION_TYPE_DEVICE, 0);
        ok!(cuMemSetMemPool(&raw mut place, kind, own));
        let found: usize = new!(cuDeviceGetMemPool(0i32));
        assert_eq!(found, own);
        ok!(cuDeviceSetMemPool(0i32, default));
        let found: usize = new!(cuMemGetMemPool(&raw mut place, kind));
        assert_eq!(found, default);
    });
}
