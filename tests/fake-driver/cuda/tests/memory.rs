//! Each way to take device memory and to give it back.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{cu, on};

const H200_CONTEXT: u64 = 518 * MIB;

#[test]
fn small_pieces_share_two_mib() {
    on("small_pieces_share_two_mib", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let one = cuda.allocate(1).unwrap();
        assert_eq!(cuda.mine(Kind::Alloc), 2 * MIB);
        let two = cuda.allocate(1 << 20).unwrap();
        assert_eq!(cuda.mine(Kind::Alloc), 2 * MIB);
        let large = cuda.allocate((2 << 20) + 1).unwrap();
        assert_eq!(cuda.mine(Kind::Alloc), 6 * MIB);
        for address in [one, two, large] {
            assert_eq!(address % 512, 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
        }
        assert_eq!(cuda.mine(Kind::Alloc), 0);
        assert_eq!(cu!(cuda, cuMemFree_v2(0u64)), 0);
        assert_eq!(cuda.allocate(0), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(cuda.allocate(1 << 45), Err(CUDA_ERROR_OUT_OF_MEMORY));
    });
}

#[test]
fn a_full_device_gives_no_more() {
    on("a_full_device_gives_no_more", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let (mut free, mut total) = (0usize, 0usize);
        assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
        assert_eq!(total, 150_109_880_320);
        // Seen on an H200 that had 5.3 MiB to itself besides.
        assert_eq!(total - free, H200_CONTEXT as usize);
        let most = free / (2 << 20) * (2 << 20);
        let all = cuda.allocate(most).unwrap();
        assert_eq!(cuda.allocate(4 << 20), Err(CUDA_ERROR_OUT_OF_MEMORY));
        let mut context = 0usize;
        assert_eq!(
            cu!(cuda, cuCtxCreate_v2(&raw mut context, 0u32, 0i32)),
            CUDA_ERROR_OUT_OF_MEMORY
        );
        assert_eq!(cu!(cuda, cuMemFree_v2(all)), 0);
        cuda.allocate(4 << 20).unwrap();
    });
}

#[test]
fn rows_begin_at_multiples_of_512() {
    on("rows_begin_at_multiples_of_512", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        let (mut address, mut pitch) = (0u64, 0usize);
        let code = cu!(
            cuda,
            cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 513usize, 4096usize, 4u32)
        );
        assert_eq!((code, pitch), (0, 1024));
        assert_eq!(cuda.mine(Kind::Alloc), 4 * MIB);
        let code = cu!(
            cuda,
            cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 513usize, 4096usize, 3u32)
        );
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn managed_memory_counts_for_the_device() {
    on(
        "managed_memory_counts_for_the_device",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let mut address = 0u64;
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAllocManaged(&raw mut address, 64usize << 20, 1u32)
                ),
                0
            );
            let usage = cuda.node.usage().unwrap();
            assert_eq!(cuda.mine(Kind::Managed), 64 * MIB);
            assert_eq!(usage[0].processes[0].bytes.seen_by_nvml(), 370 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            assert_eq!(cuda.mine(Kind::Managed), 0);
        },
    );
}

#[test]
fn copies_are_copies() {
    on("copies_are_copies", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        let (one, two) = (cuda.allocate(4096).unwrap(), cuda.allocate(4096).unwrap());
        let text = *b"what goes in comes out";
        let mut back = [0u8; 22];
        assert_eq!(
            cu!(cuda, cuMemcpyHtoD_v2(one, text.as_ptr(), text.len())),
            0
        );
        assert_eq!(cu!(cuda, cuMemcpyDtoD_v2(two, one, text.len())), 0);
        assert_eq!(
            cu!(cuda, cuMemcpyDtoH_v2(back.as_mut_ptr(), two, text.len())),
            0
        );
        assert_eq!(back, text);
        assert_eq!(cu!(cuda, cuMemsetD8_v2(two, b'x', 4usize)), 0);
        assert_eq!(
            cu!(cuda, cuMemcpy(back.as_mut_ptr() as u64, two, 22usize)),
            0
        );
        assert_eq!(&back, b"xxxx goes in comes out");
        // Beyond the end.
        assert_eq!(
            cu!(cuda, cuMemcpyDtoD_v2(two, one, 8192usize)),
            CUDA_ERROR_INVALID_VALUE
        );
    });
}

#[test]
fn memory_is_the_pieces_that_addresses_touch() {
    on(
        "memory_is_the_pieces_that_addresses_touch",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut live: Vec<(u64, u64)> = Vec::new();
            let mut seed = 7u64;
            let mut random = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % below
            };
            for round in 0..600 {
                if round % 3 == 2 {
                    let (address, _) = live.swap_remove(random(live.len() as u64) as usize);
                    assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
                } else {
                    let bytes = 1 + random([600, 70_000, 1_700_000, 9_000_000][round % 4]);
                    live.push((cuda.allocate(bytes as usize).unwrap(), bytes));
                }
                let pieces = live.iter().flat_map(|(address, bytes)| {
                    (address / (2 << 20)..=(address + bytes - 1) / (2 << 20)).collect::<Vec<_>>()
                });
                let pieces: std::collections::BTreeSet<u64> = pieces.collect();
                assert_eq!(cuda.mine(Kind::Alloc), pieces.len() as u64 * 2 * MIB);
            }
            for (address, _) in live {
                assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            }
            assert_eq!(cuda.mine(Kind::Alloc), 0);
        },
    );
}

#[test]
fn an_address_has_attributes() {
    on("an_address_has_attributes", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let memory = cuda.allocate(3000).unwrap();
        let (mut start, mut bytes) = (0u64, 0usize);
        let code = cu!(
            cuda,
            cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, memory + 2999)
        );
        assert_eq!((code, start, bytes), (0, memory, 3000));
        assert_eq!(
            cu!(
                cuda,
                cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, memory + 3000)
            ),
            CUDA_ERROR_NOT_FOUND
        );
        let (mut managed, mut device) = (9u32, 9i32);
        let wanted = [
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut places = [(&raw mut managed).cast::<u8>(), (&raw mut device).cast()];
        for (address, answer) in [(memory, (0, 0)), (5, (0, -2))] {
            let code = cu!(
                cuda,
                cuPointerGetAttributes(2u32, wanted.as_ptr(), places.as_mut_ptr(), address)
            );
            assert_eq!((code, (managed, device)), (0, answer));
        }
    });
}

#[test]
fn managed_memory_moves_where_it_is_wanted() {
    on(
        "managed_memory_moves_where_it_is_wanted",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut memory = 0u64;
            assert_eq!(
                cu!(cuda, cuMemAllocManaged(&raw mut memory, 1usize << 20, 1u32)),
                0
            );
            let place = |type_| CUmemLocation { type_, id: 0 };
            let move_to = |address: u64, place: CUmemLocation| {
                cu!(
                    cuda,
                    cuMemPrefetchAsync_v2(address, 1usize << 20, place, 0u32, 0usize)
                )
            };
            assert_eq!(move_to(memory, place(CU_MEM_LOCATION_TYPE_DEVICE)), 0);
            assert_eq!(move_to(memory, place(CU_MEM_LOCATION_TYPE_HOST)), 0);
            let plain = cuda.allocate(1 << 20).unwrap();
            assert_eq!(
                move_to(plain, place(CU_MEM_LOCATION_TYPE_DEVICE)),
                CUDA_ERROR_INVALID_VALUE
            );
            let (mut all, mut sizes, mut first) = ([memory], [1usize << 20], [0usize]);
            let mut places = [place(CU_MEM_LOCATION_TYPE_DEVICE)];
            let code = cu!(
                cuda,
                cuMemPrefetchBatchAsync(
                    all.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    1usize,
                    places.as_mut_ptr(),
                    first.as_mut_ptr(),
                    1usize,
                    0u64,
                    0usize
                )
            );
            assert_eq!(code, 0);
        },
    );
}
