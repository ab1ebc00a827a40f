//! What each way to take device memory takes, and gives back.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Cuda, cu, on};

const H200_CONTEXT: u64 = 518 * MIB;

#[test]
fn a_context_takes_what_the_gpu_says() {
    on(
        "a_context_takes_what_the_gpu_says",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT);
            let mut second = 0usize;
            assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut second, 0u32, 0i32)), 0);
            assert_eq!(cuda.mine(Kind::Context), 2 * H200_CONTEXT);
            assert_eq!(cu!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16384usize)), 0);
            // Seen on an H200: 15 KiB more for each of 132 x 2048 threads.
            assert_eq!(cuda.mine(Kind::Context), 2 * H200_CONTEXT + 3960 * MIB);
            assert_eq!(cu!(cuda, cuCtxDestroy_v2(second)), 0);
            assert_eq!(
                cu!(cuda, cuCtxDestroy_v2(second)),
                CUDA_ERROR_INVALID_CONTEXT
            );
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT);
            assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0i32)), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
            assert_eq!(
                cu!(cuda, cuDevicePrimaryCtxRelease_v2(0i32)),
                CUDA_ERROR_INVALID_CONTEXT
            );
        },
    );
}

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
fn arrays_are_sized_by_their_format() {
    on(
        "arrays_are_sized_by_their_format",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut array = 0usize;
            let mut shape = CUDA_ARRAY_DESCRIPTOR {
                Width: 1024,
                Height: 1024,
                Format: CU_AD_FORMAT_UNSIGNED_INT8,
                NumChannels: 4,
            };
            assert_eq!(
                cu!(cuda, cuArrayCreate_v2(&raw mut array, &raw const shape)),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 4 * MIB);
            assert_eq!(cu!(cuda, cuArrayDestroy(array)), 0);
            assert_eq!(
                cu!(cuda, cuArrayDestroy(array)),
                CUDA_ERROR_CONTEXT_IS_DESTROYED
            );
            assert_eq!(cuda.mine(Kind::Array), 0);
            shape.NumChannels = 3;
            assert_eq!(
                cu!(cuda, cuArrayCreate_v2(&raw mut array, &raw const shape)),
                CUDA_ERROR_INVALID_VALUE
            );

            let mut solid = CUDA_ARRAY3D_DESCRIPTOR {
                Width: 256,
                Height: 256,
                Depth: 256,
                Format: CU_AD_FORMAT_FLOAT,
                NumChannels: 1,
                Flags: 0,
            };
            assert_eq!(
                cu!(cuda, cuArray3DCreate_v2(&raw mut array, &raw const solid)),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 64 * MIB);
            assert_eq!(cu!(cuda, cuArrayDestroy(array)), 0);

            // Seen on an H200: 341.3 MiB in all its levels, in pieces of 2 MiB.
            solid = CUDA_ARRAY3D_DESCRIPTOR {
                Width: 4096,
                Height: 4096,
                Depth: 0,
                NumChannels: 4,
                ..solid
            };
            assert_eq!(
                cu!(
                    cuda,
                    cuMipmappedArrayCreate(&raw mut array, &raw const solid, 13u32)
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Array), 342 * MIB);
            let mut level = 0usize;
            assert_eq!(
                cu!(cuda, cuMipmappedArrayGetLevel(&raw mut level, array, 12u32)),
                0
            );
            assert_eq!(
                cu!(cuda, cuMipmappedArrayGetLevel(&raw mut level, array, 13u32)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(cu!(cuda, cuMipmappedArrayDestroy(array)), 0);
            assert_eq!(cuda.mine(Kind::Array), 0);
        },
    );
}

#[test]
fn modules_take_what_their_image_says() {
    on(
        "modules_take_what_their_image_says",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let text = c"kernel step 1000\nglobal table 8388608\ncode 4194304\n";
            let mut module = 0usize;
            assert_eq!(
                cu!(cuda, cuModuleLoadData(&raw mut module, text.as_ptr())),
                0
            );
            // Code is left for later.
            assert_eq!(cuda.mine(Kind::Module), 8 * MIB);
            let mut function = 0usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleGetFunction(&raw mut function, module, c"step".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Module), 12 * MIB);
            let (mut address, mut bytes) = (0u64, 0usize);
            let code = cu!(
                cuda,
                cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"table".as_ptr())
            );
            assert_eq!((code, bytes), (0, 8 << 20));
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cu!(cuda, cuModuleUnload(module)), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleLoadData(&raw mut module, c"nonsense".as_ptr())
                ),
                CUDA_ERROR_INVALID_IMAGE
            );
            assert_eq!(
                cu!(cuda, cuModuleLoad(&raw mut module, c"/nowhere".as_ptr())),
                CUDA_ERROR_FILE_NOT_FOUND
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleLoadData(&raw mut module, b"\x7fELF\x02".as_ptr())
                ),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuModuleGetFunction(&raw mut function, module, c"any_name".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.launch(function, 0), 0);
        },
    );
}

#[test]
fn libraries_take_memory_where_they_are_used() {
    on(
        "libraries_take_memory_where_they_are_used",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let text = c"kernel step 1000\ncode 4194304\n";
            let (mut library, mut kernel, mut function) = (0usize, 0usize, 0usize);
            let code = cu!(
                cuda,
                cuLibraryLoadData(
                    &raw mut library,
                    text.as_ptr(),
                    0usize,
                    0usize,
                    0u32,
                    0usize,
                    0usize,
                    0u32
                )
            );
            assert_eq!(code, 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuLibraryGetKernel(&raw mut kernel, library, c"step".as_ptr())
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(cu!(cuda, cuKernelGetFunction(&raw mut function, kernel)), 0);
            assert_eq!(cuda.mine(Kind::Module), 4 * MIB);
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(cu!(cuda, cuLibraryUnload(library)), 0);
            assert_eq!(cuda.mine(Kind::Module), 0);
            assert_eq!(cuda.launch(kernel, 0), CUDA_ERROR_INVALID_HANDLE);
        },
    );
}

#[test]
fn a_context_takes_all_along() {
    on("a_context_takes_all_along", &[Gpu::l40s(0)], |cuda| {
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        let mut context = 0usize;
        assert_eq!(
            cu!(cuda, cuCtxCreate_v4(&raw mut context, 0usize, 0u32, 0i32)),
            0
        );
        cuda.allocate(100 << 20).unwrap();
        cuda.kernel("kernel step 5\nglobal g 5", "step");
        let mut array = 0usize;
        let shape = CUDA_ARRAY_DESCRIPTOR {
            Width: 64,
            Height: 0,
            Format: CU_AD_FORMAT_HALF,
            NumChannels: 2,
        };
        assert_eq!(
            cu!(cuda, cuArrayCreate_v2(&raw mut array, &raw const shape)),
            0
        );
        let stream = cuda.stream();
        assert_eq!(cu!(cuda, cuCtxDestroy_v2(context)), 0);
        assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuda.allocate(1), Err(CUDA_ERROR_INVALID_CONTEXT));
    });
}

#[test]
fn old_forms_want_an_old_context() {
    on(
        "old_forms_want_an_old_context",
        &[Gpu::gtx1080ti(0)],
        |cuda: Cuda| {
            cuda.start();
            let mut address = 0u32;
            assert_eq!(
                cu!(cuda, cuMemAlloc(&raw mut address, 4096u32)),
                CUDA_ERROR_INVALID_CONTEXT
            );
            let mut context = 0usize;
            assert_eq!(cu!(cuda, cuCtxCreate(&raw mut context, 0u32, 0i32)), 0);
            assert_eq!(cu!(cuda, cuMemAlloc(&raw mut address, 4096u32)), 0);
            assert_ne!(address, 0);
            assert_eq!(cu!(cuda, cuMemFree(address)), 0);
            let mut bytes = 0u32;
            assert_eq!(cu!(cuda, cuDeviceTotalMem(&raw mut bytes, 0i32)), 0);
            assert_eq!(bytes, u32::MAX);
        },
    );
}

#[test]
fn green_contexts_take_eight_mib() {
    on("green_contexts_take_eight_mib", &[Gpu::h200(0)], |cuda| {
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        let mut resource = [0u32; 36];
        assert_eq!(
            cu!(
                cuda,
                cuDeviceGetDevResource(0i32, resource.as_mut_ptr(), 1u32)
            ),
            0
        );
        assert_eq!(resource[24], 132);
        let (mut description, mut green, mut context) = (0usize, 0usize, 0usize);
        assert_eq!(
            cu!(
                cuda,
                cuDevResourceGenerateDesc(&raw mut description, resource.as_mut_ptr(), 1u32)
            ),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuGreenCtxCreate(&raw mut green, description, 0i32, 0u32)
            ),
            CUDA_ERROR_INVALID_VALUE
        );
        assert_eq!(
            cu!(
                cuda,
                cuGreenCtxCreate(&raw mut green, description, 0i32, 1u32)
            ),
            0
        );
        assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT + 8 * MIB);
        assert_eq!(cu!(cuda, cuCtxFromGreenCtx(&raw mut context, green)), 0);
        assert_eq!(cu!(cuda, cuCtxSetCurrent(context)), 0);
        cuda.allocate(1).unwrap();
        assert_eq!(cu!(cuda, cuGreenCtxDestroy(green)), 0);
        assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
    });
}
