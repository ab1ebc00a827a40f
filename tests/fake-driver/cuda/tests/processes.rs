//! Several processes on one node: what each has, death, forks, and memory that two share.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Actor, Cuda, cu, mine, on, role, say, wait_to_finish};

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

const PINNED: CUmemAllocationProp = CUmemAllocationProp {
    type_: CU_MEM_ALLOCATION_TYPE_PINNED,
    requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    location: CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    },
    win32HandleMetaData: std::ptr::null_mut(),
    allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    },
};

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
        assert_eq!(usage[0].used, 372 * MIB);
        // What it called is still known.
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
fn part_that_opens_memory() {
    role("part_that_opens_memory", |cuda| {
        cuda.start();
        let text = std::env::var("TICKET").unwrap();
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        for (to, pair) in handle.reserved.iter_mut().zip(text.as_bytes().chunks(2)) {
            *to = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16)
                .unwrap()
                .cast_signed();
        }
        let mut address = 0u64;
        assert_eq!(
            cu!(cuda, cuIpcOpenMemHandle_v2(&raw mut address, handle, 1u32)),
            0
        );
        let mut word = [0u8; 5];
        assert_eq!(
            cu!(cuda, cuMemcpyDtoH_v2(word.as_mut_ptr(), address, 5usize)),
            0
        );
        assert_eq!(&word, b"hello");
        assert_eq!(
            cu!(cuda, cuMemcpyHtoD_v2(address, b"world".as_ptr(), 5usize)),
            0
        );
        say("ready");
        wait_to_finish();
        assert_eq!(cu!(cuda, cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuda, cuIpcCloseMemHandle(address)), 0);
        assert_eq!(
            cu!(cuda, cuIpcCloseMemHandle(address)),
            CUDA_ERROR_INVALID_VALUE
        );
    });
}

#[test]
fn opened_memory_is_shared_and_counted_once() {
    on(
        "opened_memory_is_shared_and_counted_once",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let address = cuda.allocate(64 << 20).unwrap();
            assert_eq!(
                cu!(cuda, cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize)),
                0
            );
            let mut handle = CUipcMemHandle { reserved: [0; 64] };
            assert_eq!(cu!(cuda, cuIpcGetMemHandle(&raw mut handle, address)), 0);
            let mut own = 0u64;
            assert_eq!(
                cu!(cuda, cuIpcOpenMemHandle_v2(&raw mut own, handle, 1u32)),
                CUDA_ERROR_INVALID_CONTEXT
            );
            let text: String = handle
                .reserved
                .iter()
                .map(|byte| format!("{:02x}", byte.cast_unsigned()))
                .collect();
            let mut other = Actor::start("part_that_opens_memory", |command| {
                command.env("TICKET", text);
            });
            assert_eq!(other.hears(), "ready");
            let mut word = [0u8; 5];
            assert_eq!(
                cu!(cuda, cuMemcpyDtoH_v2(word.as_mut_ptr(), address, 5usize)),
                0
            );
            assert_eq!(&word, b"world");
            let usage = cuda.node.usage().unwrap();
            assert_eq!(usage[0].used, (2 * 370 + 64) * MIB);
            other.finish();
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            let junk = CUipcMemHandle { reserved: [7; 64] };
            assert_eq!(
                cu!(cuda, cuIpcOpenMemHandle_v2(&raw mut own, junk, 1u32)),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}

#[test]
fn part_that_imports_a_handle() {
    role("part_that_imports_a_handle", |cuda| {
        cuda.start();
        let descriptor: usize = std::env::var("DESCRIPTOR").unwrap().parse().unwrap();
        let mut handle = 0u64;
        assert_eq!(
            cu!(
                cuda,
                cuMemImportFromShareableHandle(&raw mut handle, descriptor, 1u32)
            ),
            0
        );
        say("ready");
        wait_to_finish();
        assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
        say("released");
        wait_to_finish();
    });
}

#[test]
fn exported_memory_outlives_its_exporter() {
    on(
        "exported_memory_outlives_its_exporter",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (mut handle, mut descriptor) = (0u64, -1i32);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 64usize << 20, &PINNED, 0u64)
                ),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuMemExportToShareableHandle(&raw mut descriptor, handle, 1u32, 0u64)
                ),
                0
            );
            // SAFETY: the driver just opened it for this test.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
            // One without close-on-exec, under a number that the other knows.
            // SAFETY: as above.
            let kept = unsafe { libc::dup(std::os::fd::AsRawFd::as_raw_fd(&descriptor.as_fd())) };
            let mut other = Actor::start("part_that_imports_a_handle", |command| {
                command.env("DESCRIPTOR", kept.to_string());
            });
            assert_eq!(other.hears(), "ready");
            // SAFETY: it is this test's own.
            unsafe { libc::close(kept) };
            let vmm = |cuda: &Cuda| {
                let usage = cuda.node.usage().unwrap();
                let of = |pid| {
                    let its = usage[0]
                        .processes
                        .iter()
                        .find(|process| process.pid == Some(pid));
                    its.map_or(0, |its| its.bytes.of(Kind::Vmm) / MIB)
                };
                let rest = usage[0].used / MIB - 2 * 370;
                (of(std::process::id()), of(other.pid()), rest)
            };
            assert_eq!(vmm(&cuda), (64, 0, 64));
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(vmm(&cuda), (0, 64, 64));
            drop(descriptor);
            other.kill();
            assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
        },
    );
}

#[test]
fn a_descriptor_in_flight_keeps_memory() {
    on(
        "a_descriptor_in_flight_keeps_memory",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (mut handle, mut descriptor) = (0u64, -1i32);
            assert_eq!(
                cu!(
                    cuda,
                    cuMemCreate(&raw mut handle, 64usize << 20, &PINNED, 0u64)
                ),
                0
            );
            assert_eq!(
                cu!(
                    cuda,
                    cuMemExportToShareableHandle(&raw mut descriptor, handle, 1u32, 0u64)
                ),
                0
            );
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, (370 + 64) * MIB);
            let number = descriptor.cast_unsigned() as usize;
            assert_eq!(
                cu!(
                    cuda,
                    cuMemImportFromShareableHandle(&raw mut handle, number, 1u32)
                ),
                0
            );
            // SAFETY: it is this test's own.
            unsafe { libc::close(descriptor) };
            assert_eq!(cuda.mine(Kind::Vmm), 64 * MIB);
            assert_eq!(cu!(cuda, cuMemRelease(handle)), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
        },
    );
}

#[test]
fn without_a_node_there_is_no_device() {
    let code = |cuda: &Cuda| cu!(cuda, cuInit(0u32));
    on(
        "without_a_node_there_is_no_device",
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
