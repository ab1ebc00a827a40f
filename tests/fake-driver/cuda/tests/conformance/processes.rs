//! What the driver does when a process ends, forks, or is stopped.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

#[test]
fn holds_memory_of_all_kinds() {
    part(|| {
        start();
        allocate(8 << 30).unwrap();
        let _: u64 = new!(cuMemCreate(64 * MIB, &SHAREABLE, 0u64));
        let _: u64 = new!(cuMemAllocAsync(5 * MIB, 0usize));
        busy(kernel("busy"), 0, 60_000);
        pause();
    });
}

#[test]
fn a_killed_process_leaves_nothing() {
    test(|| {
        start();
        let mut other = Actor::start(holds_memory_of_all_kinds);
        assert!(taken() >= 8192 + 64 + 32);
        other.kill();
        // The device is idle, too.
        busy(kernel("busy"), 0, 1);
        ok!(cuCtxSynchronize());
        assert_eq!(taken(), 0);
    });
}

#[test]
fn never_rests() {
    part(|| {
        start();
        let kernel = kernel("busy");
        pause();
        loop {
            let address = allocate(4 * MIB).unwrap();
            let handle: u64 = new!(cuMemCreate(2 * MIB, &SHAREABLE, 0u64));
            let pooled: u64 = new!(cuMemAllocAsync(4096usize, 0usize));
            assert_eq!(launch(kernel, 0, [1000, 0]), 0);
            ok!(cuMemFreeAsync(pooled, 0usize));
            ok!(cuMemRelease(handle));
            ok!(cuMemFree_v2(address));
        }
    });
}

#[test]
fn death_at_any_point_leaves_nothing() {
    test(|| {
        start();
        for round in 0..10 {
            let mut others = [0; 3].map(|_| Actor::start(never_rests));
            others.iter_mut().for_each(Actor::resume);
            std::thread::sleep(std::time::Duration::from_micros(round * 1400));
            others.iter_mut().for_each(Actor::kill);
            assert_eq!(taken(), 0, "round {round}");
        }
    });
}

#[test]
fn a_child_of_a_process_without_cuda_has_its_own() {
    test(|| {
        // Looking around is not using it.
        let _: i32 = new!(cuDriverGetVersion());
        assert!(in_child(|| {
            start();
            allocate(5 * MIB).is_ok()
        }));
        start();
        assert_eq!(taken(), 0);
    });
}

#[test]
fn a_child_of_a_process_with_cuda_has_none() {
    test(|| {
        start();
        let address = allocate(5 * MIB).unwrap();
        assert!(in_child(|| {
            let codes = [
                cu!(cuInit(0u32)),
                cu!(cuMemFree_v2(address)),
                cu!(cuMemFree_v2(0u64)),
                cu!(cuCtxGetCurrent(&mut 0usize)),
                allocate(1).unwrap_err(),
            ];
            let _: i32 = new!(cuDriverGetVersion());
            codes == [CUDA_ERROR_NOT_INITIALIZED; 5]
        }));
        assert_eq!(taken(), 6);
        ok!(cuMemFree_v2(address));
    });
}

#[test]
fn is_stopped() {
    part(|| {
        start();
        allocate(64 * MIB).unwrap();
        pause();
        allocate(64 * MIB).unwrap();
        pause();
    });
}

#[test]
fn memory_of_a_stopped_process_goes_and_comes() {
    test(|| {
        start();
        let mut other = Actor::start(is_stopped);
        let (pid, all) = (other.pid().cast_signed(), taken());
        let code = cu!(cuCheckpointProcessCheckpoint(pid, 0usize));
        assert_eq!(code, CUDA_ERROR_ILLEGAL_STATE);
        ok!(cuCheckpointProcessLock(pid, 0usize));
        other.resume();
        ok!(cuCheckpointProcessCheckpoint(pid, 0usize));
        let mut state = 9u32;
        ok!(cuCheckpointProcessGetState(pid, &raw mut state));
        assert_eq!((state, taken()), (CU_PROCESS_STATE_CHECKPOINTED, 0));
        ok!(cuCheckpointProcessRestore(pid, 0usize));
        assert_eq!(taken(), all);
        ok!(cuCheckpointProcessUnlock(pid, 0usize));
        other.wait();
        assert_eq!(taken(), all + 64);
        other.finish();
        assert_ne!(cu!(cuCheckpointProcessLock(pid, 0usize)), 0);
    });
}
