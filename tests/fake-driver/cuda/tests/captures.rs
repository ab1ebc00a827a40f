//! Captures: what may not be done, and what spoils a capture.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::Gpu;
use support::{Cuda, cu, on};

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: u32 = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

/// The arguments of each call.
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
                        before: cuda.event(),
                        within: cuda.event(),
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
                        cuda.capture_status(scene.capturing),
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
                assert_eq!((answer, cuda.capture_status(stream)), (code, expected));
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
        let (stream, done) = (cuda.stream(), cuda.event());
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
        assert_eq!(cuda.capture_status(stream), 1);
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
            // To ask spoils nothing, as the manual says.
            let mut status = 9u32;
            let asked = cu!(cuda, cuStreamIsCapturing(0usize, &raw mut status));
            assert_eq!(asked, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            assert_eq!(cuda.capture_status(blocking), 1);
            assert_eq!(cuda.launch(kernel, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            assert_eq!(cuda.capture_status(blocking), 2);
        },
    );
}

#[test]
fn a_capture_can_go_on_with_a_graph() {
    on(
        "a_capture_can_go_on_with_a_graph",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (stream, kernel) = (cuda.stream(), cuda.kernel("kernel step 1000", "step"));
            let (mut graph, mut same) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuStreamBeginCapture(stream)), 0);
            assert_eq!(cuda.launch(kernel, stream), 0);
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut graph)), 0);
            let (mut node, mut count) = (0usize, 1usize);
            let nodes = |node: *mut usize, count: &mut usize| {
                cu!(cuda, cuGraphGetNodes(graph, node, count as *mut usize))
            };
            assert_eq!(nodes(&raw mut node, &mut count), 0);
            let again = |after: usize| {
                cu!(
                    cuda,
                    cuStreamBeginCaptureToGraph(
                        stream,
                        graph,
                        &raw const after,
                        0usize,
                        1usize,
                        GLOBAL
                    )
                )
            };
            assert_eq!(again(node), 0);
            assert_eq!(cuda.launch(kernel, stream), 0);
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut same)), 0);
            assert_eq!(same, graph);
            // One that comes to nothing leaves the graph.
            assert_eq!(again(node), 0);
            assert_eq!(cuda.allocate(4096), Err(900));
            assert_eq!(cu!(cuda, cuStreamEndCapture(stream, &raw mut same)), 901);
            assert_eq!(nodes(std::ptr::null_mut(), &mut count), 0);
            assert_eq!(count, 2);
        },
    );
}

#[test]
fn work_that_is_not_joined_makes_no_graph() {
    on(
        "work_that_is_not_joined_makes_no_graph",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (one, two, fork) = (cuda.stream(), cuda.stream(), cuda.event());
            let kernel = cuda.kernel("kernel step 1000", "step");
            assert_eq!(cu!(cuda, cuStreamBeginCapture_v2(one, GLOBAL)), 0);
            assert_eq!(cu!(cuda, cuEventRecord(fork, one)), 0);
            let recorded = cuda.node.all_calls("cuEventRecord in a capture");
            assert_eq!(recorded, 1);
            assert_eq!(cu!(cuda, cuStreamWaitEvent(two, fork, 0u32)), 0);
            assert_eq!(cuda.launch(kernel, two), 0);
            let mut graph = 0usize;
            assert_eq!(
                cu!(cuda, cuStreamEndCapture(one, &raw mut graph)),
                CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            );
            assert_eq!(cuda.capture_status(two), 0);
        },
    );
}
