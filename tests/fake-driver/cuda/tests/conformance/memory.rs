//! Each way to take device memory and to give it back.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

#[test]
fn small_pieces_share_two_mib() {
    test(|| {
        start();
        let one = allocate(1).unwrap();
        assert_eq!(taken(), 2);
        let two = allocate(MIB).unwrap();
        assert_eq!(taken(), 2);
        let large = allocate(2 * MIB + 1).unwrap();
        assert_eq!(taken(), 6);
        for address in [one, two, large] {
            assert_eq!(address % 512, 0);
            ok!(cuMemFree_v2(address));
            assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
        }
        assert_eq!(taken(), 0);
        ok!(cuMemFree_v2(0u64));
        assert_eq!(allocate(0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(allocate(1 << 45), Err(CUDA_ERROR_OUT_OF_MEMORY));
    });
}

#[test]
fn memory_is_the_pieces_that_addresses_touch() {
    test(|| {
        start();
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..300 {
            if round % 3 == 2 {
                let (address, _) = live.swap_remove(random(live.len() as u64) as usize);
                ok!(cuMemFree_v2(address));
            } else {
                let bytes = 1 + random([600, 70_000, 1_700_000, 9_000_000][round % 4]);
                live.push((allocate(bytes as usize).unwrap(), bytes));
            }
            let pieces = live
                .iter()
                .flat_map(|(address, bytes)| address >> 21..=(address + bytes - 1) >> 21);
            let pieces: std::collections::BTreeSet<u64> = pieces.collect();
            assert_eq!(taken(), pieces.len() as i64 * 2);
        }
    });
}

#[test]
fn a_full_device_gives_no_more() {
    test(|| {
        start();
        let (free, _) = info();
        let all = allocate(free - 64 * MIB).unwrap();
        assert_eq!(allocate(128 * MIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
        let code = cu!(cuCtxCreate_v2(&mut 0usize, 0u32, 0i32));
        assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY);
        ok!(cuMemFree_v2(all));
        allocate(128 * MIB).unwrap();
    });
}

#[test]
fn rows_begin_at_multiples_of_512() {
    test(|| {
        start();
        let rows = |element: u32| {
            let (mut address, mut pitch) = (0u64, 0usize);
            let (to, by) = (&raw mut address, &raw mut pitch);
            let code = cu!(cuMemAllocPitch_v2(to, by, 513usize, 65536usize, element));
            (code, pitch)
        };
        assert_eq!(rows(4), (0, 1024));
        assert_eq!(rows(3).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(taken(), 64);
    });
}

#[test]
fn copies_are_copies() {
    test(|| {
        start();
        let (one, two) = (allocate(4096).unwrap(), allocate(4096).unwrap());
        let text = *b"what goes in comes out";
        ok!(cuMemcpyHtoD_v2(one, text.as_ptr(), text.len()));
        ok!(cuMemcpyDtoD_v2(two, one, text.len()));
        assert_eq!(read(two), text);
        ok!(cuMemsetD8_v2(two, b'x', 4usize));
        let mut back = [0u8; 22];
        ok!(cuMemcpy(back.as_mut_ptr() as u64, two, 22usize));
        assert_eq!(&back, b"xxxx goes in comes out");
    });
}

#[test]
fn an_address_has_attributes() {
    test(|| {
        start();
        let memory = allocate(3000).unwrap();
        let (mut start, mut bytes) = (0u64, 0usize);
        let mut range = |address: u64| {
            cu!(cuMemGetAddressRange_v2(
                &raw mut start,
                &raw mut bytes,
                address
            ))
        };
        assert_eq!(range(memory + 3000), CUDA_ERROR_NOT_FOUND);
        assert_eq!(range(memory + 2999), 0);
        assert_eq!((start, bytes), (memory, 3000));
        let (mut managed, mut device) = (9u32, 9i32);
        let wanted = [
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut places = [(&raw mut managed).cast::<u8>(), (&raw mut device).cast()];
        for (address, answer) in [(memory, (0, 0)), (5, (0, -2))] {
            let (wanted, places) = (wanted.as_ptr(), places.as_mut_ptr());
            ok!(cuPointerGetAttributes(2u32, wanted, places, address));
            assert_eq!((managed, device), answer);
        }
    });
}

/// On a real GPU, managed memory takes device memory when it is used there.
#[test]
fn managed_memory_moves_where_it_is_wanted() {
    test(|| {
        start();
        let bytes = 64 * MIB;
        let memory: u64 = new!(cuMemAllocManaged(bytes, 1u32));
        let host = CUmemLocation {
            type_: CU_MEM_LOCATION_TYPE_HOST,
            id: 0,
        };
        let move_to = |address: u64, place: CUmemLocation| {
            cu!(cuMemPrefetchAsync_v2(address, bytes, place, 0u32, 0usize))
        };
        assert_eq!(move_to(memory, DEVICE), 0);
        ok!(cuCtxSynchronize());
        assert_eq!(taken(), 64);
        assert_eq!(move_to(memory, host), 0);
        let plain = allocate(bytes).unwrap();
        assert_eq!(move_to(plain, DEVICE), CUDA_ERROR_INVALID_VALUE);
        ok!(cuMemFree_v2(plain));
        ok!(cuMemFree_v2(memory));
        assert_eq!(taken(), 0);
    });
}

/// A shape whose elements have `bytes` bytes.
fn shape([width, height, depth]: [usize; 3], bytes: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let (format, channels) = match bytes {
        1 => (CU_AD_FORMAT_UNSIGNED_INT8, 1),
        2 => (CU_AD_FORMAT_UNSIGNED_INT16, 1),
        bytes => (CU_AD_FORMAT_FLOAT, bytes / 4),
    };
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

#[test]
fn arrays_are_padded_to_blocks() {
    test(|| {
        start();
        let (layered, cubes) = (CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP);
        for (size, bytes, flags, mib) in [
            ([64, 0, 0], 4, 0, 2),
            ([1024, 1024, 0], 4, 0, 4),
            ([1024, 1025, 0], 4, 0, 6),
            ([1920, 1080, 0], 4, 0, 10),
            ([1, 60_000, 0], 4, 0, 4),
            ([30_000, 1, 0], 16, 0, 4),
            ([5001, 3333, 0], 2, 0, 34),
            ([700, 700, 0], 4, 0, 4),
            ([100, 100, 100], 4, 0, 6),
            ([257, 257, 257], 4, 0, 76),
            ([1000, 1000, 7], 4, layered, 28),
            ([300, 300, 12], 16, layered | cubes, 22),
            ([4096, 4096, 0], 16, CUDA_ARRAY3D_SPARSE, 0),
        ] {
            let shape = shape(size, bytes, flags);
            let array: usize = new!(cuArray3DCreate_v2(&raw const shape));
            assert_eq!(taken(), mib, "{size:?}");
            ok!(cuArrayDestroy(array));
        }
        let levels = shape([4096, 4096, 0], 4, 0);
        let array: usize = new!(cuMipmappedArrayCreate(&raw const levels, 13u32));
        assert_eq!(taken(), 86);
        ok!(cuMipmappedArrayDestroy(array));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn an_array_without_memory_says_what_it_needs() {
    test(|| {
        start();
        for (size, wanted) in [
            ([5000, 5000, 0], 102_563_840),
            ([257, 257, 257], 78_184_448),
            ([64, 64, 0], 65_536),
        ] {
            let shape = shape(size, 4, CUDA_ARRAY3D_DEFERRED_MAPPING);
            let array: usize = new!(cuArray3DCreate_v2(&raw const shape));
            let mut needs: CUDA_ARRAY_MEMORY_REQUIREMENTS = zeroed();
            ok!(cuArrayGetMemoryRequirements(&raw mut needs, array, 0i32));
            assert_eq!((needs.size, needs.alignment), (wanted, 65_536));
        }
        assert_eq!(taken(), 0);
    });
}
