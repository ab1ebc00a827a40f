//! When work is done: streams, events and calls on a clock that the test drives, and a real one.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu};
use support::{Actor, Cuda, cu, described, on, role, say, wait_to_finish};

const STEP: &str = "kernel step 2000000";

fn driven(name: &str, test: impl FnOnce(Cuda)) {
    described(
        name,
        Description::new(&[Gpu::l40s(0)]).driven(),
        |_| {},
        test,
    );
}

fn event(cuda: &Cuda) -> usize {
    let mut event = 0usize;
    assert_eq!(cu!(cuda, cuEventCreate(&raw mut event, 0u32)), 0);
    event
}

fn record(cuda: &Cuda, event: usize, stream: usize) {
    assert_eq!(cu!(cuda, cuEventRecord(event, stream)), 0);
}

fn elapsed(cuda: &Cuda, start: usize, end: usize) -> Result<f32, u32> {
    let mut time = 0f32;
    match cu!(cuda, cuEventElapsedTime(&raw mut time, start, end)) {
        0 => Ok(time),
        code => Err(code),
    }
}

#[test]
fn events_tell_the_time_of_the_driven_clock() {
    driven("events_tell_the_time_of_the_driven_clock", |cuda| {
        cuda.start();
        let (stream, kernel) = (cuda.stream(), cuda.kernel(STEP, "step"));
        let (start, end) = (event(&cuda), event(&cuda));
        assert_eq!(cu!(cuda, cuEventQuery(start)), 0);
        assert_eq!(elapsed(&cuda, start, start), Err(CUDA_ERROR_INVALID_HANDLE));
        cuda.node.advance(Duration::from_millis(7)).unwrap();
        record(&cuda, start, stream);
        assert_eq!(cuda.launch(kernel, stream), 0);
        assert_eq!(cuda.launch(kernel, stream), 0);
        record(&cuda, end, stream);
        assert_eq!(cu!(cuda, cuEventQuery(start)), 0);
        assert_eq!(cu!(cuda, cuEventQuery(end)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        assert_eq!(elapsed(&cuda, start, end), Err(CUDA_ERROR_NOT_READY));
        cuda.node.advance(Duration::from_micros(3_999)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(end)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_micros(1)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(end)), 0);
        assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
        assert_eq!(elapsed(&cuda, start, end), Ok(4.0));
        // An idle gap is between events, too.
        cuda.node.advance(Duration::from_millis(10)).unwrap();
        record(&cuda, end, stream);
        assert_eq!(elapsed(&cuda, start, end), Ok(14.0));
    });
}

#[test]
fn streams_share_one_device_in_order_of_arrival() {
    driven("streams_share_one_device_in_order_of_arrival", |cuda| {
        cuda.start();
        let (one, two, kernel) = (cuda.stream(), cuda.stream(), cuda.kernel(STEP, "step"));
        let (first, second) = (event(&cuda), event(&cuda));
        assert_eq!(cuda.launch(kernel, one), 0);
        assert_eq!(cuda.launch(kernel, two), 0);
        record(&cuda, first, one);
        record(&cuda, second, two);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(first)), 0);
        assert_eq!(cu!(cuda, cuEventQuery(second)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(elapsed(&cuda, first, second), Ok(2.0));
    });
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    driven("a_stream_waits_for_an_event_of_another", |cuda| {
        cuda.start();
        let (one, two, kernel) = (cuda.stream(), cuda.stream(), cuda.kernel(STEP, "step"));
        let done = event(&cuda);
        assert_eq!(cuda.launch(kernel, one), 0);
        record(&cuda, done, one);
        assert_eq!(cu!(cuda, cuStreamWaitEvent(two, done, 0u32)), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(two)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuStreamQuery(two)), 0);
    });
}

#[test]
fn the_default_stream_waits_for_blocking_ones() {
    driven("the_default_stream_waits_for_blocking_ones", |cuda| {
        cuda.start();
        let kernel = cuda.kernel(STEP, "step");
        let mut blocking = 0usize;
        assert_eq!(cu!(cuda, cuStreamCreate(&raw mut blocking, 0u32)), 0);
        let independent = cuda.stream();
        assert_eq!(cuda.launch(kernel, blocking), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(0usize)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(cuda, cuStreamQuery_ptsz(0usize)), 0);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuStreamQuery(0usize)), 0);
        assert_eq!(cuda.launch(kernel, independent), 0);
        assert_eq!(cu!(cuda, cuStreamQuery(0usize)), 0);
        assert_eq!(cuda.launch(kernel, 0), 0);
        // Behind the default stream's kernel, which is behind the independent one's.
        let mut word = 0u32;
        let address = &raw mut word as u64;
        assert_eq!(
            cu!(cuda, cuStreamWriteValue32_v2(blocking, address, 5u32, 0u32)),
            0
        );
        assert_eq!(cu!(cuda, cuStreamQuery(blocking)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(4)).unwrap();
        assert_eq!(cu!(cuda, cuStreamSynchronize(blocking)), 0);
        assert_eq!(word, 5);
    });
}

#[test]
fn synchronizing_waits_for_the_real_clock() {
    on(
        "synchronizing_waits_for_the_real_clock",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let kernel = cuda.kernel("kernel busy argument", "busy");
            let mut time = 2_000_000_000u64;
            let mut arguments = [&raw mut time];
            let begin = Instant::now();
            let code = cu!(
                cuda,
                cuLaunchKernel(
                    kernel,
                    1u32,
                    1u32,
                    1u32,
                    1u32,
                    1u32,
                    1u32,
                    0u32,
                    0usize,
                    arguments.as_mut_ptr(),
                    0usize
                )
            );
            assert_eq!(code, 0);
            assert!(begin.elapsed() < Duration::from_millis(1900));
            assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
            let waited = begin.elapsed();
            assert!(waited >= Duration::from_secs(2), "{waited:?}");
            assert!(waited < Duration::from_secs(60), "{waited:?}");
        },
    );
}

static CALLED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn called(data: *mut std::ffi::c_void) {
    CALLED.fetch_add(data as u32, Ordering::SeqCst);
}

#[test]
fn the_program_is_called_when_its_stream_gets_there() {
    driven("the_program_is_called_when_its_stream_gets_there", |cuda| {
        cuda.start();
        let (stream, kernel) = (cuda.stream(), cuda.kernel(STEP, "step"));
        let after = event(&cuda);
        assert_eq!(cuda.launch(kernel, stream), 0);
        let function: unsafe extern "C" fn(*mut std::ffi::c_void) = called;
        assert_eq!(cu!(cuda, cuLaunchHostFunc(stream, function, 3usize)), 0);
        assert_eq!(cuda.launch(kernel, stream), 0);
        record(&cuda, after, stream);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(CALLED.load(Ordering::SeqCst), 0);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        // No thread calls the driver meanwhile.
        let begin = Instant::now();
        while CALLED.load(Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "never called");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(CALLED.load(Ordering::SeqCst), 3);
        assert_eq!(cu!(cuda, cuEventQuery(after)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuEventSynchronize(after)), 0);
        assert_eq!(CALLED.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_stream_waits_for_a_word_and_writes_one() {
    on(
        "a_stream_waits_for_a_word_and_writes_one",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (stream, kernel) = (cuda.stream(), cuda.kernel("kernel step 1000", "step"));
            let (gate, done) = (AtomicU32::new(0), AtomicU32::new(0));
            assert_eq!(
                cu!(
                    cuda,
                    cuStreamWaitValue32_v2(stream, gate.as_ptr() as u64, 1u32, 1u32)
                ),
                0
            );
            assert_eq!(cuda.launch(kernel, stream), 0);
            assert_eq!(
                cu!(
                    cuda,
                    cuStreamWriteValue32_v2(stream, done.as_ptr() as u64, 9u32, 0u32)
                ),
                0
            );
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
            assert_eq!(done.load(Ordering::SeqCst), 0);
            gate.store(1, Ordering::SeqCst);
            let begin = Instant::now();
            while done.load(Ordering::SeqCst) == 0 {
                assert!(begin.elapsed() < Duration::from_secs(60), "never written");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
            assert_eq!(
                cu!(cuda, cuStreamWaitValue32_v2(stream, 3u64, 1u32, 1u32)),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}

#[test]
fn copies_wait_for_the_kernels_before_them() {
    driven("copies_wait_for_the_kernels_before_them", |cuda| {
        cuda.start();
        let (stream, kernel) = (cuda.stream(), cuda.kernel(STEP, "step"));
        let memory = cuda.allocate(4096).unwrap();
        let mut back = [9u8; 4];
        assert_eq!(cuda.launch(kernel, stream), 0);
        assert_eq!(
            cu!(cuda, cuMemsetD8Async(memory, 1u8, 4096usize, stream)),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemcpyAsync(back.as_mut_ptr() as u64, memory, 4usize, stream)
            ),
            0
        );
        assert_eq!(back, [9; 4]);
        cuda.node.advance(Duration::from_millis(2)).unwrap();
        assert_eq!(cu!(cuda, cuStreamSynchronize(stream)), 0);
        assert_eq!(back, [1; 4]);
    });
}

#[test]
fn part_that_launches() {
    role("part_that_launches", |cuda| {
        cuda.start();
        let kernel = cuda.kernel(STEP, "step");
        for _ in 0..5 {
            assert_eq!(cuda.launch(kernel, 0), 0);
        }
        say("launched");
        wait_to_finish();
    });
}

#[test]
fn processes_share_one_device_in_order_of_arrival() {
    driven("processes_share_one_device_in_order_of_arrival", |cuda| {
        cuda.start();
        let kernel = cuda.kernel(STEP, "step");
        let mut other = Actor::start("part_that_launches", |_| {});
        assert_eq!(other.hears(), "launched");
        assert_eq!(cuda.launch(kernel, 0), 0);
        let done = event(&cuda);
        record(&cuda, done, 0);
        cuda.node.advance(Duration::from_millis(11)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(done)), CUDA_ERROR_NOT_READY);
        cuda.node.advance(Duration::from_millis(1)).unwrap();
        assert_eq!(cu!(cuda, cuEventQuery(done)), 0);
        assert_eq!(cuda.node.calls(other.pid(), "cuLaunchKernel"), 5);
        let usage = cuda.node.usage().unwrap();
        let busy: Vec<u64> = usage[0]
            .processes
            .iter()
            .map(|process| process.busy)
            .collect();
        assert_eq!(busy.iter().sum::<u64>(), 12_000_000);
        other.finish();
    });
}

#[test]
fn all_ways_to_launch_take_their_time() {
    driven("all_ways_to_launch_take_their_time", |cuda| {
        cuda.start();
        let kernel = cuda.kernel(STEP, "step");
        let configuration = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: std::ptr::null_mut(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let one = CUDA_LAUNCH_PARAMS {
            function: std::ptr::without_provenance_mut(kernel),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: std::ptr::null_mut(),
            kernelParams: std::ptr::null_mut(),
        };
        let codes = [
            cu!(cuda, cuLaunch(kernel)),
            cu!(cuda, cuLaunchGrid(kernel, 2i32, 2i32)),
            cu!(cuda, cuLaunchGridAsync(kernel, 2i32, 2i32, 0usize)),
            cuda.launch(kernel, 0),
            cu!(
                cuda,
                cuLaunchKernel_ptsz(
                    kernel, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, 0usize, 0usize, 0usize
                )
            ),
            cu!(
                cuda,
                cuLaunchKernelEx(&raw const configuration, kernel, 0usize, 0usize)
            ),
            cu!(
                cuda,
                cuLaunchKernelEx_ptsz(&raw const configuration, kernel, 0usize, 0usize)
            ),
            cu!(
                cuda,
                cuLaunchCooperativeKernel(
                    kernel, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, 0usize, 0usize
                )
            ),
            cu!(
                cuda,
                cuLaunchCooperativeKernel_ptsz(
                    kernel, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, 0usize, 0usize
                )
            ),
            cu!(
                cuda,
                cuLaunchCooperativeKernelMultiDevice([one, one].as_mut_ptr(), 2u32, 0u32)
            ),
        ];
        assert_eq!(codes, [0; 10]);
        assert_eq!(cuda.node.busy_until(0), 11 * 2_000_000);
        let too_large = cu!(
            cuda,
            cuLaunchKernel(
                kernel, 1u32, 1u32, 1u32, 1025u32, 1u32, 1u32, 0u32, 0usize, 0usize, 0usize
            )
        );
        assert_eq!(too_large, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuda.launch(0, 0), CUDA_ERROR_INVALID_HANDLE);
    });
}
