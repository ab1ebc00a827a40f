//! Memory and processes as NVML tells them, beside what CUDA gives.

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Description, Gpu};

use crate::harness::*;
use crate::{count, device, first_device, text};

/// The figures of a GPU's memory.
fn memory(device: usize) -> nvmlMemory_v2_t {
    let mut memory: nvmlMemory_v2_t = zeroed();
    memory.version = struct_version::<nvmlMemory_v2_t>(2);
    ok!(nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory));
    memory
}

fn used(device: usize) -> i64 {
    (memory(device).used >> 20) as i64
}

/// Pids, MiB and instances.
fn processes(device: usize) -> Vec<(u32, i64, u32)> {
    let mut count = 8u32;
    let mut found: [nvmlProcessInfo_t; 8] = zeroed();
    let (of, to) = (&raw mut count, found.as_mut_ptr());
    ok!(nvmlDeviceGetComputeRunningProcesses_v3(device, of, to));
    let found = found.iter().take(count as usize);
    let row = |one: &nvmlProcessInfo_t| {
        let mib = one.usedGpuMemory >> 20;
        (one.pid, mib as i64, one.gpuInstanceId)
    };
    found.map(row).collect()
}

fn of_process(device: usize, pid: u32) -> Option<i64> {
    let all = processes(device);
    let found = all.iter().find(|(its, ..)| *its == pid);
    found.map(|(_, mib, _)| *mib)
}

#[test]
fn has_memory() {
    part(|| {
        start();
        pause();
        allocate(64 * MIB).unwrap();
        pause();
    });
}

#[test]
fn a_process_has_its_context_and_its_memory() {
    test(|| {
        let device = first_device();
        let me = std::process::id();
        assert_eq!(of_process(device, me), None);
        start();
        let mut other = Actor::start(has_memory);
        let (own, its) = (of_process(device, me), of_process(device, other.pid()));
        assert_eq!(own, its);
        let all = used(device);
        other.step();
        assert_eq!(of_process(device, other.pid()), its.map(|mib| mib + 64));
        assert_eq!(of_process(device, me), own);
        assert_eq!(used(device) - all, 64);
        // Only asked how many there are.
        let mut count = 0u32;
        let (of, none) = (&raw mut count, 0usize);
        let code = cu!(nvmlDeviceGetComputeRunningProcesses_v3(device, of, none));
        assert_eq!((code, count), (NVML_ERROR_INSUFFICIENT_SIZE, 2));
        let mut list: nvmlProcessDetailList_t = zeroed();
        list.version = struct_version::<nvmlProcessDetailList_t>(1);
        let mut details: [nvmlProcessDetail_v1_t; 8] = zeroed();
        (list.numProcArrayEntries, list.procArray) = (8, details.as_mut_ptr());
        ok!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut list));
        let found = details.iter().find(|one| one.pid == other.pid()).unwrap();
        let wanted = its.map(|mib| mib as u64 + 64);
        assert_eq!(Some(found.usedGpuMemory >> 20), wanted);
        other.kill();
        assert_eq!(of_process(device, other.pid()), None);
    });
}

#[test]
fn both_forms_tell_the_same_memory() {
    test(|| {
        let device = first_device();
        let second = memory(device);
        assert_eq!(second.free, second.total - second.reserved - second.used);
        let mut first: nvmlMemory_t = zeroed();
        ok!(nvmlDeviceGetMemoryInfo(device, &raw mut first));
        assert_eq!(first.free, second.free);
        assert_eq!(first.used, second.used + second.reserved);
        let mut wrong: nvmlMemory_v2_t = zeroed();
        wrong.version = 1;
        let code = cu!(nvmlDeviceGetMemoryInfo_v2(device, &raw mut wrong));
        assert_ne!(code, 0);
    });
}

#[test]
fn managed_memory_is_no_process_s() {
    test(|| {
        let (device, me) = (first_device(), std::process::id());
        start();
        let (own, all) = (of_process(device, me), used(device));
        let memory: u64 = new!(cuMemAllocManaged(64 * MIB, 1u32));
        ok!(cuMemsetD8_v2(memory, 1u8, 64 * MIB));
        ok!(cuCtxSynchronize());
        assert_eq!(of_process(device, me), own);
        assert_eq!(used(device) - all, 64);
    });
}

#[test]
fn memory_without_a_context_shows_no_process() {
    test(|| {
        let (device, me) = (first_device(), std::process::id());
        ok!(cuInit(0u32));
        let before = used(device);
        let _: u64 = new!(cuMemCreate(64 * MIB, &SHAREABLE, 0u64));
        assert_eq!(used(device) - before, 64);
        assert_eq!(of_process(device, me), None);
        start();
        let own = of_process(device, me).unwrap();
        assert_eq!(used(device) - before, own);
    });
}

#[test]
fn parts_of_a_divided_gpu_have_accounts() {
    let gpu = Gpu::a100_divided(0, &["3g.20gb", "1g.5gb"]);
    let wanted = gpu.instances()[1].clone();
    let variables = [("CUDA_VISIBLE_DEVICES", &*wanted.uuid)];
    fake_with(&Description::new(&[gpu]), &variables, || {
        start();
        let whole = first_device();
        assert_eq!(count(), 1);
        let (mut mode, mut pending) = (9u32, 9u32);
        ok!(nvmlDeviceGetMigMode(whole, &raw mut mode, &raw mut pending));
        assert_eq!((mode, pending), (1, 1));
        let part = |index: u32| {
            let mut part = 0usize;
            let to = &raw mut part;
            let code = cu!(nvmlDeviceGetMigDeviceHandleByIndex(whole, index, to));
            (code, part)
        };
        assert_eq!(part(2).0, NVML_ERROR_NOT_FOUND);
        let (_, part) = part(1);
        let mut back = 0usize;
        let to = &raw mut back;
        ok!(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part, to));
        assert_eq!(back, device(0));
        let uuid = text(|to| cu!(nvmlDeviceGetUUID(part, to, 96u32)));
        assert_eq!(uuid, wanted.uuid);
        let mine = [(std::process::id(), 424, wanted.id)];
        assert_eq!((processes(whole), used(whole)), (mine.to_vec(), 424));
        assert_eq!((processes(part), used(part)), (mine.to_vec(), 424));
        assert_eq!(memory(part).total, wanted.memory);
    });
}
