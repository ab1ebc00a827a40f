//! NVML by itself: its names, beginning and end, and the names of GPUs.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Answers, Gpu, PLACE_VARIABLE};
use support::{Nvml, cu, on, text};

#[test]
fn all_that_the_hook_knows_is_there() {
    on("all_that_the_hook_knows_is_there", &[Gpu::l40s(0)], |_| {
        let nvml = Nvml::load();
        let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hook/bindings");
        let mut count = 0;
        for list in ["rows.txt", "offered.txt"] {
            let text = std::fs::read_to_string(format!("{lists}/{list}")).unwrap();
            for name in text.lines().filter(|line| line.starts_with("nvml")) {
                assert!(support::find(&nvml.0, name).is_some(), "{name} is missing");
                count += 1;
            }
        }
        assert!(count > 40, "{count} names read");
    });
}

#[test]
fn initializations_are_counted() {
    on("initializations_are_counted", &[Gpu::l40s(0)], |_| {
        let nvml = Nvml::load();
        let mut count = 0u32;
        assert_eq!(
            cu!(nvml, nvmlDeviceGetCount_v2(&raw mut count)),
            NVML_ERROR_UNINITIALIZED
        );
        assert_eq!(cu!(nvml, nvmlShutdown()), NVML_ERROR_UNINITIALIZED);
        assert_eq!(cu!(nvml, nvmlInit_v2()), 0);
        assert_eq!(cu!(nvml, nvmlInit()), 0);
        assert_eq!(cu!(nvml, nvmlInitWithFlags(99u32)), 0);
        assert_eq!(nvml.count(), 1);
        let codes = [0; 4].map(|_| cu!(nvml, nvmlShutdown()));
        assert_eq!(codes, [0, 0, 0, NVML_ERROR_UNINITIALIZED]);
    });
}

#[test]
fn without_a_node_no_driver_is_loaded() {
    on(
        "without_a_node_no_driver_is_loaded",
        &[Gpu::l40s(0)],
        |_| {
            std::fs::remove_file(std::env::var_os(PLACE_VARIABLE).unwrap()).unwrap();
            let nvml = Nvml::load();
            assert_eq!(cu!(nvml, nvmlInit_v2()), NVML_ERROR_DRIVER_NOT_LOADED);
        },
    );
}

#[test]
fn gpus_are_found_by_all_their_names() {
    on(
        "gpus_are_found_by_all_their_names",
        &Gpu::several(4, Gpu::l40s),
        |_| {
            let dir = std::env::var_os(PLACE_VARIABLE).unwrap();
            let dir = std::path::Path::new(&dir).parent().unwrap().to_path_buf();
            std::fs::remove_file(dir.join("nvidia0")).unwrap();
            let nvml = Nvml::start();
            assert_eq!(nvml.count(), 3);
            let device = nvml.device(1);
            assert_eq!(
                text(|out| cu!(nvml, nvmlDeviceGetName(device, out, 96u32))),
                "NVIDIA L40S"
            );
            let uuid = text(|out| cu!(nvml, nvmlDeviceGetUUID(device, out, 96u32)));
            assert_eq!(uuid, Gpu::l40s(2).uuid);
            let (mut minor, mut index, mut same) = (0u32, 0u32, 0usize);
            assert_eq!(
                cu!(nvml, nvmlDeviceGetMinorNumber(device, &raw mut minor)),
                0
            );
            assert_eq!(cu!(nvml, nvmlDeviceGetIndex(device, &raw mut index)), 0);
            assert_eq!((minor, index), (2, 1));
            // SAFETY: a struct of numbers.
            let mut pci: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
            assert_eq!(cu!(nvml, nvmlDeviceGetPciInfo_v3(device, &raw mut pci)), 0);
            assert_eq!((pci.bus, pci.pciDeviceId), (0x23, 0x26b9_10de));
            // SAFETY: NVML ends it with a zero.
            let bus = unsafe { std::ffi::CStr::from_ptr(pci.busId.as_ptr()) };
            assert_eq!(bus, c"00000000:23:00.0");
            for bus in [bus, c"0000:23:00.0", c"23:00.0"] {
                assert_eq!(
                    cu!(
                        nvml,
                        nvmlDeviceGetHandleByPciBusId_v2(bus.as_ptr(), &raw mut same)
                    ),
                    0
                );
                assert_eq!(same, device);
            }
            let uuid = std::ffi::CString::new(uuid).unwrap();
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut same)
                ),
                0
            );
            assert_eq!(same, device);
            // Errors of an H200's driver; the first GPU is fenced off.
            let fenced = std::ffi::CString::new(Gpu::l40s(0).uuid).unwrap();
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetHandleByUUID(fenced.as_ptr(), &raw mut same)
                ),
                NVML_ERROR_NOT_FOUND
            );
            let gone = c"0000:99:00.0".as_ptr();
            assert_eq!(
                cu!(nvml, nvmlDeviceGetHandleByPciBusId_v2(gone, &raw mut same)),
                NVML_ERROR_NOT_FOUND
            );
            assert_eq!(
                cu!(nvml, nvmlDeviceGetHandleByIndex_v2(3u32, &raw mut same)),
                NVML_ERROR_INVALID_ARGUMENT
            );
            assert_eq!(
                cu!(nvml, nvmlDeviceGetIndex(0usize, &raw mut index)),
                NVML_ERROR_INVALID_ARGUMENT
            );
            let mut short = [0u8; 4];
            let code = cu!(nvml, nvmlDeviceGetName(device, short.as_mut_ptr(), 4u32));
            assert_eq!(code, NVML_ERROR_INSUFFICIENT_SIZE);
            assert_eq!(
                text(|out| cu!(nvml, nvmlSystemGetNVMLVersion(out, 96u32))),
                "13.580.159.04"
            );
        },
    );
}

#[test]
fn each_answer_that_a_gpu_cannot_give_has_its_own_error() {
    let mut to_be_divided = Gpu::a100(0);
    to_be_divided.mig_pending = Some(true);
    let gpus = [
        to_be_divided,
        Gpu::l40s(1).answering(Answers::NoMemoryV2),
        Gpu::l40s(2).answering(Answers::Nothing),
    ];
    on(
        "each_answer_that_a_gpu_cannot_give_has_its_own_error",
        &gpus,
        |_| {
            let nvml = Nvml::start();
            assert_eq!(nvml.count(), 3);
            let mut lost = 0usize;
            assert_eq!(
                cu!(nvml, nvmlDeviceGetHandleByIndex_v2(2u32, &raw mut lost)),
                NVML_ERROR_GPU_IS_LOST
            );
            let old = nvml.device(1);
            // SAFETY: a struct of numbers.
            let mut memory: nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
            memory.version = struct_version::<nvmlMemory_v2_t>(2);
            assert_eq!(
                cu!(nvml, nvmlDeviceGetMemoryInfo_v2(old, &raw mut memory)),
                NVML_ERROR_NOT_SUPPORTED
            );
            let (mut mode, mut pending) = (9u32, 9u32);
            let first = nvml.device(0);
            let code = cu!(
                nvml,
                nvmlDeviceGetMigMode(first, &raw mut mode, &raw mut pending)
            );
            assert_eq!((code, mode, pending), (0, 0, 1));
        },
    );
}
