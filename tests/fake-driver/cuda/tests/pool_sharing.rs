//! Pools whose memory two processes use.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Gpu, MIB};
use support::{Actor, cu, on, role, say, wait_to_finish};

#[test]
fn part_that_imports_a_pool() {
    role("part_that_imports_a_pool", |cuda| {
        cuda.start();
        let descriptor: usize = std::env::var("DESCRIPTOR").unwrap().parse().unwrap();
        let text = std::env::var("TICKET").unwrap();
        let mut ticket = [0u8; 64];
        for (to, pair) in ticket.iter_mut().zip(text.as_bytes().chunks(2)) {
            *to = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        let (mut pool, mut address) = (0usize, 0u64);
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolImportFromShareableHandle(&raw mut pool, descriptor, 1u32, 0u64)
            ),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolImportPointer(&raw mut address, pool, ticket.as_mut_ptr())
            ),
            0
        );
        let mut word = [0u8; 5];
        assert_eq!(
            cu!(cuda, cuMemcpyDtoH_v2(word.as_mut_ptr(), address, 5usize)),
            0
        );
        assert_eq!(&word, b"hello");
        say("ready");
        wait_to_finish();
    });
}

#[test]
fn a_shared_pool_counts_once() {
    on("a_shared_pool_counts_once", &[Gpu::l40s(0)], |cuda| {
        cuda.start();
        // SAFETY: a struct of numbers and a pointer.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        let (mut pool, mut address, mut descriptor) = (0usize, 0u64, -1i32);
        assert_eq!(
            cu!(cuda, cuMemPoolCreate(&raw mut pool, &raw const properties)),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemAllocFromPoolAsync(&raw mut address, 32usize << 20, pool, 0usize)
            ),
            0
        );
        assert_eq!(
            cu!(cuda, cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize)),
            0
        );
        assert_eq!(
            cu!(
                cuda,
                cuMemPoolExportToShareableHandle(&raw mut descriptor, pool, 1u32, 0u64)
            ),
            0
        );
        let mut ticket = [0u8; 64];
        assert_eq!(
            cu!(cuda, cuMemPoolExportPointer(ticket.as_mut_ptr(), address)),
            0
        );
        // SAFETY: the driver just opened it for this test; the other gets one without close-on-exec.
        let kept = unsafe { libc::dup(descriptor) };
        let text: String = ticket.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut other = Actor::start("part_that_imports_a_pool", |command| {
            command
                .env("DESCRIPTOR", kept.to_string())
                .env("TICKET", text);
        });
        assert_eq!(other.hears(), "ready");
        assert_eq!(cuda.node.usage().unwrap()[0].used, (2 * 370 + 32) * MIB);
        // Given back, it is in no process's account, and still taken: as on an H200.
        assert_eq!(cu!(cuda, cuMemFreeAsync(address, 0usize)), 0);
        assert_eq!(cu!(cuda, cuMemPoolDestroy(pool)), 0);
        let usage = cuda.node.usage().unwrap();
        assert_eq!(usage[0].used, (2 * 370 + 32) * MIB);
        let accounts = usage[0]
            .processes
            .iter()
            .map(|process| process.bytes.total());
        assert_eq!(accounts.sum::<u64>(), 2 * 370 * MIB);
        other.finish();
        assert_eq!(cuda.node.usage().unwrap()[0].used, 370 * MIB);
    });
}
