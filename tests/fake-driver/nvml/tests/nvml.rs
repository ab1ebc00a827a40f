//! What NVML tells, beside what the CUDA driver of the same node gives.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../cuda/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use libloading::os::unix::Library;
use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Description, Gpu, MIB, PLACE_VARIABLE};
use support::{Actor, Cuda, cu, described, on, role, say, wait_to_finish};

struct Nvml(Library);

impl Nvml {
    fn load() -> Nvml {
        Nvml(support::open_named("libsoftmig_fake_nvml.so"))
    }

    fn start() -> Nvml {
        let nvml = Nvml::load();
        assert_eq!(cu!(nvml, nvmlInit_v2()), 0);
        nvml
    }

    fn address(&self, name: &str) -> usize {
        support::find(&self.0, name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn device(&self, index: u32) -> usize {
        let mut device = 0usize;
        assert_eq!(
            cu!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)),
            0
        );
        device
    }

    fn count(&self) -> u32 {
        let mut count = 99u32;
        assert_eq!(cu!(self, nvmlDeviceGetCount_v2(&raw mut count)), 0);
        count
    }

    fn memory(&self, device: usize) -> nvmlMemory_v2_t {
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
    fn processes(&self, device: usize) -> Vec<(u32, u64, u32)> {
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

fn text(fill: impl FnOnce(*mut u8) -> u32) -> String {
    let mut bytes = [0u8; 96];
    assert_eq!(fill(bytes.as_mut_ptr()), 0);
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned()
}

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
            // What an H200's driver says to what is not there; the first GPU is fenced off.
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
fn part_with_memory() {
    role("part_with_memory", |cuda| {
        cuda.start();
        cuda.allocate(64 << 20).unwrap();
        let mut managed = 0u64;
        assert_eq!(
            cu!(
                cuda,
                cuMemAllocManaged(&raw mut managed, 8usize << 20, 1u32)
            ),
            0
        );
        say("ready");
        wait_to_finish();
    });
}

#[test]
fn memory_and_processes_are_those_of_the_accounts() {
    on(
        "memory_and_processes_are_those_of_the_accounts",
        &[Gpu::h200(0)],
        |cuda| {
            let nvml = Nvml::start();
            let device = nvml.device(0);
            assert_eq!(nvml.processes(device), []);
            let mut count = 0u32;
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, 0usize)
                ),
                0
            );
            cuda.start();
            let mut other = Actor::start("part_with_memory", |_| {});
            other.hears();
            let both = vec![
                (std::process::id(), 518, u32::MAX),
                (other.pid(), 518 + 64, u32::MAX),
            ];
            assert_eq!(nvml.processes(device), both);

            let memory = nvml.memory(device);
            assert_eq!(memory.total, 143_771 * MIB);
            assert_eq!(memory.reserved.div_ceil(MIB), 616);
            // Managed memory is the device's, but no process's.
            assert_eq!(memory.used, (2 * 518 + 64 + 8) * MIB);
            assert_eq!(memory.used, cuda.node.usage().unwrap()[0].used);
            assert_eq!(memory.free, memory.total - memory.reserved - memory.used);
            let mut first = nvmlMemory_t {
                total: 0,
                free: 0,
                used: 0,
            };
            assert_eq!(
                cu!(nvml, nvmlDeviceGetMemoryInfo(device, &raw mut first)),
                0
            );
            assert_eq!(
                (first.free, first.used),
                (memory.free, memory.used + memory.reserved)
            );
            let mut wrong = nvmlMemory_v2_t {
                version: 1,
                ..memory
            };
            assert_eq!(
                cu!(nvml, nvmlDeviceGetMemoryInfo_v2(device, &raw mut wrong)),
                NVML_ERROR_FUNCTION_NOT_FOUND
            );

            // Only asked how many there are.
            for name in [
                "nvmlDeviceGetComputeRunningProcesses",
                "nvmlDeviceGetComputeRunningProcesses_v2",
                "nvmlDeviceGetComputeRunningProcesses_v3",
            ] {
                let mut count = 0u32;
                // SAFETY: NVML exports it so.
                let ask: unsafe extern "C" fn(usize, *mut u32, usize) -> u32 =
                    unsafe { std::mem::transmute(nvml.address(name)) };
                // SAFETY: as above.
                let code = unsafe { ask(device, &raw mut count, 0) };
                assert_eq!((code, count), (NVML_ERROR_INSUFFICIENT_SIZE, 2), "{name}");
            }
            let mut count = 8u32;
            let mut old = [nvmlProcessInfo_v1_t {
                pid: 0,
                usedGpuMemory: 0,
            }; 8];
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetComputeRunningProcesses(device, &raw mut count, old.as_mut_ptr())
                ),
                0
            );
            assert_eq!(
                (count, old[1].pid, old[1].usedGpuMemory),
                (2, other.pid(), 582 * MIB)
            );
            for draws in [
                cu!(
                    nvml,
                    nvmlDeviceGetGraphicsRunningProcesses(device, &raw mut count, old.as_mut_ptr())
                ),
                cu!(
                    nvml,
                    nvmlDeviceGetMPSComputeRunningProcesses(
                        device,
                        &raw mut count,
                        old.as_mut_ptr()
                    )
                ),
            ] {
                assert_eq!((draws, count), (0, 0));
            }

            let mut list = nvmlProcessDetailList_t {
                version: struct_version::<nvmlProcessDetailList_t>(1),
                mode: 0,
                numProcArrayEntries: 0,
                procArray: std::ptr::null_mut(),
            };
            let code = cu!(
                nvml,
                nvmlDeviceGetRunningProcessDetailList(device, &raw mut list)
            );
            assert_eq!(
                (code, list.numProcArrayEntries),
                (NVML_ERROR_INSUFFICIENT_SIZE, 2)
            );
            // SAFETY: structs of numbers.
            let mut details: [nvmlProcessDetail_v1_t; 2] = unsafe { std::mem::zeroed() };
            list.procArray = details.as_mut_ptr();
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetRunningProcessDetailList(device, &raw mut list)
                ),
                0
            );
            assert_eq!(
                (details[1].pid, details[1].usedGpuMemory),
                (other.pid(), 582 * MIB)
            );
            list.mode = 9;
            let code = cu!(
                nvml,
                nvmlDeviceGetRunningProcessDetailList(device, &raw mut list)
            );
            assert_eq!(code, NVML_ERROR_INVALID_ARGUMENT);
            list.version = 3;
            let code = cu!(
                nvml,
                nvmlDeviceGetRunningProcessDetailList(device, &raw mut list)
            );
            assert_eq!(code, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);

            other.kill();
            assert_eq!(
                nvml.processes(device),
                [(std::process::id(), 518, u32::MAX)]
            );
        },
    );
}

#[test]
fn parts_of_a_divided_gpu_have_handles_and_accounts() {
    let gpu = Gpu::a100_divided(0, &["3g.20gb", "1g.5gb"]);
    let parts = gpu.instances().to_vec();
    let second = parts[1].uuid.clone();
    described(
        "parts_of_a_divided_gpu_have_handles_and_accounts",
        Description::new(&[gpu]),
        |command| {
            command.env("CUDA_VISIBLE_DEVICES", second);
        },
        |cuda| {
            cuda.start();
            let nvml = Nvml::start();
            assert_eq!(nvml.count(), 1);
            let device = nvml.device(0);
            let (mut mode, mut pending, mut most, mut is_part) = (9u32, 9u32, 0u32, 9u32);
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetMigMode(device, &raw mut mode, &raw mut pending)
                ),
                0
            );
            assert_eq!(
                cu!(nvml, nvmlDeviceGetMaxMigDeviceCount(device, &raw mut most)),
                0
            );
            assert_eq!((mode, pending, most), (1, 1, 7));
            let (mut part, mut back) = (0usize, 0usize);
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetMigDeviceHandleByIndex(device, 1u32, &raw mut part)
                ),
                0
            );
            let code = cu!(
                nvml,
                nvmlDeviceGetMigDeviceHandleByIndex(device, 2u32, &raw mut back)
            );
            assert_eq!(code, NVML_ERROR_NOT_FOUND);
            assert_eq!(
                cu!(nvml, nvmlDeviceIsMigDeviceHandle(part, &raw mut is_part)),
                0
            );
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part, &raw mut back)
                ),
                0
            );
            assert_eq!((is_part, back), (1, device));
            let uuid = text(|out| cu!(nvml, nvmlDeviceGetUUID(part, out, 96u32)));
            assert_eq!(uuid, parts[1].uuid);
            let name = text(|out| cu!(nvml, nvmlDeviceGetName(part, out, 96u32)));
            assert_eq!(name, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
            // SAFETY: a struct of numbers.
            let mut attributes: nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
            assert_eq!(
                cu!(nvml, nvmlDeviceGetAttributes_v2(part, &raw mut attributes)),
                0
            );
            assert_eq!(
                (attributes.multiprocessorCount, attributes.memorySizeMB),
                (14, 4864)
            );
            let code = cu!(
                nvml,
                nvmlDeviceGetAttributes_v2(device, &raw mut attributes)
            );
            assert_eq!(code, NVML_ERROR_NOT_SUPPORTED);
            let mine = [(std::process::id(), 424, parts[1].id)];
            assert_eq!(nvml.processes(device), mine);
            assert_eq!(nvml.processes(part), mine);
            let memory = nvml.memory(part);
            assert_eq!((memory.total, memory.used), (4864 * MIB, 424 * MIB));
            assert_eq!(nvml.memory(device).used, 424 * MIB);
        },
    );
}

fn rates(nvml: &Nvml, device: usize) -> u32 {
    let mut rates = nvmlUtilization_t {
        gpu: 999,
        memory: 999,
    };
    assert_eq!(
        cu!(nvml, nvmlDeviceGetUtilizationRates(device, &raw mut rates)),
        0
    );
    rates.gpu
}

#[test]
fn work_shows_in_rates_samples_and_accounts() {
    let description = Description::new(&[Gpu::l40s(0)]).driven().accounting();
    described(
        "work_shows_in_rates_samples_and_accounts",
        description,
        |_| {},
        |cuda: Cuda| {
            cuda.node.advance(Duration::from_secs(100)).unwrap();
            cuda.start();
            let nvml = Nvml::start();
            let device = nvml.device(0);
            assert_eq!(rates(&nvml, device), 0);
            let mut count = 8u32;
            // SAFETY: structs of numbers.
            let mut samples: [nvmlProcessUtilizationSample_t; 8] = unsafe { std::mem::zeroed() };
            let code = cu!(
                nvml,
                nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &raw mut count, 0u64)
            );
            assert_eq!(code, NVML_ERROR_NOT_FOUND);

            let kernel = cuda.kernel("kernel quarter 250000000", "quarter");
            assert_eq!(cuda.launch(kernel, 0), 0);
            cuda.node.advance(Duration::from_secs(1)).unwrap();
            assert_eq!(rates(&nvml, device), 25);
            count = 0;
            let code = cu!(
                nvml,
                nvmlDeviceGetProcessUtilization(device, 0usize, &raw mut count, 0u64)
            );
            assert_eq!((code, count), (NVML_ERROR_INSUFFICIENT_SIZE, 72));
            let code = cu!(
                nvml,
                nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &raw mut count, 0u64)
            );
            assert_eq!((code, count), (0, 1));
            assert_eq!(
                (samples[0].pid, samples[0].smUtil),
                (std::process::id(), 25)
            );
            let seen = samples[0].timeStamp;
            assert_eq!(seen, 101_000_000);
            count = 8;
            let code = cu!(
                nvml,
                nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &raw mut count, seen)
            );
            assert_eq!(code, NVML_ERROR_NOT_FOUND);

            // SAFETY: structs of numbers.
            let mut entries: [nvmlProcessUtilizationInfo_v1_t; 8] = unsafe { std::mem::zeroed() };
            let mut list = nvmlProcessesUtilizationInfo_t {
                version: struct_version::<nvmlProcessesUtilizationInfo_t>(1),
                processSamplesCount: 8,
                lastSeenTimeStamp: 0,
                procUtilArray: entries.as_mut_ptr(),
            };
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut list)
                ),
                0
            );
            assert_eq!((list.processSamplesCount, entries[0].smUtil), (1, 25));

            let mut mode = 9u32;
            assert_eq!(
                cu!(nvml, nvmlDeviceGetAccountingMode(device, &raw mut mode)),
                0
            );
            assert_eq!(mode, NVML_FEATURE_ENABLED);
            let (mut pids, mut count) = ([0u32; 8], 8u32);
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetAccountingPids(device, &raw mut count, pids.as_mut_ptr())
                ),
                0
            );
            assert_eq!((count, pids[0]), (1, std::process::id()));
            // SAFETY: a struct of numbers.
            let mut account: nvmlAccountingStats_t = unsafe { std::mem::zeroed() };
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetAccountingStats(device, pids[0], &raw mut account)
                ),
                0
            );
            assert_eq!(
                (
                    account.maxMemoryUsage / MIB,
                    account.isRunning,
                    account.time
                ),
                (372, 1, 0)
            );
            let code = cu!(
                nvml,
                nvmlDeviceGetAccountingStats(device, 1u32, &raw mut account)
            );
            assert_eq!(code, NVML_ERROR_NOT_FOUND);
        },
    );
}

#[test]
fn without_accounting_there_are_no_accounts() {
    on(
        "without_accounting_there_are_no_accounts",
        &[Gpu::h200(0)],
        |cuda| {
            cuda.start();
            let nvml = Nvml::start();
            let device = nvml.device(0);
            let (mut pids, mut count) = ([0u32; 8], 8u32);
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetAccountingPids(device, &raw mut count, pids.as_mut_ptr())
                ),
                0
            );
            assert_eq!(count, 0);
            let mut mode = 9u32;
            assert_eq!(
                cu!(
                    nvml,
                    nvmlDeviceGetMigMode(device, &raw mut mode, &raw mut count)
                ),
                0
            );
            assert_eq!((mode, count), (0, 0));
            assert_eq!(cuda.node.all_calls("nvmlDeviceGetMigMode"), 1);
        },
    );
}
