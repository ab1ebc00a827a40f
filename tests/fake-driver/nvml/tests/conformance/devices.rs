//! NVML's beginning and end, and the names of GPUs.

use softmig_driver_sys::nvml::*;

use crate::harness::*;
use crate::{count, first_device, text};

/// The functions that the library knows.
const LISTS: [&str; 2] = [
    include_str!("../../../../../hook/bindings/rows.txt"),
    include_str!("../../../../../hook/bindings/offered.txt"),
];

#[test]
fn every_function_is_exported() {
    test(|| {
        let lines = LISTS.into_iter().flat_map(str::lines);
        for name in lines.filter(|line| line.starts_with("nvml")) {
            assert!(find(name).is_some(), "{name}");
        }
    });
}

#[test]
fn initializations_are_counted() {
    test(|| {
        let code = cu!(nvmlDeviceGetCount_v2(&mut 0u32));
        assert_eq!(code, NVML_ERROR_UNINITIALIZED);
        assert_eq!(cu!(nvmlShutdown()), NVML_ERROR_UNINITIALIZED);
        ok!(nvmlInit_v2());
        ok!(nvmlInit());
        ok!(nvmlInitWithFlags(0u32));
        assert_ne!(count(), 0);
        let codes = [0; 4].map(|_| cu!(nvmlShutdown()));
        assert_eq!(codes, [0, 0, 0, NVML_ERROR_UNINITIALIZED]);
    });
}

fn by_uuid(uuid: &str) -> (u32, usize) {
    let uuid = std::ffi::CString::new(uuid).unwrap();
    let mut device = 0usize;
    let code = cu!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut device));
    (code, device)
}

#[test]
fn a_gpu_is_found_by_all_its_names() {
    test(|| {
        let device = first_device();
        let uuid = text(|to| cu!(nvmlDeviceGetUUID(device, to, 96u32)));
        assert_eq!(by_uuid(&uuid), (0, device));
        let nobody = by_uuid("GPU-00000000-0000-0000-0000-000000000000");
        assert_eq!(nobody.0, NVML_ERROR_NOT_FOUND);
        let mut pci: nvmlPciInfo_t = zeroed();
        ok!(nvmlDeviceGetPciInfo_v3(device, &raw mut pci));
        let mut same = 0usize;
        let bus = pci.busId.as_ptr();
        ok!(nvmlDeviceGetHandleByPciBusId_v2(bus, &raw mut same));
        assert_eq!(same, device);
        let gone = c"0000:99:1f.0".as_ptr();
        let code = cu!(nvmlDeviceGetHandleByPciBusId_v2(gone, &raw mut same));
        assert_eq!(code, NVML_ERROR_NOT_FOUND);
        let code = cu!(nvmlDeviceGetHandleByIndex_v2(99u32, &raw mut same));
        assert_eq!(code, NVML_ERROR_INVALID_ARGUMENT);
        let code = cu!(nvmlDeviceGetName(device, [0u8; 4].as_mut_ptr(), 4u32));
        assert_eq!(code, NVML_ERROR_INSUFFICIENT_SIZE);
    });
}
