//! Memory that is created, mapped and exported by calls of its own.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

#[test]
fn memory_lives_until_released_and_unmapped() {
    test(|| {
        start();
        let (half, all) = (64 * MIB, 128 * MIB);
        let size: usize = new!(cuMemGetAllocationGranularity(&SHAREABLE, 0u32));
        assert_eq!(size, 2 * MIB);
        let mut handle = 0u64;
        let code = cu!(cuMemCreate(&raw mut handle, MIB, &SHAREABLE, 0u64));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemCreate(&raw mut handle, half, &SHAREABLE, 0u64));
        assert_eq!(taken(), 64);
        let start: u64 = new!(cuMemAddressReserve(all, 0usize, 0u64, 0u64));
        assert_eq!(start % (2 << 20), 0);
        // The same memory twice.
        let second = start + (64 << 20);
        ok!(cuMemMap(start, half, 0usize, handle, 0u64));
        let code = cu!(cuMemMap(start, half, 0usize, handle, 0u64));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemMap(second, half, 0usize, handle, 0u64));
        let access = CUmemAccessDesc {
            location: DEVICE,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        ok!(cuMemSetAccess(start, all, &raw const access, 1usize));
        ok!(cuMemsetD8_v2(start, 5u8, 16usize));
        assert_eq!(read(second), [5]);
        assert_eq!(taken(), 64);

        let again: u64 = new!(cuMemRetainAllocationHandle(start));
        assert_eq!(again, handle);
        ok!(cuMemRelease(handle));
        ok!(cuMemRelease(handle));
        assert_eq!(cu!(cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
        let code = cu!(cuMemAddressFree(start, all));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemUnmap(start, half));
        assert_eq!(taken(), 64);
        // Twice is fine.
        ok!(cuMemUnmap(start, half));
        ok!(cuMemUnmap(second, half));
        assert_eq!(taken(), 0);
        ok!(cuMemAddressFree(start, all));
    });
}

#[test]
fn memory_of_the_host_takes_none_of_the_device() {
    test(|| {
        start();
        for place in [CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA] {
            let mut asked = SHAREABLE;
            asked.location.type_ = place;
            let handle: u64 = new!(cuMemCreate(64 * MIB, &raw const asked, 0u64));
            assert_eq!(taken(), 0);
            ok!(cuMemRelease(handle));
        }
    });
}

#[test]
fn a_descriptor_keeps_memory() {
    test(|| {
        start();
        let handle: u64 = new!(cuMemCreate(64 * MIB, &SHAREABLE, 0u64));
        let descriptor: i32 = new!(cuMemExportToShareableHandle(handle, 1u32, 0u64));
        ok!(cuMemRelease(handle));
        assert_eq!(taken(), 64);
        let number = descriptor.cast_unsigned() as usize;
        let handle: u64 = new!(cuMemImportFromShareableHandle(number, 1u32));
        // SAFETY: it is this test's own.
        unsafe { libc::close(descriptor) };
        assert_eq!(taken(), 64);
        ok!(cuMemRelease(handle));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_descriptor_for_other_devices_keeps_memory() {
    test(|| {
        start();
        let address = allocate(64 * MIB).unwrap();
        let mut file = -1i32;
        let mut get = |bytes: usize| {
            let kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
            let to = &raw mut file;
            cu!(cuMemGetHandleForAddressRange(
                to, address, bytes, kind, 0u64
            ))
        };
        assert_eq!(get(1000), CUDA_ERROR_INVALID_VALUE);
        match get(64 * MIB) {
            CUDA_ERROR_NOT_SUPPORTED if is_real() => return,
            code => assert_eq!(code, 0),
        }
        ok!(cuMemFree_v2(address));
        assert_eq!(taken(), 64);
        // SAFETY: it is this test's own.
        unsafe { libc::close(file) };
        assert_eq!(taken(), 0);
    });
}
