//! Contexts: what they take, what makes them grow, and how they end.
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
fn green_contexts_take_memory_of_the_primary_one() {
    on(
        "green_contexts_take_memory_of_the_primary_one",
        &[Gpu::h200(0)],
        |cuda| {
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
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT + 6 * MIB);
            let mut second = 0usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuGreenCtxCreate(&raw mut second, description, 0i32, 1u32)
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT + 10 * MIB);
            assert_eq!(cu!(cuda, cuGreenCtxDestroy(second)), 0);
            // It stays with the primary one.
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT + 10 * MIB);
            assert_eq!(cu!(cuda, cuCtxFromGreenCtx(&raw mut context, green)), 0);
            assert_eq!(cu!(cuda, cuCtxSetCurrent(context)), 0);
            cuda.allocate(1).unwrap();
            assert_eq!(cu!(cuda, cuGreenCtxDestroy(green)), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
        },
    );
}

#[test]
fn a_reset_ends_the_primary_context_for_all() {
    on(
        "a_reset_ends_the_primary_context_for_all",
        &[Gpu::h200(0)],
        |cuda| {
            let context = cuda.start();
            cuda.allocate(64 << 20).unwrap();
            let mut other = 0usize;
            assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut other, 0u32, 0i32)), 0);
            assert_eq!(cu!(cuda, cuCtxSetCurrent(context)), 0);
            assert_eq!(cu!(cuda, cuDevicePrimaryCtxReset_v2(0i32)), 0);
            // As seen on an H200: other contexts stay, and so does who wanted this one.
            assert_eq!(cuda.node.usage().unwrap()[0].used, H200_CONTEXT);
            assert_eq!(cuda.allocate(1), Err(CUDA_ERROR_CONTEXT_IS_DESTROYED));
            assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0i32)), 0);
            cuda.start();
            assert_eq!(cuda.mine(Kind::Context), 2 * H200_CONTEXT);
            cuda.allocate(1).unwrap();
        },
    );
}

#[test]
fn a_context_ends_with_the_last_that_holds_it() {
    on(
        "a_context_ends_with_the_last_that_holds_it",
        &[Gpu::h200(0)],
        |cuda| {
            assert_eq!(cu!(cuda, cuInit(0u32)), 0);
            let (mut context, mut again) = (0usize, 0usize);
            assert_eq!(
                cu!(cuda, cuCtxAttach(&raw mut again, 0u32)),
                CUDA_ERROR_INVALID_CONTEXT
            );
            assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut context, 0u32, 0i32)), 0);
            assert_eq!(cu!(cuda, cuCtxAttach(&raw mut again, 0u32)), 0);
            assert_eq!(again, context);
            assert_eq!(cu!(cuda, cuCtxDetach(context)), 0);
            assert_eq!(cuda.mine(Kind::Context), H200_CONTEXT);
            assert_eq!(cu!(cuda, cuCtxDetach(context)), 0);
            assert_eq!(cuda.mine(Kind::Context), 0);
            let primary = cuda.start();
            assert_eq!(cu!(cuda, cuCtxDetach(context)), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(cu!(cuda, cuCtxDetach(primary)), 0);
            assert_eq!(cuda.mine(Kind::Context), 0);
        },
    );
}
