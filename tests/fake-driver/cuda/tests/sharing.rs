//! Memory that two processes share: who it counts for, and how long it stays.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, Kind, MIB};
use support::{Actor, Cuda, PINNED, cu, on, role, say, wait_to_finish};

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
        say("closed");
        wait_to_finish();
    });
}

/// Memory with a word in it, and its handle as text.
fn shared(cuda: &Cuda, bytes: usize) -> (u64, String) {
    let address = cuda.allocate(bytes).unwrap();
    let code = cu!(cuda, cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize));
    assert_eq!(code, 0);
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    assert_eq!(cu!(cuda, cuIpcGetMemHandle(&raw mut handle, address)), 0);
    let bytes = handle.reserved.iter();
    let text = bytes.map(|byte| format!("{:02x}", byte.cast_unsigned()));
    (address, text.collect())
}

#[test]
fn opened_memory_is_shared_and_counted_once() {
    on(
        "opened_memory_is_shared_and_counted_once",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (address, text) = shared(&cuda, 64 << 20);
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
            assert_eq!(cuda.mine(Kind::Alloc), 64 * MIB);
            other.kill();
            assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
            assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
        },
    );
}

#[test]
fn handles_of_its_own_and_junk_open_nothing() {
    on(
        "handles_of_its_own_and_junk_open_nothing",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            let (address, mut handle) = (
                cuda.allocate(64 << 20).unwrap(),
                CUipcMemHandle { reserved: [0; 64] },
            );
            assert_eq!(cu!(cuda, cuIpcGetMemHandle(&raw mut handle, address)), 0);
            let mut own = 0u64;
            assert_eq!(
                cu!(cuda, cuIpcOpenMemHandle_v2(&raw mut own, handle, 1u32)),
                CUDA_ERROR_INVALID_CONTEXT
            );
            let junk = CUipcMemHandle { reserved: [7; 64] };
            assert_eq!(
                cu!(cuda, cuIpcOpenMemHandle_v2(&raw mut own, junk, 1u32)),
                CUDA_ERROR_INVALID_VALUE
            );
        },
    );
}

#[test]
fn opened_memory_outlives_its_owner_and_counts_for_its_opener() {
    on(
        "opened_memory_outlives_its_owner_and_counts_for_its_opener",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            // A small one keeps its whole piece, as on an H200.
            for (bytes, kept) in [(64usize << 20, 64 * MIB), (1000, 2 * MIB)] {
                let (address, text) = shared(&cuda, bytes);
                let mut other = Actor::start("part_that_opens_memory", |command| {
                    command.env("TICKET", text);
                });
                assert_eq!(other.hears(), "ready");
                assert_eq!(cu!(cuda, cuMemFree_v2(address)), 0);
                assert_eq!(cuda.mine(Kind::Alloc), 0);
                let usage = cuda.node.usage().unwrap();
                assert_eq!(usage[0].used, 2 * 370 * MIB + kept);
                let its = usage[0].processes.iter();
                let its = its.filter(|process| process.pid == Some(other.pid()));
                let its: Vec<u64> = its.map(|process| process.bytes.of(Kind::Alloc)).collect();
                assert_eq!(its, [kept]);
                other.go_on();
                assert_eq!(other.hears(), "closed");
                assert_eq!(cuda.node.usage().unwrap()[0].used, 2 * 370 * MIB);
                other.finish();
            }
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
