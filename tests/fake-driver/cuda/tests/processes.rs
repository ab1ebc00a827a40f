//! Several processes on one node: what each has, death and forks.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Actor, Cuda, PINNED, cu, mine, on, role, say, wait_to_finish};

#[test]
fn part_hog() {
    role("part_hog", |cuda| {
        cuda.start();
        cuda.allocate(30 << 30).unwrap();
        let mut handle = 0u64;
        assert_eq!(
            cu!(
                cuda,
                cuMemCreate(&raw mut handle, 64usize << 20, &PINNED, 0u64)
            ),
            0
        );
        let mut pooled = 0u64;
        assert_eq!(
            cu!(cuda, cuMemAllocAsync(&raw mut pooled, 5usize << 20, 0usize)),
            0
        );
        let kernel = cuda.kernel("kernel forever 3600000000000", "forever");
        assert_eq!(cuda.launch(kernel, 0), 0);
        say("ready");
        wait_to_finish();
    });
}

#[test]
fn a_killed_process_leaves_nothing() {
    on("a_killed_process_leaves_nothing", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        let mut hog = Actor::start("part_hog", |_| {});
        assert_eq!(hog.hears(), "ready");
        let usage = cuda.node.usage().unwrap();
        let its = usage[0]
            .processes
            .iter()
            .find(|process| process.pid == Some(hog.pid()))
            .unwrap();
        assert_eq!(its.bytes.of(Kind::Alloc), 30 << 30);
        assert_eq!(its.bytes.of(Kind::Vmm), 64 * MIB);
        assert_eq!(its.bytes.of(Kind::Pool), 32 * MIB);
        assert_eq!(its.bytes.of(Kind::Context), 370 * MIB);
        assert_eq!(cuda.allocate(20 << 30), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(cuda.node.calls(hog.pid(), "cuMemAlloc_v2"), 1);

        hog.kill();
        // The very next call finds its memory free, and the device idle.
        let address = cuda.allocate(20 << 30).unwrap();
        let kernel = cuda.kernel("kernel short 1000", "short");
        assert_eq!(cuda.launch(kernel, 0), 0);
        assert_eq!(cu!(cuda, cuCtxSynchronize()), 0);
        assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
        let usage = cuda.node.usage().unwrap();
        assert_eq!(usage[0].processes.len(), 1);
        assert_eq!(usage[0].used, 370 * MIB);
        // Its calls are still known.
        assert_eq!(cuda.node.calls(hog.pid(), "cuMemAlloc_v2"), 1);
        assert_eq!(cuda.node.all_calls("cuMemAlloc_v2"), 3);
    });
}

#[test]
fn part_that_never_rests() {
    role("part_that_never_rests", |cuda| {
        cuda.start();
        let kernel = cuda.kernel("kernel short 1000", "short");
        say("ready");
        loop {
            let address = cuda.allocate(4 << 20).unwrap();
            let (mut handle, mut pooled) = (0u64, 0u64);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 2usize << 20, &PINNED, 0u64)
                ),
                0
            );
            assert_eq!(
                cu!(cuda, cuMemAllocAsync(&raw mut pooled, 4096usize, 0usize)),
                0
            );
            assert_eq!(cuda.launch(kernel, 0), 0);
            assert_eq!(cu!(cuda, cuMemFreeAsync(pooled, 0usize)), 0);
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
        }
    });
}

#[test]
fn death_at_any_point_leaves_nothing() {
    on(
        "death_at_any_point_leaves_nothing",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            for round in 0..20 {
                let mut others = [0; 3].map(|_| Actor::start("part_that_never_rests", |_| {}));
                for other in &mut others {
                    other.hears();
                }
                std::thread::sleep(std::time::Duration::from_micros(round * 700));
                for other in &mut others {
                    other.kill();
                }
                let address = cuda.allocate(40 << 30).unwrap();
                assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
                assert_eq!(
                    cuda.node.usage().unwrap()[0].used,
                    370 * MIB,
                    "round {round}"
                );
            }
        },
    );
}

#[test]
fn a_process_that_ends_by_itself_leaves_nothing() {
    on(
        "a_process_that_ends_by_itself_leaves_nothing",
        &[Gpu::l40s(0)],
        |cuda| {
            let mut hog = Actor::start("part_hog", |_| {});
            hog.hears();
            assert_ne!(cuda.node.usage().unwrap()[0].used, 0);
            hog.finish();
            assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
        },
    );
}

/// Forks, and returns what the child's test returned.
fn in_child(test: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child calls nothing but the driver, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = test();
        // SAFETY: no handler of the test program's is to run in the child.
        unsafe { libc::_exit(code.into()) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_child_of_a_process_without_cuda_has_its_own() {
    on(
        "a_child_of_a_process_without_cuda_has_its_own",
        &[Gpu::l40s(0)],
        |cuda| {
            // Looking around is not using it.
            let mut version = 0i32;
            assert_eq!(cu!(cuda, cuDriverGetVersion(&raw mut version)), 0);
            let code = in_child(|| {
                cuda.start();
                let used = mine(&cuda.node.usage().unwrap()[0], Kind::Context);
                if used == 370 * MIB { 7 } else { 1 }
            });
            assert_eq!(code, 7);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
            cuda.start();
        },
    );
}

#[test]
fn a_child_of_a_process_with_cuda_has_none() {
    on(
        "a_child_of_a_process_with_cuda_has_none",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let address = cuda.allocate(5 << 20).unwrap();
            let code = in_child(|| {
                let (mut version, mut context, mut pointer) = (0i32, 0usize, 0usize);
                let codes = [
                    cu!(cuda, cuInit(0u32)),
                    cu!(cuda, cuMemFree_v2(address)),
                    cu!(cuda, cuMemFree_v2(0u64)),
                    cu!(cuda, cuCtxGetCurrent(&raw mut context)),
                    cuda.allocate(1).unwrap_err(),
                ];
                // As an H200's driver says.
                let fine = codes.iter().all(|code| *code == CUDA_ERROR_NOT_INITIALIZED)
                    && cu!(cuda, cuDriverGetVersion(&raw mut version)) == 0
                    && cu!(
                        cuda,
                        cuGetProcAddress_v2(
                            c"cuInit".as_ptr(),
                            &raw mut pointer,
                            12000i32,
                            0u64,
                            0usize
                        )
                    ) == 0;
                if fine { 7 } else { 1 }
            });
            assert_eq!(code, 7);
            assert_eq!(cuda.mine(Kind::Alloc), 6 * MIB);
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
        },
    );
}

#[test]
fn closing_all_descriptors_changes_nothing() {
    on(
        "closing_all_descriptors_changes_nothing",
        &[Gpu::l40s(0)],
        |cuda| {
            let mut hog = Actor::start("part_that_closes_all", |_| {});
            assert_eq!(hog.hears(), "ready");
            let usage = cuda.node.usage().unwrap();
            let its = usage[0]
                .processes
                .iter()
                .find(|process| process.pid == Some(hog.pid()))
                .unwrap();
            assert_eq!(its.bytes.of(Kind::Alloc), 12 * MIB);
            hog.kill();
            assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
        },
    );
}

#[test]
fn part_that_closes_all() {
    role("part_that_closes_all", |cuda| {
        cuda.start();
        cuda.allocate(4 << 20).unwrap();
        // SAFETY: nothing in this process uses a descriptor above the standard ones.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        cuda.allocate(8 << 20).unwrap();
        say("ready");
        wait_to_finish();
    });
}

#[test]
fn the_library_can_be_unloaded_and_loaded_again() {
    on(
        "the_library_can_be_unloaded_and_loaded_again",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            cuda.allocate(4 << 20).unwrap();
            let Cuda { library, node } = cuda;
            library.close().unwrap();
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(!maps.contains("libsoftmig_fake_cuda"), "still mapped");
            assert_eq!(node.usage().unwrap()[0].used, 0);
            let cuda = Cuda {
                library: support::open(),
                node,
            };
            cuda.start();
            assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
        },
    );
}

#[test]
fn without_a_node_no_device_is_found() {
    let code = |cuda: &Cuda| cu!(cuda, cuInit(0u32));
    on(
        "without_a_node_no_device_is_found",
        &[Gpu::l40s(0)],
        |cuda| {
            std::fs::remove_file(std::env::var_os(softmig_fake_node::PLACE_VARIABLE).unwrap())
                .unwrap();
            assert_eq!(code(&cuda), CUDA_ERROR_NO_DEVICE);
            let mut count = 0i32;
            assert_eq!(
                cu!(cuda, cuDeviceGetCount(&raw mut count)),
                CUDA_ERROR_NOT_INITIALIZED
            );
            assert_eq!(cu!(cuda, cuDriverGetVersion(&raw mut count)), 0);
        },
    );
}
