//! The driver's functions by name, version and kind of stream.

use std::ffi::CString;

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Gpu};

use crate::harness::*;

/// The functions that the library knows.
const LISTS: [&str; 2] = [
    include_str!("../../../../../hook/bindings/rows.txt"),
    include_str!("../../../../../hook/bindings/offered.txt"),
];

fn known() -> impl Iterator<Item = &'static str> {
    let lines = LISTS.into_iter().flat_map(str::lines);
    lines.filter(|line| line.starts_with("cu"))
}

/// The driver's answer for a name: the code, the address and the reason.
fn ask(name: &str, version: i32, flags: u64) -> (u32, usize, u32) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (1usize, 9u32);
    let (name, to, why) = (name.as_ptr(), &raw mut address, &raw mut status);
    let code = cu!(cuGetProcAddress_v2(name, to, version, flags, why));
    (code, address, status)
}

/// Of the newest driver, so that the newest forms are answers.
#[test]
fn every_function_is_exported_and_answered() {
    let description = Description::new(&[Gpu::h200(0)]).cuda(13_050);
    fake(&description, || {
        assert!(known().count() > 150);
        let mut reached = std::collections::BTreeSet::new();
        let versions =
            (2..=13).flat_map(|major| (0..=9).map(move |minor| major * 1000 + minor * 10));
        let versions: Vec<i32> = versions.filter(|version| *version <= 13_050).collect();
        for name in known() {
            let base = name.trim_end_matches("_ptsz").split("_v").next().unwrap();
            for version in &versions {
                reached.extend((0..=2).map(|flags| ask(base, *version, flags).1));
            }
        }
        for name in known() {
            assert!(reached.contains(&address(name)), "{name}");
        }
    });
}

#[test]
fn answers_are_the_exported_addresses() {
    test(|| {
        for (name, version, flags, exported) in [
            ("cuInit", 2000, 0, "cuInit"),
            ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
            ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
            ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
            ("cuMemAlloc", 12000, 2, "cuMemAlloc_v2"),
            ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
            ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
            ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
            ("cuLaunchKernel", 6050, 0, "cuLaunchKernel"),
            ("cuLaunchKernel", 7000, 1, "cuLaunchKernel"),
            ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
            ("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"),
            ("cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2"),
            ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
            ("cuGraphAddNode", 12020, 0, "cuGraphAddNode"),
            ("cuGraphAddNode", 12030, 2, "cuGraphAddNode_v2"),
            ("cuGetProcAddress", 11080, 0, "cuGetProcAddress"),
            ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
            ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"),
        ] {
            let answer = ask(name, version, flags);
            assert_eq!(answer, (0, address(exported), 0), "{name} {version}");
        }
    });
}

#[test]
fn a_function_that_is_not_found_has_a_reason() {
    test(|| {
        let early = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        let unknown = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        assert_eq!(ask("cuMemAllocAsync", 11010, 0), (0, 0, early));
        assert_eq!(ask("cuStreamQuery", 6050, 2), (0, 0, early));
        assert_eq!(ask("cuNonsense", 12000, 0), (0, 0, unknown));
        assert_eq!(ask("cuMemAlloc_v2", 12000, 0), (0, 0, unknown));
        // Later than the driver, or no such kind of stream: an error, and nothing written.
        let invalid = (CUDA_ERROR_INVALID_VALUE, 1, 9);
        assert_eq!(ask("cuMemAlloc", 99000, 0), invalid);
        assert_eq!(ask("cuMemAlloc", 12000, 4), invalid);
    });
}
