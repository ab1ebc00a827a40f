//! Captures: what may not be done, and what spoils a capture.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: u32 = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

/// The arguments of each call.
struct Scene {
    capturing: usize,
    other: usize,
    /// Recorded before, and by the capture.
    before: usize,
    within: usize,
    memory: u64,
    pooled: u64,
}

type Call = fn(&Scene) -> u32;

/// Calls, and what a real driver returns for them: in a relaxed capture, and in others.
#[rustfmt::skip]
const CALLS: &[(&str, u32, u32, Call)] = &[
    ("cuMemAlloc", 0, 900, |_| allocate(4096).err().unwrap_or(0)),
    ("cuMemAlloc 0", 1, 900, |_| allocate(0).err().unwrap_or(0)),
    ("cuMemFree", 0, 900, |s| cu!(cuMemFree_v2(s.memory))),
    ("cuMemFree null", 0, 900, |_| cu!(cuMemFree_v2(0u64))),
    ("cuMemHostAlloc", 0, 900, |_| cu!(cuMemHostAlloc(&mut 0usize, 4096usize, 0u32))),
    ("cuMemGetInfo", 0, 0, |_| cu!(cuMemGetInfo_v2(&mut 0usize, &mut 0usize))),
    ("cuMemAllocAsync", 0, 0, |s| cu!(cuMemAllocAsync(&mut 0u64, 4096usize, s.capturing))),
    ("cuMemAllocAsync other", 0, 900, |s| cu!(cuMemAllocAsync(&mut 0u64, 4096usize, s.other))),
    ("cuMemFreeAsync from outside", 1, 1, |s| cu!(cuMemFreeAsync(s.pooled, s.capturing))),
    ("cuMemcpyDtoD", 0, 0, |s| cu!(cuMemcpyDtoD_v2(s.memory, s.pooled, 4096usize))),
    ("cuMemsetD8Async other", 0, 0, |s| cu!(cuMemsetD8Async(s.memory, 0u8, 16usize, s.other))),
    ("cuEventCreate", 0, 0, |_| cu!(cuEventCreate(&mut 0usize, 0u32))),
    ("cuEventQuery", 0, 900, |s| cu!(cuEventQuery(s.before))),
    ("cuEventQuery within", 907, 907, |s| cu!(cuEventQuery(s.within))),
    ("cuEventSynchronize", 0, 900, |s| cu!(cuEventSynchronize(s.before))),
    ("cuEventSynchronize within", 907, 907, |s| cu!(cuEventSynchronize(s.within))),
    ("cuEventRecord other", 0, 0, |s| cu!(cuEventRecord(s.before, s.other))),
    ("cuEventRecord default", 0, 0, |s| cu!(cuEventRecord(s.before, 0usize))),
    ("cuEventElapsedTime within", 907, 907, |s| cu!(cuEventElapsedTime(&mut 0f32, s.before, s.within))),
    ("cuStreamCreate", 0, 0, |_| cu!(cuStreamCreate(&mut 0usize, 1u32))),
    ("cuStreamSynchronize", 900, 900, |s| cu!(cuStreamSynchronize(s.capturing))),
    ("cuStreamSynchronize other", 0, 900, |s| cu!(cuStreamSynchronize(s.other))),
    ("cuStreamQuery", 900, 900, |s| cu!(cuStreamQuery(s.capturing))),
    ("cuStreamQuery other", 0, 900, |s| cu!(cuStreamQuery(s.other))),
    ("cuStreamWaitEvent from outside", 905, 905, |s| cu!(cuStreamWaitEvent(s.capturing, s.before, 0u32))),
    ("cuStreamWaitEvent joins", 0, 0, |s| cu!(cuStreamWaitEvent(s.other, s.within, 0u32))),
    ("cuStreamBeginCapture", 401, 401, |s| cu!(cuStreamBeginCapture_v2(s.capturing, GLOBAL))),
    ("cuStreamEndCapture other", 401, 401, |s| cu!(cuStreamEndCapture(s.other, &mut 0usize))),
    ("cuStreamWriteValue32", 0, 0, |s| cu!(cuStreamWriteValue32_v2(s.capturing, s.memory, 1u32, 0u32))),
    ("cuCtxSynchronize", 900, 900, |_| cu!(cuCtxSynchronize())),
    ("cuCtxSetLimit", 0, 900, |_| cu!(cuCtxSetLimit(0u32, 1024usize))),
    ("cuDeviceGraphMemTrim", 0, 0, |_| cu!(cuDeviceGraphMemTrim(0i32))),
];

/// Whether a stream captures: not (0), it does (1), or in vain (2).
fn status(stream: usize) -> u32 {
    let mut status = 9u32;
    ok!(cuStreamIsCapturing(stream, &raw mut status));
    status
}

fn end(stream: usize) -> (u32, usize) {
    let mut graph = 0usize;
    (cu!(cuStreamEndCapture(stream, &raw mut graph)), graph)
}

#[test]
fn calls_during_a_capture_have_their_answers() {
    test(|| {
        start();
        for (name, relaxed, strict, call) in CALLS {
            for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
                let code = if mode == RELAXED { *relaxed } else { *strict };
                let scene = Scene {
                    capturing: stream(),
                    other: stream(),
                    before: event(),
                    within: event(),
                    memory: allocate(4096).unwrap(),
                    pooled: new!(cuMemAllocAsync(4096usize, 0usize)),
                };
                ok!(cuEventRecord(scene.before, scene.other));
                ok!(cuStreamSynchronize(scene.other));
                ok!(cuStreamBeginCapture_v2(scene.capturing, mode));
                ok!(cuEventRecord(scene.within, scene.capturing));
                assert_eq!(call(&scene), code, "{name}, mode {mode}");
                let spoils = code >= 900 && *name != "cuEventElapsedTime within";
                let wanted = if spoils { 2 } else { 1 };
                assert_eq!(status(scene.capturing), wanted, "{name}, mode {mode}");
                let (code, graph) = end(scene.capturing);
                let wanted = if spoils { (901, false) } else { (0, true) };
                assert_eq!((code, graph != 0), wanted, "{name}, mode {mode}");
            }
        }
    });
}

#[test]
fn a_global_capture_concerns_other_threads() {
    test(|| {
        let context = start();
        for (mode, code, wanted) in [(GLOBAL, 900, 2), (THREAD_LOCAL, 0, 1), (RELAXED, 0, 1)] {
            let stream = stream();
            ok!(cuStreamBeginCapture_v2(stream, mode));
            let thread = std::thread::spawn(move || {
                ok!(cuCtxSetCurrent(context));
                allocate(4096).err().unwrap_or(0)
            });
            assert_eq!((thread.join().unwrap(), status(stream)), (code, wanted));
            end(stream);
        }
    });
}

#[test]
fn a_relaxed_thread_may_do_all() {
    test(|| {
        start();
        let stream = stream();
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        let mut mode = RELAXED;
        ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!(mode, GLOBAL);
        allocate(4096).unwrap();
        ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!((mode, status(stream)), (RELAXED, 1));
        assert_eq!(allocate(4096), Err(900));
    });
}

#[test]
fn the_default_stream_spoils_a_blocking_capture() {
    test(|| {
        start();
        let kernel = kernel("busy");
        let blocking: usize = new!(cuStreamCreate(0u32));
        ok!(cuStreamBeginCapture_v2(blocking, RELAXED));
        // To ask spoils nothing, as the manual says.
        let asked = cu!(cuStreamIsCapturing(0usize, &mut 9u32));
        assert_eq!(asked, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status(blocking), 1);
        let launched = launch(kernel, 0, [0, 0]);
        assert_eq!(launched, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status(blocking), 2);
    });
}

#[test]
fn work_that_is_not_joined_makes_no_graph() {
    test(|| {
        start();
        let (one, two, fork, kernel) = (stream(), stream(), event(), kernel("busy"));
        ok!(cuStreamBeginCapture_v2(one, GLOBAL));
        ok!(cuEventRecord(fork, one));
        ok!(cuStreamWaitEvent(two, fork, 0u32));
        assert_eq!(launch(kernel, two, [0, 0]), 0);
        assert_eq!(end(one).0, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        assert_eq!(status(two), 0);
    });
}

#[test]
fn a_capture_can_go_on_with_a_graph() {
    test(|| {
        start();
        let (stream, kernel) = (stream(), kernel("busy"));
        ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!(launch(kernel, stream, [0, 0]), 0);
        let (_, graph) = end(stream);
        let nodes = |mut node: usize| {
            let mut count = 1usize;
            let to = if node == 0 { 0 } else { &raw mut node as usize };
            ok!(cuGraphGetNodes(graph, to, &raw mut count));
            (node, count)
        };
        let (last, _) = nodes(1);
        let again = || {
            let (after, none, one) = (&raw const last, 0usize, 1usize);
            cu!(cuStreamBeginCaptureToGraph(
                stream, graph, after, none, one, GLOBAL
            ))
        };
        assert_eq!(again(), 0);
        assert_eq!(launch(kernel, stream, [0, 0]), 0);
        assert_eq!(end(stream), (0, graph));
        // One that comes to nothing leaves the graph.
        assert_eq!(again(), 0);
        assert_eq!(allocate(4096), Err(900));
        assert_eq!(end(stream).0, 901);
        assert_eq!(nodes(0).1, 2);
    });
}
