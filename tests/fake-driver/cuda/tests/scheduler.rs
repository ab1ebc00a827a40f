//! Work on a GPU with a scheduler of its own, on a clock that the test drives: its end is known when it is over.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::kernel::{ALLOCATE, CHANNEL, CONTROL, CONTROL_FILE, SET_TIME_SLICE};
use softmig_fake_node::{Description, Found, Gpu};
use support::{Cuda, cu, described};

const TEN: &str = "kernel step 10000000";

fn scheduled(name: &str, test: impl FnOnce(Cuda)) {
    let description = Description::new(&[Gpu::h200(0)]).driven().scheduler();
    described(name, description, |_| {}, test);
}

fn pass(cuda: &Cuda, microseconds: u64) {
    cuda.node
        .advance(Duration::from_micros(microseconds))
        .unwrap();
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

/// Two events, before and after a kernel.
fn timed(cuda: &Cuda, kernel: usize, stream: usize) -> (usize, usize) {
    let (start, end) = (cuda.event(), cuda.event());
    record(cuda, start, stream);
    assert_eq!(cuda.launch(kernel, stream), 0);
    record(cuda, end, stream);
    (start, end)
}

/// The only group there is.
fn group(cuda: &Cuda) -> Found {
    let groups = cuda.node.groups(0);
    assert_eq!(groups.len(), 1);
    groups[0]
}

fn enable(cuda: &Cuda, is_on: bool) {
    let group = group(cuda).group;
    let channels: Vec<_> = group.channels().map(|it| (group.client(), it)).collect();
    assert!(cuda.node.enable_channels(0, &channels, is_on));
}

#[test]
fn a_kernel_alone_takes_its_time() {
    scheduled("a_kernel_alone_takes_its_time", |cuda| {
        cuda.start();
        let (stream, kernel) = (cuda.stream(), cuda.kernel(TEN, "step"));
        let one = timed(&cuda, kernel, stream);
        let other = timed(&cuda, kernel, stream);
        pass(&cuda, 15_000);
        assert_eq!(elapsed(&cuda, one.0, one.1), Ok(10.0));
        assert_eq!(elapsed(&cuda, other.0, other.1), Err(CUDA_ERROR_NOT_READY));
        assert_eq!(cu!(cuda, cuEventQuery(other.1)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        // Asked for long after.
        pass(&cuda, 1_000_000);
        assert_eq!(cu!(cuda, cuEventQuery(other.1)), 0);
        assert_eq!(elapsed(&cuda, one.0, other.1), Ok(20.0));
        assert_eq!(cu!(cuda, cuStreamQuery(stream)), 0);
        assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
    });
}

#[test]
fn contexts_have_the_gpu_in_slices() {
    scheduled("contexts_have_the_gpu_in_slices", |cuda| {
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        let events: Vec<_> = (0..2)
            .map(|_| {
                let mut context = 0usize;
                assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut context, 0u32, 0i32)), 0);
                let (stream, kernel) = (cuda.stream(), cuda.kernel(TEN, "step"));
                timed(&cuda, kernel, stream)
            })
            .collect();
        assert_eq!(cuda.node.groups(0).len(), 2);
        pass(&cuda, 30_000);
        // Four whole slices and a rest; each change after a cut takes 137 us, the last one 60.
        let first = 8.0 * (2.048 + 0.137) + (10.0 - 4.0 * 2.048);
        let second = first + 0.06 + (10.0 - 4.0 * 2.048);
        for ((start, end), wanted) in events.into_iter().zip([first, second]) {
            let got = elapsed(&cuda, start, end).unwrap();
            assert!((got - wanted).abs() < 1e-3, "{got} {wanted}");
        }
    });
}

#[test]
fn a_write_behind_a_kernel_is_seen_when_the_kernel_is_over() {
    scheduled(
        "a_write_behind_a_kernel_is_seen_when_the_kernel_is_over",
        |cuda| {
            cuda.start();
            let (stream, other) = (cuda.stream(), cuda.stream());
            let kernel = cuda.kernel(TEN, "step");
            let words = [AtomicU32::new(0), AtomicU32::new(0)];
            let values = || words.each_ref().map(|word| word.load(Ordering::SeqCst));
            let event = timed(&cuda, kernel, stream).1;
            let write = |stream: usize, word: &AtomicU32| {
                let address = word.as_ptr() as u64;
                assert_eq!(
                    cu!(cuda, cuStreamWriteValue32_v2(stream, address, 5u32, 0u32)),
                    0
                );
            };
            write(stream, &words[0]);
            // Another stream waits for the first one's event.
            assert_eq!(cu!(cuda, cuStreamWaitEvent(other, event, 0u32)), 0);
            write(other, &words[1]);
            pass(&cuda, 4_000);
            enable(&cuda, false);
            pass(&cuda, 100_000);
            assert_eq!(cu!(cuda, cuStreamQuery(other)), CUDA_ERROR_NOT_READY);
            enable(&cuda, true);
            // A change, and all but a moment of what is left.
            pass(&cuda, 137 + 5_999);
            assert_eq!(cu!(cuda, cuStreamQuery(other)), CUDA_ERROR_NOT_READY);
            assert_eq!(values(), [0, 0]);
            pass(&cuda, 1);
            let deadline = Instant::now() + Duration::from_secs(20);
            while cu!(cuda, cuStreamQuery(other)) != 0 {
                assert!(Instant::now() < deadline);
            }
            assert_eq!(values(), [5, 5]);
        },
    );
}

#[test]
fn a_stream_that_ends_leaves_its_work_and_its_events() {
    scheduled(
        "a_stream_that_ends_leaves_its_work_and_its_events",
        |cuda| {
            cuda.start();
            let (stream, kernel) = (cuda.stream(), cuda.kernel(TEN, "step"));
            let (start, end) = timed(&cuda, kernel, stream);
            assert_eq!(cu!(cuda, cuStreamDestroy_v2(stream)), 0);
            pass(&cuda, 9_999);
            assert_eq!(cu!(cuda, cuEventQuery(end)), CUDA_ERROR_NOT_READY);
            pass(&cuda, 1);
            assert_eq!(elapsed(&cuda, start, end), Ok(10.0));
        },
    );
}

/// As `hook/src/pacing/channels.rs` reads them, and the monitor proves them.
#[test]
fn the_kernel_driver_answers_this_process_and_others_find_its_file() {
    let name = "the_kernel_driver_answers_this_process_and_others_find_its_file";
    scheduled(name, |cuda| {
        let mut context = 0usize;
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        assert_eq!(cu!(cuda, cuCtxCreate_v2(&raw mut context, 0u32, 0i32)), 0);
        let Found {
            group, file, pid, ..
        } = group(&cuda);
        assert_eq!(pid, Some(std::process::id()));
        let target = std::fs::read_link(format!("/proc/self/fd/{file}")).unwrap();
        assert_eq!(target.file_name().unwrap(), CONTROL_FILE);
        let call = |request: u32, mut words: [u32; 8]| -> c_int {
            // SAFETY: the structure of the request.
            unsafe { libc::ioctl(file, request.into(), words.as_mut_ptr()) }
        };
        let client = group.client();
        assert_eq!(
            call(ALLOCATE, [client, group.handle(), 9, CHANNEL, 0, 0, 0, 0]),
            0
        );
        assert_eq!(
            call(
                CONTROL,
                [client, group.handle(), SET_TIME_SLICE, 0, 0, 0, 0, 0]
            ),
            0
        );
        // Others' calls go to the kernel.
        assert_eq!(call(0xc020_462d, [0; 8]), -1);
        let path = CString::new("/dev/null").unwrap();
        // SAFETY: the path ends in a zero byte.
        let null = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) };
        let mut size = 0;
        // SAFETY: the file is open, and the number has room for the answer.
        let answer = unsafe { libc::ioctl(null, libc::FIONREAD, &raw mut size) };
        assert_eq!(answer, -1);
        assert_eq!(cu!(cuda, cuCtxDestroy_v2(context)), 0);
        assert_eq!(cuda.node.groups(0), []);
    });
}
