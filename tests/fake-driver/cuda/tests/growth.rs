//! Memory that contexts take without a call that asks for it: stacks, the heap of kernels, streams and graphs.
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

/// The growth of the context beyond its first size.
fn more(cuda: &Cuda) -> u64 {
    cuda.mine(Kind::Context) - H200_CONTEXT
}

fn stack(cuda: &Cuda) -> usize {
    let mut value = 0usize;
    assert_eq!(
        cu!(cuda, cuCtxGetLimit(&raw mut value, CU_LIMIT_STACK_SIZE)),
        0
    );
    value
}

#[test]
fn kernels_with_deep_stacks_make_the_context_grow() {
    on(
        "kernels_with_deep_stacks_make_the_context_grow",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let text =
                "kernel flat 1 local 512\nkernel deep 1 local 4096\nkernel deeper 1 local 65536";
            let [flat, deep, deeper] =
                ["flat", "deep", "deeper"].map(|name| cuda.kernel(text, name));
            let mut frame = 0i32;
            let attribute = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
            assert_eq!(
                cu!(cuda, cuFuncGetAttribute(&raw mut frame, attribute, deep)),
                0
            );
            assert_eq!((frame, more(&cuda)), (4096, 0));
            // Each figure as seen on an H200.
            for (kernel, mib) in [(flat, 0), (deep, 792), (deeper, 16_632), (deep, 16_632)] {
                assert_eq!(cuda.launch(kernel, 0), 0);
                assert_eq!(more(&cuda), mib * MIB);
            }
            assert_eq!(cu!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048usize)), 0);
            assert_eq!(more(&cuda), 264 * MIB);
            assert_eq!(cu!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024usize)), 0);
            assert_eq!(more(&cuda), 0);
        },
    );
}

#[test]
fn stacks_that_do_not_fit_leave_none_until_the_next_launch() {
    on(
        "stacks_that_do_not_fit_leave_none_until_the_next_launch",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let text = "kernel flat 1\nkernel deep 1 local 65536";
            let [flat, deep] = ["flat", "deep"].map(|name| cuda.kernel(text, name));
            let (mut free, mut total) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
            let all = cuda.allocate(free - (256 << 20)).unwrap();
            assert_eq!(
                cu!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 262_144usize)),
                CUDA_ERROR_OUT_OF_MEMORY
            );
            assert_eq!(stack(&cuda), 1024);
            assert_eq!(cuda.mine(Kind::Context), 104 * MIB);
            assert_eq!(cuda.launch(flat, 0), 0);
            assert_eq!(more(&cuda), 0);
            assert_eq!(cuda.launch(deep, 0), CUDA_ERROR_OUT_OF_MEMORY);
            assert_eq!(cuda.mine(Kind::Context), 104 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(all)), 0);
            assert_eq!(cuda.launch(deep, 0), 0);
            assert_eq!(more(&cuda), 16_632 * MIB);
        },
    );
}

#[test]
fn a_graph_has_its_stacks_from_when_it_is_made_ready() {
    on(
        "a_graph_has_its_stacks_from_when_it_is_made_ready",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (stream, kernel) = (
                cuda.stream(),
                cuda.kernel("kernel deep 1 local 65536", "deep"),
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
                ),
                0
            );
            assert_eq!(cuda.launch(kernel, stream), 0);
            let (mut graph, mut ready) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut graph)), 0);
            assert_eq!(more(&cuda), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
                ),
                0
            );
            // 2 MiB are the graph's own.
            assert_eq!(more(&cuda), 16_634 * MIB);
            assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            assert_eq!(cu!(cuda, cuGraphExecDestroy(ready)), 0);
            assert_eq!(more(&cuda), 16_634 * MIB);
        },
    );
}

#[test]
fn a_kernel_that_uses_malloc_has_its_heap_for_good() {
    on(
        "a_kernel_that_uses_malloc_has_its_heap_for_good",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let kernel = cuda.kernel("kernel greedy 1 heap", "greedy");
            let limit = |bytes: usize| cu!(cuda, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes));
            assert_eq!(limit(64 << 20), 0);
            assert_eq!(more(&cuda), 0);
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(more(&cuda), 66 * MIB);
            assert_eq!(limit(8 << 20), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(more(&cuda), 66 * MIB);
        },
    );
}

#[test]
fn memory_of_many_streams_stays() {
    on("memory_of_many_streams_stays", &[Gpu::h200(0)], |cuda| {
        cuda.start();
        let streams: Vec<usize> = (0..256).map(|_| cuda.stream()).collect();
        assert_eq!(more(&cuda), 140 * MIB);
        for stream in streams {
            assert_eq!(cu!(cuda, cuStreamDestroy_v2(stream)), 0);
        }
        assert_eq!(more(&cuda), 140 * MIB);
        cuda.stream();
        assert_eq!(more(&cuda), 140 * MIB);
        assert_eq!(cu!(cuda, cuDevicePrimaryCtxRelease_v2(0i32)), 0);
        assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
    });
}
