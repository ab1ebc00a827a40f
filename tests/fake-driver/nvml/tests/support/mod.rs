//! NVML as a program has it, and what the tests of the CUDA driver have.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

#[path = "../../../cuda/tests/support/mod.rs"]
mod cuda;

use libloading::os::unix::Library;
use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::MIB;

pub use cuda::*;

/// NVML, loaded.
pub struct Nvml(pub Library);

impl Nvml {
    /// Loads the library that cargo built for this test.
    pub fn load() -> Nvml {
        Nvml(cuda::open_named("libsoftmig_fake_nvml.so"))
    }

    /// The same, initialized.
    pub fn start() -> Nvml {
        let nvml = Nvml::load();
        assert_eq!(cu!(nvml, nvmlInit_v2()), 0);
        nvml
    }

    /// The address of what the library exports under a name.
    pub fn address(&self, name: &str) -> usize {
        cuda::find(&self.0, name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The handle of a GPU.
    pub fn device(&self, index: u32) -> usize {
        let mut device = 0usize;
        assert_eq!(
            cu!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)),
            0
        );
        device
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        let mut count = 99u32;
        assert_eq!(cu!(self, nvmlDeviceGetCount_v2(&raw mut count)), 0);
        count
    }

    /// The figures of its memory.
    pub fn memory(&self, device: usize) -> nvmlMemory_v2_t {
        let mut memory = nvmlMemory_v2_t {
            version: struct_version::<nvmlMemory_v2_t>(2),
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        assert_eq!(
            cu!(self, nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory)),
            0
        );
        memory
    }

    /// Pids, MiB and instances.
    pub fn processes(&self, device: usize) -> Vec<(u32, u64, u32)> {
        let mut count = 8u32;
        let mut found = [nvmlProcessInfo_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        }; 8];
        let code = cu!(
            self,
            nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, found.as_mut_ptr())
        );
        assert_eq!(code, 0);
        found
            .iter()
            .take(count as usize)
            .map(|one| (one.pid, one.usedGpuMemory / MIB, one.gpuInstanceId))
            .collect()
    }
}

/// A text that a function leaves.
pub fn text(fill: impl FnOnce(*mut u8) -> u32) -> String {
    let mut bytes = [0u8; 96];
    assert_eq!(fill(bytes.as_mut_ptr()), 0);
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
}
