//! Memory and processes as NVML tells them, beside what the CUDA driver of the same node gives.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Description, Gpu, MIB};
use support::{Actor, Nvml, cu, described, on, role, say, text, wait_to_finish};

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

#[test]
fn memory_without_a_context_shows_no_process() {
    on(
        "memory_without_a_context_shows_no_process",
        &[Gpu::h200(0)],
        |cuda| {
            let nvml = Nvml::start();
            let device = nvml.device(0);
            assert_eq!(cu!(cuda, cuInit(0u32)), 0);
            let mut handle = 0u64;
            let code = cu!(
                cuda,
                cuMemCreate(&raw mut handle, 64usize << 20, &support::PINNED, 0u64)
            );
            assert_eq!(code, 0);
            // As on an H200.
            assert_eq!(nvml.memory(device).used, 64 * MIB);
            assert_eq!(nvml.processes(device), []);
            cuda.start();
            let whole = [(std::process::id(), 518 + 64, u32::MAX)];
            assert_eq!(nvml.processes(device), whole);
        },
    );
}
