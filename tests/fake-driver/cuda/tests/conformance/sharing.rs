//! Memory that two processes use: it counts once, and lives until both have let go.

use softmig_driver_sys::cuda::*;

use crate::harness::*;

/// MiB of another process's context.
fn context_of_another() -> i64 {
    let mut other = Actor::start(has_a_context);
    let own = taken();
    other.finish();
    own
}

#[test]
fn has_a_context() {
    part(|| {
        start();
        pause();
    });
}

/// The other's copy of a descriptor without close-on-exec.
fn inheritable(descriptor: i32) -> i32 {
    // SAFETY: the driver just opened it for this test.
    unsafe { libc::dup(descriptor) }
}

fn close(descriptor: i32) {
    // SAFETY: it is this test's own.
    unsafe { libc::close(descriptor) };
}

#[test]
fn opens_memory() {
    part(|| {
        start();
        let handle = CUipcMemHandle {
            reserved: unhex::<64>("HANDLE").map(u8::cast_signed),
        };
        let address: u64 = new!(cuIpcOpenMemHandle_v2(handle, 1u32));
        assert_eq!(&read(address), b"hello");
        ok!(cuMemcpyHtoD_v2(address, b"world".as_ptr(), 5usize));
        pause();
        assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuIpcCloseMemHandle(address));
        let code = cu!(cuIpcCloseMemHandle(address));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        pause();
    });
}

fn handle_of(address: u64) -> CUipcMemHandle {
    let mut handle: CUipcMemHandle = zeroed();
    ok!(cuIpcGetMemHandle(&raw mut handle, address));
    handle
}

/// Memory with a word in it, and a process that opened it.
fn opened(bytes: usize) -> (u64, Actor) {
    let address = allocate(bytes).unwrap();
    ok!(cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize));
    let handle = hex(&handle_of(address).reserved.map(i8::cast_unsigned));
    (address, Actor::with(opens_memory, &[("HANDLE", &handle)]))
}

#[test]
fn opened_memory_is_shared_and_counts_once() {
    test(|| {
        start();
        let context = context_of_another();
        let (address, mut other) = opened(64 * MIB);
        assert_eq!(&read(address), b"world");
        assert_eq!(taken(), context + 64);
        other.kill();
        ok!(cuMemFree_v2(address));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn opened_memory_outlives_its_owner() {
    test(|| {
        start();
        let context = context_of_another();
        // A small one keeps its whole piece.
        for (bytes, kept) in [(64 * MIB, 64), (1000, 2)] {
            let (address, mut other) = opened(bytes);
            ok!(cuMemFree_v2(address));
            assert_eq!(taken(), context + kept);
            other.step();
            assert_eq!(taken(), context);
            other.finish();
        }
    });
}

#[test]
fn its_own_handles_and_junk_open_nothing() {
    test(|| {
        start();
        let open = |handle: CUipcMemHandle| {
            let mut address = 0u64;
            cu!(cuIpcOpenMemHandle_v2(&raw mut address, handle, 1u32))
        };
        let own = handle_of(allocate(64 * MIB).unwrap());
        assert_eq!(open(own), CUDA_ERROR_INVALID_CONTEXT);
        let junk = CUipcMemHandle { reserved: [7; 64] };
        assert_eq!(open(junk), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn imports_a_handle() {
    part(|| {
        start();
        let descriptor: usize = std::env::var("DESCRIPTOR").unwrap().parse().unwrap();
        let handle: u64 = new!(cuMemImportFromShareableHandle(descriptor, 1u32));
        pause();
        ok!(cuMemRelease(handle));
    });
}

#[test]
fn exported_memory_outlives_its_exporter() {
    test(|| {
        start();
        let context = context_of_another();
        let handle: u64 = new!(cuMemCreate(64 * MIB, &SHAREABLE, 0u64));
        let descriptor: i32 = new!(cuMemExportToShareableHandle(handle, 1u32, 0u64));
        let copy = inheritable(descriptor);
        let text = copy.to_string();
        let mut other = Actor::with(imports_a_handle, &[("DESCRIPTOR", &text)]);
        assert_eq!(taken(), context + 64);
        [descriptor, copy].into_iter().for_each(close);
        ok!(cuMemRelease(handle));
        assert_eq!(taken(), context + 64);
        other.kill();
        assert_eq!(taken(), 0);
    });
}

#[test]
fn imports_a_pool() {
    part(|| {
        start();
        let descriptor: usize = std::env::var("DESCRIPTOR").unwrap().parse().unwrap();
        let mut ticket = unhex::<64>("TICKET");
        let pool: usize = new!(cuMemPoolImportFromShareableHandle(descriptor, 1u32, 0u64));
        let address: u64 = new!(cuMemPoolImportPointer(pool, ticket.as_mut_ptr()));
        assert_eq!(&read(address), b"hello");
        pause();
    });
}

#[test]
fn a_shared_pool_counts_once() {
    test(|| {
        start();
        let context = context_of_another();
        let mut asked: CUmemPoolProps = zeroed();
        asked.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        asked.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        asked.location = DEVICE;
        let pool: usize = new!(cuMemPoolCreate(&raw const asked));
        let address: u64 = new!(cuMemAllocFromPoolAsync(32 * MIB, pool, 0usize));
        ok!(cuMemcpyHtoD_v2(address, b"hello".as_ptr(), 5usize));
        let descriptor: i32 = new!(cuMemPoolExportToShareableHandle(pool, 1u32, 0u64));
        let mut ticket = [0u8; 64];
        ok!(cuMemPoolExportPointer(ticket.as_mut_ptr(), address));
        let copy = inheritable(descriptor);
        let (copied, ticket) = (copy.to_string(), hex(&ticket));
        let variables = [("DESCRIPTOR", &*copied), ("TICKET", &*ticket)];
        let mut other = Actor::with(imports_a_pool, &variables);
        assert_eq!(taken(), context + 32);
        // Given back, it is still taken.
        [descriptor, copy].into_iter().for_each(close);
        ok!(cuMemFreeAsync(address, 0usize));
        ok!(cuMemPoolDestroy(pool));
        assert_eq!(taken(), context + 32);
        other.finish();
        assert_eq!(taken(), 0);
    });
}
