//! When work is done: streams, events, and words that host and device share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softmig_driver_sys::cuda::*;

use crate::harness::*;

fn record(event: usize, stream: usize) {
    ok!(cuEventRecord(event, stream));
}

/// Milliseconds between two events.
fn elapsed(start: usize, end: usize) -> f32 {
    let mut time = 0f32;
    ok!(cuEventElapsedTime(&raw mut time, start, end));
    time
}

/// Keeps a stream at work until the word is set.
fn held(stream: usize) -> &'static AtomicU32 {
    let word = word();
    assert_eq!(launch(kernel("spin"), stream, [address(word), 0]), 0);
    word
}

fn has_ended(stream: usize) -> bool {
    match cu!(cuStreamQuery(stream)) {
        0 => true,
        code => {
            assert_eq!(code, CUDA_ERROR_NOT_READY);
            false
        }
    }
}

fn address(word: &AtomicU32) -> u64 {
    word.as_ptr() as u64
}

fn write(stream: usize, word: &AtomicU32) {
    let (to, value) = (address(word), 5u32);
    ok!(cuStreamWriteValue32_v2(stream, to, value, 0u32));
}

#[test]
fn events_tell_the_time_of_kernels() {
    test(|| {
        start();
        let (stream, kernel, [begin, end]) = (stream(), kernel("busy"), [event(), event()]);
        ok!(cuEventQuery(begin));
        let code = cu!(cuEventElapsedTime(&mut 0f32, begin, begin));
        assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
        record(begin, stream);
        busy(kernel, stream, 100);
        busy(kernel, stream, 100);
        record(end, stream);
        assert_eq!(cu!(cuEventQuery(end)), CUDA_ERROR_NOT_READY);
        assert!(!has_ended(stream));
        let code = cu!(cuEventElapsedTime(&mut 0f32, begin, end));
        assert_eq!(code, CUDA_ERROR_NOT_READY);
        ok!(cuStreamSynchronize(stream));
        ok!(cuEventQuery(end));
        let time = elapsed(begin, end);
        assert!((199.0..400.0).contains(&time), "{time}");
        // An idle gap is between events, too.
        std::thread::sleep(Duration::from_millis(100));
        record(end, stream);
        ok!(cuEventSynchronize(end));
        assert!(elapsed(begin, end) >= 299.0);
    });
}

#[test]
fn a_launch_returns_before_its_kernel_ends() {
    test(|| {
        start();
        let kernel = kernel("busy");
        let begin = Instant::now();
        busy(kernel, 0, 1000);
        assert!(begin.elapsed() < Duration::from_millis(900));
        ok!(cuCtxSynchronize());
        assert!(begin.elapsed() >= Duration::from_millis(999));
    });
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    test(|| {
        start();
        let (one, two, done) = (stream(), stream(), event());
        let word = held(one);
        record(done, one);
        ok!(cuStreamWaitEvent(two, done, 0u32));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!has_ended(two));
        word.store(1, Ordering::SeqCst);
        ok!(cuStreamSynchronize(two));
        assert!(has_ended(one));
    });
}

#[test]
fn the_default_stream_waits_for_blocking_ones() {
    test(|| {
        start();
        let (independent, blocking) = (stream(), new!(cuStreamCreate(0u32)));
        let word = held(blocking);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!has_ended(0));
        assert!(has_ended(independent));
        ok!(cuStreamQuery_ptsz(0usize));
        word.store(1, Ordering::SeqCst);
        ok!(cuStreamSynchronize(blocking));
        assert!(has_ended(0));
    });
}

#[test]
fn the_program_is_called_when_its_stream_gets_there() {
    static CALLED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn called(data: *mut std::ffi::c_void) {
        CALLED.fetch_add(data as u32, Ordering::SeqCst);
    }
    test(|| {
        start();
        let stream = stream();
        let word = held(stream);
        let function: unsafe extern "C" fn(*mut std::ffi::c_void) = called;
        ok!(cuLaunchHostFunc(stream, function, 3usize));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(CALLED.load(Ordering::SeqCst), 0);
        word.store(1, Ordering::SeqCst);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(CALLED.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_stream_waits_for_a_word_and_writes_one() {
    test(|| {
        start();
        let (stream, [gate, done]) = (stream(), [word(), word()]);
        ok!(cuStreamWaitValue32_v2(stream, address(gate), 1u32, 1u32));
        write(stream, done);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!has_ended(stream));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        gate.store(1, Ordering::SeqCst);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(done.load(Ordering::SeqCst), 5);
        let code = cu!(cuStreamWaitValue32_v2(stream, 3u64, 1u32, 1u32));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn copies_wait_for_the_kernels_before_them() {
    test(|| {
        start();
        let stream = stream();
        let memory = allocate(4096).unwrap();
        let back = word();
        back.store(9, Ordering::SeqCst);
        let word = held(stream);
        ok!(cuMemsetD8Async(memory, 1u8, 4096usize, stream));
        ok!(cuMemcpyAsync(address(back), memory, 4usize, stream));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(back.load(Ordering::SeqCst), 9);
        word.store(1, Ordering::SeqCst);
        ok!(cuStreamSynchronize(stream));
        assert_eq!(back.load(Ordering::SeqCst), 0x0101_0101);
    });
}

#[test]
fn a_kernel_waits_for_another_of_its_graph_or_stream() {
    test(|| {
        start();
        let (one, two, word) = (stream(), stream(), word());
        let (spin, set) = (kernel("spin"), kernel("write"));
        ok!(cuStreamBeginCapture_v2(one, 0u32));
        assert_eq!(launch(spin, one, [address(word), 0]), 0);
        let mut graph = 0usize;
        ok!(cuStreamEndCapture(one, &raw mut graph));
        let ready: usize = new!(cuGraphInstantiateWithFlags(graph, 0u64));
        ok!(cuGraphLaunch(ready, one));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!has_ended(one));
        assert_eq!(launch(set, two, [address(word), 7]), 0);
        ok!(cuStreamSynchronize(one));
        ok!(cuStreamSynchronize(two));
        assert_eq!(word.load(Ordering::SeqCst), 7);
    });
}

#[test]
fn all_ways_to_launch_take_their_time() {
    test(|| {
        start();
        let kernel = kernel("busy");
        let mut configuration: CUlaunchConfig = zeroed();
        let shape = &mut configuration;
        (shape.gridDimX, shape.gridDimY, shape.gridDimZ) = (1, 1, 1);
        (shape.blockDimX, shape.blockDimY, shape.blockDimZ) = (1, 1, 1);
        let time = 50_000_000u64;
        let mut places = [&raw const time];
        let arguments = places.as_mut_ptr();
        let one = 1u32;
        macro_rules! plain {
            ($name:ident) => {
                cu!($name(
                    kernel, one, one, one, one, one, one, 0u32, 0usize, arguments, 0usize
                ))
            };
        }
        macro_rules! extended {
            ($name:ident) => {
                cu!($name(&raw const configuration, kernel, arguments, 0usize))
            };
        }
        let begin = Instant::now();
        let codes = [
            plain!(cuLaunchKernel),
            plain!(cuLaunchKernel_ptsz),
            plain!(cuLaunchCooperativeKernel),
            plain!(cuLaunchCooperativeKernel_ptsz),
            extended!(cuLaunchKernelEx),
            extended!(cuLaunchKernelEx_ptsz),
        ];
        assert_eq!(codes, [0; 6]);
        ok!(cuCtxSynchronize());
        // Those of the thread's own default stream may run beside the others.
        assert!(begin.elapsed() >= Duration::from_millis(149));
        let threads = 1025u32;
        let code = cu!(cuLaunchKernel(
            kernel, one, one, one, threads, one, one, 0u32, 0usize, arguments, 0usize
        ));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(launch(0, 0, [0, 0]), CUDA_ERROR_INVALID_HANDLE);
    });
}
