//! Work as NVML tells it: rates, samples, and the accounts of processes.
#![allow(
    clippy::unwrap_used,
    clippy::missing_transmute_annotations,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::time::Duration;

use softmig_driver_sys::nvml::*;
use softmig_driver_sys::struct_version;
use softmig_fake_node::{Description, Gpu, MIB};
use support::{Cuda, Nvml, cu, described, on};

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
                (370, 1, 0)
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
