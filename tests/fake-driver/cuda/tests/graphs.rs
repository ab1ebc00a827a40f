//! Graphs: the memory that they take, and running them.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::time::Duration;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Cuda, cu, driven, on};

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;

#[test]
fn a_captured_graph_runs_when_it_is_launched() {
    driven("a_captured_graph_runs_when_it_is_launched", |cuda| {
        cuda.start();
        let (one, two) = (cuda.stream(), cuda.stream());
        let kernel = cuda.kernel("kernel step 2000000", "step");
        let (fork, join) = (cuda.event(), cuda.event());
        assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(one, GLOBAL)), 0);
        assert_eq!(cuda.launch(kernel, one), 0);
        assert_eq!(cu!(cuda, cuEventRecord(fork, one)), 0);
        assert_eq!(cu!(cuda, cuStreamWaitEvent(two, fork, 0u32)), 0);
        assert_eq!(cuda.launch(kernel, two), 0);
        let (mut id, mut graph, mut count) = (0u64, 0usize, 0usize);
        let (mut captured, mut nodes) = (0u32, std::ptr::null::<usize>());
        let code = cu!(
            cuda,
            cuStreamGetCaptureInfo_v2(
                two,
                &raw mut captured,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut count
            )
        );
        assert_eq!((code, captured, count), (0, 1, 1));
        assert_ne!(id, 0);
        let mut ended = 0usize;
        // The other stream's work is not waited for.
        let mut early = 0usize;
        assert_eq!(cu!(cuda, cuEventRecord(join, two)), 0);
        assert_eq!(cu!(cuda, cuStreamWaitEvent(one, join, 0u32)), 0);
        assert_eq!(
            cu!(cuda, cuStreamEndCapture(two, &raw mut early)),
            CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
        );
        assert_eq!(cuda.capture_status(one), 0);
        let _ = ended;

        assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(one, GLOBAL)), 0);
        assert_eq!(cuda.launch(kernel, one), 0);
        assert_eq!(cuda.launch(kernel, one), 0);
        assert_eq!(cu!(cuda, cuStreamEndCapture(one, &raw mut ended)), 0);
        assert_eq!(cuda.node.busy_until(0), 0);
        let mut ready = 0usize;
        assert_eq!(
            cu!(
                cuda,
                cuGraphInstantiateWithFlags(&raw mut ready, ended, 0u64)
            ),
            0
        );
        assert_eq!(cu!(cuda, cuGraphLaunch(ready, one)), 0);
        assert_eq!(cu!(cuda, cuGraphLaunch_ptsz(ready, 0usize)), 0);
        assert_eq!(cuda.node.busy_until(0), 8_000_000);
        cuda.node.advance(Duration::from_millis(8)).unwrap();
        assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
        assert_eq!(cu!(cuda, cuGraphExecDestroy(ready)), 0);
        assert_eq!(
            cu!(cuda, cuGraphLaunch(ready, one)),
            CUDA_ERROR_INVALID_VALUE
        );
    });
}

fn attribute(cuda: &Cuda, which: u32) -> u64 {
    let mut value = 0u64;
    assert_eq!(
        cu!(
            cuda,
            cuDeviceGetGraphMemAttribute(0i32, which, &raw mut value)
        ),
        0
    );
    value / MIB
}

#[test]
fn memory_of_graphs_is_taken_at_launch_and_kept_until_trimmed() {
    on(
        "memory_of_graphs_is_taken_at_launch_and_kept_until_trimmed",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let stream = cuda.stream();
            // SAFETY: a struct of numbers and pointers.
            let mut node: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
            node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            node.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
            node.bytesize = 100 << 20;
            let (mut graph, mut ready, mut number) = (0usize, 0usize, 0usize);
            assert_eq!(cu!(cuda, cuGraphCreate(&raw mut graph, 0u32)), 0);
            let code = cu!(
                cuda,
                cuGraphAddMemAllocNode(&raw mut number, graph, 0usize, 0usize, &raw mut node)
            );
            assert_eq!(code, 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
                ),
                0
            );
            assert_eq!(cuda.mine(Kind::Graph), 0);
            // As an H200 does it: 128 MiB for 100.
            assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 128 * MIB);
            assert_eq!(attribute(&cuda, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 128);
            assert_eq!(
                cu!(cuda, cuGraphLaunch(ready, stream)),
                CUDA_ERROR_INVALID_VALUE
            );
            assert_eq!(cu!(cuda, cuMemFreeAsync(node.dptr, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 128 * MIB);
            assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            assert_eq!(cu!(cuda, cuDeviceGraphMemTrim(0i32)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 128 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(node.dptr)), 0);
            assert_eq!(cu!(cuda, cuDeviceGraphMemTrim(0i32)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 0);
            assert_eq!(attribute(&cuda, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 128);
            // A graph with memory is ready once at a time.
            let mut again = 0usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut again, graph, 1u64)
                ),
                CUDA_ERROR_NOT_SUPPORTED
            );
            assert_eq!(cu!(cuda, cuGraphExecDestroy(ready)), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut again, graph, 1u64)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuGraphLaunch(again, stream)), 0);
            assert_eq!(cu!(cuda, cuGraphLaunch(again, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 128 * MIB);
        },
    );
}

#[test]
fn a_graph_that_gives_back_what_it_takes_runs_again() {
    on(
        "a_graph_that_gives_back_what_it_takes_runs_again",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (stream, mut memory) = (cuda.stream(), 0u64);
            assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(stream, GLOBAL)), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAllocAsync(&raw mut memory, 40usize << 20, stream)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuMemsetD8Async(memory, 7u8, 16usize, stream)), 0);
            assert_eq!(cu!(cuda, cuMemFreeAsync(memory, stream)), 0);
            let (mut graph, mut ready) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut graph)), 0);
            assert_eq!(cuda.mine(Kind::Graph) + cuda.mine(Kind::Pool), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuGraphUpload(ready, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 64 * MIB);
            for _ in 0..3 {
                assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            }
            assert_eq!(cuda.mine(Kind::Graph), 64 * MIB);
            assert_eq!(cu!(cuda, cuDeviceGraphMemTrim(0i32)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 0);
        },
    );
}

#[test]
fn nodes_of_all_kinds_can_be_added() {
    driven("nodes_of_all_kinds_can_be_added", |cuda| {
        cuda.start();
        let kernel = cuda.kernel("kernel step 2000000", "step");
        let mut graph = 0usize;
        assert_eq!(cu!(cuda, cuGraphCreate(&raw mut graph, 0u32)), 0);
        // SAFETY: a struct of numbers and pointers.
        let mut node: CUgraphNodeParams = unsafe { std::mem::zeroed() };
        node.type_ = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        // SAFETY: as above.
        let mut memory: CUDA_MEM_ALLOC_NODE_PARAMS_v2 = unsafe { std::mem::zeroed() };
        memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        memory.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        memory.bytesize = 4096;
        node.__bindgen_anon_1.alloc = memory;
        let mut first = 0usize;
        assert_eq!(
            cu!(
                cuda,
                cuGraphAddNode_v2(&raw mut first, graph, 0usize, 0usize, 0usize, &raw mut node)
            ),
            0
        );
        // SAFETY: this is what was filled in.
        let address = unsafe { node.__bindgen_anon_1.alloc.dptr };
        assert_ne!(address, 0);
        let shape = CUDA_KERNEL_NODE_PARAMS_v2 {
            func: std::ptr::without_provenance_mut(kernel),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: std::ptr::null_mut(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut second = 0usize;
        let code = cu!(
            cuda,
            cuGraphAddKernelNode_v2(
                &raw mut second,
                graph,
                &raw const first,
                1usize,
                &raw const shape
            )
        );
        assert_eq!(code, 0);
        let mut third = 0usize;
        let code = cu!(
            cuda,
            cuGraphAddMemFreeNode(&raw mut third, graph, &raw const second, 1usize, address)
        );
        assert_eq!(code, 0);
        let unknown = 5usize;
        let code = cu!(
            cuda,
            cuGraphAddMemFreeNode(&raw mut third, graph, &raw const unknown, 1usize, address)
        );
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        let (mut ready, stream) = (0usize, cuda.stream());
        assert_eq!(
            cu!(
                cuda,
                cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
            ),
            0
        );
        assert_eq!(cu!(cuda, cuGraphDestroy(graph)), 0);
        assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
        assert_eq!(cuda.node.busy_until(0), 2_000_000);
    });
}

#[test]
fn memory_of_graphs_goes_to_who_asks() {
    on(
        "memory_of_graphs_goes_to_who_asks",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let (stream, mut memory) = (cuda.stream(), 0u64);
            assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(stream, GLOBAL)), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemAllocAsync(&raw mut memory, 200usize << 20, stream)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuMemFreeAsync(memory, stream)), 0);
            let (mut graph, mut ready) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut graph)), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuGraphInstantiateWithFlags(&raw mut ready, graph, 0u64)
                ),
                0
            );
            let (mut free, mut total) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
            let most = cuda.allocate(free - (100 << 20)).unwrap();
            assert_eq!(
                cu!(cuda, cuGraphLaunch(ready, stream)),
                CUDA_ERROR_OUT_OF_MEMORY
            );
            // It has what it could get.
            assert_eq!(cuda.mine(Kind::Graph), 96 * MIB);
            cuda.allocate(64 << 20).unwrap();
            assert_eq!(cuda.mine(Kind::Graph), 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(most)), 0);
            assert_eq!(cu!(cuda, cuGraphLaunch(ready, stream)), 0);
            assert_eq!(cuda.mine(Kind::Graph), 224 * MIB);
        },
    );
}
