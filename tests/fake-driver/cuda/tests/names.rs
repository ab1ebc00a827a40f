//! The library's exports, and `cuGetProcAddress`'s answers.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::ffi::CString;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu};
use support::{Cuda, cu, described, on};

/// The driver's answer for a name: the code, the address and the reason.
fn ask(cuda: &Cuda, name: &str, version: i32, flags: u64) -> (u32, usize, u32) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (1usize, 9u32);
    let code = cu!(
        cuda,
        cuGetProcAddress_v2(
            name.as_ptr(),
            &raw mut address,
            version,
            flags,
            &raw mut status
        )
    );
    (code, address, status)
}

#[test]
fn all_that_the_hook_knows_is_there() {
    on(
        "all_that_the_hook_knows_is_there",
        &[Gpu::l40s(0)],
        |cuda| {
            let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hook/bindings");
            let mut count = 0;
            for list in ["rows.txt", "offered.txt"] {
                let text = std::fs::read_to_string(format!("{lists}/{list}")).unwrap();
                for name in text.lines().filter(|line| line.starts_with("cu")) {
                    assert!(cuda.find(name).is_some(), "{name} is missing");
                    count += 1;
                }
            }
            assert!(count > 150, "{count} names read");
        },
    );
}

#[test]
fn answers_are_the_exported_addresses() {
    on(
        "answers_are_the_exported_addresses",
        &[Gpu::l40s(0)],
        |cuda| {
            // Each as driver 580.159 answers: name, version, flags, and what is exported there.
            for (name, version, flags, exported) in [
                ("cuInit", 2000, 0, "cuInit"),
                ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
                ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
                ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
                ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
                ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
                ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
                ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
                ("cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"),
                ("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"),
                ("cuLaunchKernel", 6050, 0, "cuLaunchKernel"),
                ("cuLaunchKernel", 7000, 1, "cuLaunchKernel"),
                ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
                ("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"),
                ("cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2"),
                ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
                (
                    "cuStreamBeginCapture",
                    10010,
                    2,
                    "cuStreamBeginCapture_v2_ptsz",
                ),
                ("cuGraphAddNode", 12020, 0, "cuGraphAddNode"),
                ("cuGraphAddNode", 12030, 2, "cuGraphAddNode_v2"),
                ("cuGetProcAddress", 11080, 0, "cuGetProcAddress"),
                ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
                ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"),
                ("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"),
            ] {
                let answer = ask(&cuda, name, version, flags);
                assert_eq!(
                    answer,
                    (0, cuda.address(exported), 0),
                    "{name} {version} {flags}"
                );
            }
        },
    );
}

/// All that are versions of CUDA: no minor one is above 9.
fn versions() -> impl Iterator<Item = i32> {
    (2..=13)
        .flat_map(|major| (0..=9).map(move |minor| major * 1000 + minor * 10))
        .filter(|version| *version <= 13_050)
}

#[test]
fn every_export_is_answered_with_its_own_address() {
    // The newest driver, so that the newest forms are answers.
    described(
        "every_export_is_answered_with_its_own_address",
        Description::new(&[Gpu::l40s(0)]).cuda(13_050),
        |_| {},
        |cuda| {
            let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hook/bindings");
            let mut reached = std::collections::BTreeSet::new();
            let mut exported = Vec::new();
            for list in ["rows.txt", "offered.txt"] {
                let text = std::fs::read_to_string(format!("{lists}/{list}")).unwrap();
                for name in text.lines().filter(|line| line.starts_with("cu")) {
                    exported.push(name.to_string());
                    let base = name.trim_end_matches("_ptsz");
                    let base = base.split("_v").next().unwrap();
                    for version in versions() {
                        for flags in 0..=2u64 {
                            let (code, address, status) = ask(&cuda, base, version, flags);
                            assert_eq!(code, 0);
                            assert_eq!(status == 0, address != 0);
                            reached.insert(address);
                        }
                    }
                }
            }
            for name in exported {
                assert!(
                    reached.contains(&cuda.address(&name)),
                    "{name} is never the answer"
                );
            }
        },
    );
}

#[test]
fn a_function_that_is_not_found_has_a_reason() {
    on(
        "a_function_that_is_not_found_has_a_reason",
        &[Gpu::l40s(0)],
        |cuda| {
            let too_early = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            assert_eq!(ask(&cuda, "cuMemAllocAsync", 11010, 0), (0, 0, too_early));
            assert_eq!(ask(&cuda, "cuStreamQuery", 6050, 2), (0, 0, too_early));
            assert_eq!(
                ask(&cuda, "cuNonsense", 12000, 0),
                (0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            );
            assert_eq!(
                ask(&cuda, "cuMemAlloc_v2", 12000, 0),
                (0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            );
            // Later than the driver, or no such kind of stream: an error, and nothing written.
            assert_eq!(
                ask(&cuda, "cuMemAlloc", 13010, 0),
                (CUDA_ERROR_INVALID_VALUE, 1, 9)
            );
            assert_eq!(
                ask(&cuda, "cuMemAlloc", 12000, 4),
                (CUDA_ERROR_INVALID_VALUE, 1, 9)
            );
            let mut address = 1usize;
            let code = cu!(
                cuda,
                cuGetProcAddress(
                    c"cuMemAllocAsync".as_ptr(),
                    &raw mut address,
                    11010i32,
                    0u64
                )
            );
            assert_eq!((code, address), (CUDA_ERROR_NOT_FOUND, 0));
            let code = cu!(
                cuda,
                cuGetProcAddress(
                    c"cuMemAllocAsync".as_ptr(),
                    &raw mut address,
                    11020i32,
                    0u64
                )
            );
            assert_eq!((code, address), (0, cuda.address("cuMemAllocAsync")));
        },
    );
}

#[test]
fn forms_of_the_future_work_and_have_no_name() {
    on(
        "forms_of_the_future_work_and_have_no_name",
        &[Gpu::l40s(0)],
        |cuda| {
            cuda.start();
            cuda.node
                .set_future_forms(&["cuMemAlloc", "cuLaunchKernel"]);
            let (code, address, status) = ask(&cuda, "cuMemAlloc", 12000, 0);
            assert_eq!((code, status), (0, 0));
            assert_ne!(address, cuda.address("cuMemAlloc_v2"));
            assert_ne!(address, cuda.address("cuMemAlloc"));
            // SAFETY: a form of this function, which takes the same.
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> u32 =
                unsafe { std::mem::transmute(address) };
            let mut memory = 0u64;
            // SAFETY: as above.
            assert_eq!(unsafe { allocate(&raw mut memory, 4 << 20) }, 0);
            assert_eq!(cu!(cuda, cuMemFree_v2(memory)), 0);

            let (_, address, _) = ask(&cuda, "cuLaunchKernel", 12000, 0);
            type Launch = unsafe extern "C" fn(
                usize,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                usize,
                *mut *mut u64,
                usize,
            ) -> u32;
            // SAFETY: as above.
            let launch: Launch = unsafe { std::mem::transmute(address) };
            let kernel = cuda.kernel("kernel busy argument", "busy");
            let mut time = 5u64;
            let mut arguments = [&raw mut time];
            // SAFETY: as above. The argument comes after ten others, so it is on the stack.
            let code = unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments.as_mut_ptr(), 0) };
            assert_eq!(code, 0);

            cuda.node.set_future_forms(&[]);
            assert_eq!(
                ask(&cuda, "cuMemAlloc", 12000, 0).1,
                cuda.address("cuMemAlloc_v2")
            );
        },
    );
}

#[repr(C)]
struct Table {
    bytes: usize,
    retain: unsafe extern "C" fn(*mut usize, i32) -> u32,
    release: extern "C" fn(i32) -> u32,
    is_there: unsafe extern "C" fn(i32, *mut i32) -> u32,
    load: unsafe extern "C" fn(*mut usize, *const u8) -> u32,
}

#[test]
fn a_private_table_makes_contexts() {
    on("a_private_table_makes_contexts", &[Gpu::l40s(0)], |cuda| {
        let mut table: *const Table = std::ptr::null();
        let name = *b"fakecudatable\0\0\x01";
        assert_eq!(
            cu!(
                cuda,
                cuGetExportTable(&raw mut table, b"0123456789abcdef".as_ptr())
            ),
            CUDA_ERROR_INVALID_VALUE
        );
        assert_eq!(
            cu!(cuda, cuGetExportTable(&raw mut table, name.as_ptr())),
            0
        );
        // SAFETY: the driver gave a table of this kind.
        let table = unsafe { &*table };
        assert_eq!(table.bytes, size_of::<Table>());
        let (mut context, mut there) = (0usize, 0i32);
        // SAFETY: as above.
        let code = unsafe { (table.retain)(&raw mut context, 0) };
        assert_eq!(code, CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cu!(cuda, cuInit(0u32)), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { (table.retain)(&raw mut context, 0) }, 0);
        assert_eq!(cuda.node.all_calls("cuDevicePrimaryCtxRetain"), 0);
        assert_eq!(cu!(cuda, cuCtxSetCurrent(context)), 0);
        cuda.allocate(1).unwrap();
        let mut module = 0usize;
        // SAFETY: as above, and a text that ends in a zero byte.
        let code = unsafe { (table.load)(&raw mut module, c"code 1".as_ptr().cast()) };
        assert_eq!(code, 0);
        assert_eq!(cu!(cuda, cuModuleUnload(module)), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { (table.is_there)(0, &raw mut there) }, 0);
        assert_eq!(there, 1);
        assert_eq!((table.release)(0), 0);
        assert_eq!(cuda.node.usage().unwrap()[0].used, 0);
    });
}
