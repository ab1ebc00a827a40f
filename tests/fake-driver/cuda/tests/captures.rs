//! Captures and graphs: what may not be done, what spoils a capture, and what comes of it.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::time::Duration;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu, Kind, MIB};
use support::{Cuda, cu, described, on};

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: u32 = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

/// What each call is made with.
struct Scene<'a> {
    cuda: &'a Cuda,
    capturing: usize,
    other: usize,
    /// Recorded before, and by the capture.
    before: usize,
    within: usize,
    memory: u64,
    pooled: u64,
}

type Call = fn(&Scene<'_>) -> u32;

/// Calls, and what an H200's driver returned for them in each mode; 900 and 907 spoil the capture where it says so.
const CALLS: &[(&str, Call, [u32; 3], [bool; 3])] = &[
    (
        "cuMemAlloc",
        |s| s.cuda.allocate(4096).err().unwrap_or(0),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuMemFree",
        |s| cu!(s.cuda, cuMemFree_v2(s.memory)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuEventQuery",
        |s| cu!(s.cuda, cuEventQuery(s.before)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuEventQuery within",
        |s| cu!(s.cuda, cuEventQuery(s.within)),
        [907; 3],
        [true; 3],
    ),
    (
        "cuEventSynchronize",
        |s| cu!(s.cuda, cuEventSynchronize(s.before)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuEventSynchronize within",
        |s| cu!(s.cuda, cuEventSynchronize(s.within)),
        [907; 3],
        [true; 3],
    ),
    (
        "cuStreamSynchronize",
        |s| cu!(s.cuda, cuStreamSynchronize(s.capturing)),
        [900; 3],
        [true; 3],
    ),
    (
        "cuStreamQuery",
        |s| cu!(s.cuda, cuStreamQuery(s.capturing)),
        [900; 3],
        [true; 3],
    ),
    (
        "cuStreamSynchronize other",
        |s| cu!(s.cuda, cuStreamSynchronize(s.other)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuStreamQuery other",
        |s| cu!(s.cuda, cuStreamQuery(s.other)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuCtxSynchronize",
        |s| cu!(s.cuda, cuCtxSynchronize()),
        [900; 3],
        [true; 3],
    ),
    (
        "cuMemHostAlloc",
        |s| cu!(s.cuda, cuMemHostAlloc(&mut 0usize, 4096usize, 0u32)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuStreamCreate",
        |s| cu!(s.cuda, cuStreamCreate(&mut 0usize, 1u32)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuEventCreate",
        |s| cu!(s.cuda, cuEventCreate(&mut 0usize, 0u32)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuMemGetInfo",
        |s| cu!(s.cuda, cuMemGetInfo_v2(&mut 0usize, &mut 0usize)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuMemAllocAsync",
        |s| cu!(s.cuda, cuMemAllocAsync(&mut 0u64, 4096usize, s.capturing)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuMemAllocAsync other",
        |s| cu!(s.cuda, cuMemAllocAsync(&mut 0u64, 4096usize, s.other)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuMemFreeAsync from outside",
        |s| cu!(s.cuda, cuMemFreeAsync(s.pooled, s.capturing)),
        [1; 3],
        [false; 3],
    ),
    (
        "cuMemcpyDtoD",
        |s| cu!(s.cuda, cuMemcpyDtoD_v2(s.memory, s.pooled, 4096usize)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuMemsetD8Async other",
        |s| cu!(s.cuda, cuMemsetD8Async(s.memory, 0u8, 16usize, s.other)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuEventRecord other",
        |s| cu!(s.cuda, cuEventRecord(s.before, s.other)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuEventRecord default",
        |s| cu!(s.cuda, cuEventRecord(s.before, 0usize)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuStreamWaitEvent from outside",
        |s| cu!(s.cuda, cuStreamWaitEvent(s.capturing, s.before, 0u32)),
        [905; 3],
        [true; 3],
    ),
    (
        "cuStreamWaitEvent joins",
        |s| cu!(s.cuda, cuStreamWaitEvent(s.other, s.within, 0u32)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuEventElapsedTime",
        |s| cu!(s.cuda, cuEventElapsedTime(&mut 0f32, s.before, s.before)),
        [0; 3],
        [false; 3],
    ),
    (
        "cuEventElapsedTime within",
        |s| cu!(s.cuda, cuEventElapsedTime(&mut 0f32, s.before, s.within)),
        [907; 3],
        [false; 3],
    ),
    (
        "cuStreamBeginCapture",
        |s| cu!(s.cuda, cuStreamBeginCapture_v2(s.capturing, GLOBAL)),
        [401; 3],
        [false; 3],
    ),
    (
        "cuStreamEndCapture other",
        |s| cu!(s.cuda, cuStreamEndCapture(s.other, &mut 0usize)),
        [401; 3],
        [false; 3],
    ),
    (
        "cuMemFree null",
        |s| cu!(s.cuda, cuMemFree_v2(0u64)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuMemAlloc 0",
        |s| s.cuda.allocate(0).err().unwrap_or(0),
        [900, 900, 1],
        [true, true, false],
    ),
    (
        "cuCtxSetLimit",
        |s| cu!(s.cuda, cuCtxSetLimit(0u32, 1024usize)),
        [900, 900, 0],
        [true, true, false],
    ),
    (
        "cuStreamWriteValue32",
        |s| {
            cu!(
                s.cuda,
                cuStreamWriteValue32_v2(s.capturing, s.memory, 1u32, 0u32)
            )
        },
        [0; 3],
        [false; 3],
    ),
    (
        "cuDeviceGraphMemTrim",
        |s| cu!(s.cuda, cuDeviceGraphMemTrim(0i32)),
        [0; 3],
        [false; 3],
    ),
];

fn event(cuda: &Cuda) -> usize {
    let mut event = 0usize;
    assert_eq!(cu!(cuda, cuEventCreate(&raw mut event, 0u32)), 0);
    event
}

fn status(cuda: &Cuda, stream: usize) -> u32 {
    let mut status = 9u32;
    assert_eq!(cu!(cuda, cuStreamIsCapturing(stream, &raw mut status)), 0);
    status
}

#[test]
fn calls_during_a_capture_are_answered_as_by_the_driver() {
    on(
        "calls_during_a_capture_are_answered_as_by_the_driver",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            for (name, call, codes, spoils) in CALLS {
                for (mode, (code, spoils)) in codes.iter().zip(spoils).enumerate() {
                    let mut pooled = 0u64;
                    let scene = Scene {
                        cuda: &cuda,
                        capturing: cuda.stream(),
                        other: cuda.stream(),
                        before: event(&cuda),
                        within: event(&cuda),
                        memory: cuda.allocate(4096).unwrap(),
                        pooled: {
                            assert_eq!(
                                cu!(cuda, cuMemAllocAsync(&raw mut pooled, 4096usize, 0usize)),
                                0
                            );
                            pooled
                        },
                    };
                    assert_eq!(cu!(cuda, cuEventRecord(scene.before, scene.other)), 0);
                    assert_eq!(cu!(cuda, cuStreamSynchronize(scene.other)), 0);
                    assert_eq!(
                        cu!(cuda, cuStreamBeginCapture_v2(scene.capturing, mode as u32)),
                        0
                    );
                    assert_eq!(cu!(cuda, cuEventRecord(scene.within, scene.capturing)), 0);
                    assert_eq!(call(&scene), *code, "{name}, mode {mode}");
                    let expected = if *spoils { 2 } else { 1 };
                    assert_eq!(
                        status(&cuda, scene.capturing),
                        expected,
                        "{name}, mode {mode}"
                    );
                    let mut graph = 1usize;
                    let code = cu!(cuda, cuStreamEndCapture(scene.capturing, &raw mut graph));
                    let end = if *spoils { (901, false) } else { (0, true) };
                    assert_eq!((code, graph != 0), end, "{name}, mode {mode}");
                }
            }
        },
    );
}

#[test]
fn other_threads_mind_a_global_capture_alone() {
    on(
        "other_threads_mind_a_global_capture_alone",
        &[Gpu::l40s(0)],
        |cuda| {
            let context = cuda.start();
            for (mode, code, expected) in [(GLOBAL, 900, 2), (THREAD_LOCAL, 0, 1), (RELAXED, 0, 1)]
            {
                let stream = cuda.stream();
                assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(stream, mode)), 0);
                let cuda = &cuda;
                let answer = std::thread::scope(|scope| {
                    let thread = scope.spawn(move || {
                        assert_eq!(cu!(cuda, cuCtxSetCurrent(context)), 0);
                        cuda.allocate(4096).err().unwrap_or(0)
                    });
                    thread.join().unwrap()
                });
                assert_eq!((answer, status(cuda, stream)), (code, expected));
                let mut graph = 0usize;
                cu!(cuda, cuStreamEndCapture(stream, &raw mut graph));
            }
        },
    );
}

#[test]
fn a_relaxed_thread_may_do_all() {
    on("a_relaxed_thread_may_do_all", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        let (stream, done) = (cuda.stream(), event(&cuda));
        assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(stream, GLOBAL)), 0);
        let mut mode = RELAXED;
        assert_eq!(
            cu!(cuda, cuThreadExchangeStreamCaptureMode(&raw mut mode)),
            0
        );
        assert_eq!(mode, GLOBAL);
        cuda.allocate(4096).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(done)), 0);
        assert_eq!(
            cu!(cuda, cuThreadExchangeStreamCaptureMode(&raw mut mode)),
            0
        );
        assert_eq!(mode, RELAXED);
        assert_eq!(status(&cuda, stream), 1);
        assert_eq!(cuda.allocate(4096), Err(900));
    });
}

#[test]
fn the_default_stream_spoils_a_blocking_capture() {
    on(
        "the_default_stream_spoils_a_blocking_capture",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let kernel = cuda.kernel("kernel step 1000", "step");
            let mut blocking = 0usize;
            assert_eq!(cu!(cuda, cuStreamCreate(&raw mut blocking, 0u32)), 0);
            assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(blocking, RELAXED)), 0);
            assert_eq!(cuda.launch(kernel, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            assert_eq!(status(&cuda, blocking), 2);
        },
    );
}

fn driven(name: &str, test: impl FnOnce(Cuda)) {
    described(
        name,
        Description::new(&[Gpu::h200(0)]).driven(),
        |_| {},
        test,
    );
}

#[test]
fn a_captured_graph_runs_when_it_is_launched() {
    driven("a_captured_graph_runs_when_it_is_launched", |cuda| {
        cuda.start();
        let (one, two) = (cuda.stream(), cuda.stream());
        let kernel = cuda.kernel("kernel step 2000000", "step");
        let (fork, join) = (event(&cuda), event(&cuda));
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
        assert_eq!(status(&cuda, one), 0);
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

#[test]
fn work_that_is_not_joined_makes_no_graph() {
    on(
        "work_that_is_not_joined_makes_no_graph",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (one, two, fork) = (cuda.stream(), cuda.stream(), event(&cuda));
            let kernel = cuda.kernel("kernel step 1000", "step");
            assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(one, GLOBAL)), 0);
            assert_eq!(cu!(cuda, cuEventRecord(fork, one)), 0);
            assert_eq!(cu!(cuda, cuStreamWaitEvent(two, fork, 0u32)), 0);
            assert_eq!(cuda.launch(kernel, two), 0);
            let mut graph = 0usize;
            assert_eq!(
                cu!(cuda, cuStreamEndCapture(one, &raw mut graph)),
                CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            );
            assert_eq!(status(&cuda, two), 0);
        },
    );
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
