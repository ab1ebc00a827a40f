//! Contexts: what they take, what makes them grow, and how they end.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu};

use crate::harness::*;

/// MiB of stacks beyond those that a context has from the beginning, for all threads that the device runs at once.
pub fn stacks(bytes: i64) -> i64 {
    let attribute = |which: u32| -> i64 {
        let value: i32 = new!(cuDeviceGetAttribute(which, 0i32));
        value.into()
    };
    let processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    ((bytes - 1024) * processors * threads) >> 20
}

#[test]
fn each_context_takes_as_much_and_gives_it_back() {
    test(|| {
        start();
        let other: usize = new!(cuCtxCreate_v2(0u32, 0i32));
        let own = taken();
        assert!(own > 200, "{own}");
        let more: usize = new!(cuCtxCreate_v2(0u32, 0i32));
        // A real context takes no whole MiB.
        let both = taken();
        assert!((2 * own - 1..=2 * own).contains(&both), "{own}, {both}");
        allocate(100 * MIB).unwrap();
        assert_eq!(taken(), both + 100);
        ok!(cuCtxDestroy_v2(more));
        ok!(cuCtxSetCurrent(other));
        assert_eq!(taken(), own);
    });
}

#[test]
fn stacks_make_the_context_grow() {
    test(|| {
        start();
        let deep = kernel("deep");
        let mut frame = 0i32;
        let attribute = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        ok!(cuFuncGetAttribute(&raw mut frame, attribute, deep));
        assert_eq!(frame, 4096);
        let before = taken();
        let limit = |bytes: usize| cu!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes));
        assert_eq!(launch(deep, 0, [0, 0]), 0);
        ok!(cuCtxSynchronize());
        assert_eq!(taken() - before, stacks(4096));
        assert_eq!(limit(16384), 0);
        assert_eq!(taken() - before, stacks(16384));
        assert_eq!(limit(1024), 0);
        assert_eq!(taken() - before, 0);
    });
}

#[test]
fn stacks_that_do_not_fit_are_refused() {
    test(|| {
        start();
        let all = allocate(info().0 - 256 * MIB).unwrap();
        let limit = |bytes: usize| cu!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes));
        assert_eq!(limit(262_144), CUDA_ERROR_OUT_OF_MEMORY);
        let mut stack = 0usize;
        ok!(cuCtxGetLimit(&raw mut stack, CU_LIMIT_STACK_SIZE));
        assert_eq!(stack, 1024);
        let deep = kernel("deep");
        assert_eq!(launch(deep, 0, [0, 0]), CUDA_ERROR_OUT_OF_MEMORY);
        ok!(cuMemFree_v2(all));
        assert_eq!(launch(deep, 0, [0, 0]), 0);
    });
}

#[test]
fn memory_of_many_streams_stays() {
    test(|| {
        start();
        let streams: Vec<usize> = (0..256).map(|_| stream()).collect();
        let grown = taken();
        assert!(grown > 0);
        for stream in streams {
            ok!(cuStreamDestroy_v2(stream));
        }
        assert_eq!(taken(), grown);
    });
}

#[test]
fn a_reset_ends_the_primary_context_for_all() {
    test(|| {
        let context = start();
        allocate(64 * MIB).unwrap();
        let other: usize = new!(cuCtxCreate_v2(0u32, 0i32));
        allocate(64 * MIB).unwrap();
        ok!(cuCtxSetCurrent(context));
        ok!(cuDevicePrimaryCtxReset_v2(0i32));
        // Other contexts stay, and so does who wanted this one.
        assert_eq!(allocate(1), Err(CUDA_ERROR_CONTEXT_IS_DESTROYED));
        ok!(cuDevicePrimaryCtxRelease_v2(0i32));
        ok!(cuCtxSetCurrent(other));
        allocate(1).unwrap();
        start();
        allocate(1).unwrap();
    });
}

#[test]
fn a_context_ends_with_the_last_that_holds_it() {
    test(|| {
        let primary = start();
        let context: usize = new!(cuCtxCreate_v2(0u32, 0i32));
        let again: usize = new!(cuCtxAttach(0u32));
        assert_eq!(again, context);
        let held = taken();
        ok!(cuCtxDetach(context));
        assert_eq!(taken(), held);
        ok!(cuCtxDetach(context));
        ok!(cuCtxSetCurrent(primary));
        assert_eq!(taken(), 0);
    });
}

#[test]
fn memory_of_a_green_context_is_the_primary_ones() {
    test(|| {
        start();
        let mut resource = [0u32; 64];
        ok!(cuDeviceGetDevResource(0i32, resource.as_mut_ptr(), 1u32));
        let of = resource.as_mut_ptr();
        let description: usize = new!(cuDevResourceGenerateDesc(of, 1u32));
        let mut green = 0usize;
        let mut create =
            |flags: u32| cu!(cuGreenCtxCreate(&raw mut green, description, 0i32, flags));
        assert_eq!(create(0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(create(1), 0);
        let before = taken();
        let mut context = 0usize;
        ok!(cuCtxFromGreenCtx(&raw mut context, green));
        ok!(cuCtxSetCurrent(context));
        let memory = allocate(64 * MIB).unwrap();
        assert_eq!(taken() - before, 64);
        ok!(cuMemFree_v2(memory));
        ok!(cuGreenCtxDestroy(green));
        start();
    });
}

#[test]
fn modules_take_memory_until_they_are_unloaded() {
    // The size of a module is in a line that only the fake driver reads.
    fake(&Description::new(&[Gpu::h200(0)]), || {
        start();
        let text = c"kernel step 1000\nglobal table 8388608\ncode 4194304\n";
        let module: usize = new!(cuModuleLoadData(text.as_ptr()));
        // Code is left for later.
        assert_eq!(taken(), 8);
        let _: usize = new!(cuModuleGetFunction(module, c"step".as_ptr()));
        assert_eq!(taken(), 12);
        let (mut table, mut bytes) = (0u64, 0usize);
        let name = c"table".as_ptr();
        ok!(cuModuleGetGlobal_v2(
            &raw mut table,
            &raw mut bytes,
            module,
            name
        ));
        assert_eq!(bytes, 8 * MIB);
        assert_eq!(cu!(cuMemFree_v2(table)), CUDA_ERROR_INVALID_VALUE);
        ok!(cuModuleUnload(module));
        assert_eq!(taken(), 0);
    });
}
