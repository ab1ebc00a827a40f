//! Stopping a process, moving its memory to the host and back.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, MIB};
use support::{Actor, Cuda, cu, on, role, say, wait_to_finish};

#[test]
fn part_that_is_stopped() {
    role("part_that_is_stopped", |cuda| {
        cuda.start();
        cuda.allocate(64 << 20).unwrap();
        say("ready");
        wait_to_finish();
        cuda.allocate(64 << 20).unwrap();
        say("took more");
        wait_to_finish();
    });
}

#[test]
fn a_stopped_process_waits_and_its_memory_goes_and_comes() {
    on(
        "a_stopped_process_waits_and_its_memory_goes_and_comes",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let mut other = Actor::start("part_that_is_stopped", |_| {});
            assert_eq!(other.hears(), "ready");
            let pid = other.pid().cast_signed();
            let used = |cuda: &Cuda| cuda.node.usage().unwrap()[0].used / MIB;
            let state = |cuda: &Cuda| {
                let mut state = 9u32;
                let code = cu!(cuda, cuCheckpointProcessGetState(pid, &raw mut state));
                assert_eq!(code, 0);
                state
            };
            assert_eq!(used(&cuda), 518 + 518 + 64);
            assert_eq!(
                cu!(cuda, cuCheckpointProcessCheckpoint(pid, 0usize)),
                CUDA_ERROR_ILLEGAL_STATE
            );
            assert_eq!(cu!(cuda, cuCheckpointProcessLock(pid, 0usize)), 0);
            other.go_on();
            assert_eq!(cu!(cuda, cuCheckpointProcessCheckpoint(pid, 0usize)), 0);
            assert_eq!(state(&cuda), CU_PROCESS_STATE_CHECKPOINTED);
            assert_eq!(used(&cuda), 518);
            // Another process may have the memory now.
            let (mut free, mut total) = (0usize, 0usize);
            assert_eq!(cu!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)), 0);
            let all = cuda.allocate(free - (32 << 20)).unwrap();
            assert_eq!(
                cu!(cuda, cuCheckpointProcessRestore(pid, 0usize)),
                CUDA_ERROR_OUT_OF_MEMORY
            );
            assert_eq!(cu!(cuda, cuMemFree_v2(all)), 0);
            assert_eq!(cu!(cuda, cuCheckpointProcessRestore(pid, 0usize)), 0);
            assert_eq!(used(&cuda), 518 + 518 + 64);
            assert_eq!(cu!(cuda, cuCheckpointProcessUnlock(pid, 0usize)), 0);
            assert_eq!(state(&cuda), CU_PROCESS_STATE_RUNNING);
            assert_eq!(other.hears(), "took more");
            assert_eq!(used(&cuda), 518 + 518 + 128);
            other.finish();
            assert_eq!(
                cu!(cuda, cuCheckpointProcessLock(pid, 0usize)),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}
