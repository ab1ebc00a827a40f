//! What NVML says of the time that a GPU works.

use std::time::Duration;

use softmig_driver_sys::nvml::*;
use softmig_fake_node::{Description, Gpu, MIB};

use crate::first_device;
use crate::harness::*;

/// How busy the GPU was lately, in percent.
fn rate(device: usize) -> u32 {
    let mut rates: nvmlUtilization_t = zeroed();
    ok!(nvmlDeviceGetUtilizationRates(device, &raw mut rates));
    rates.gpu
}

/// The share of this process since a time, and when it was taken.
fn sample(device: usize, since: u64) -> Result<(u32, u64), u32> {
    let mut samples: [nvmlProcessUtilizationSample_t; 100] = zeroed();
    let mut count = 100u32;
    let (to, of) = (samples.as_mut_ptr(), &raw mut count);
    match cu!(nvmlDeviceGetProcessUtilization(device, to, of, since)) {
        0 => {}
        code => return Err(code),
    }
    let mut samples = samples.iter().take(count as usize);
    let own = samples.find(|one| one.pid == std::process::id());
    own.map_or(Err(0), |own| Ok((own.smUtil, own.timeStamp)))
}

#[test]
fn work_shows_in_rates_and_samples() {
    test(|| {
        let device = first_device();
        start();
        let (stream, kernel) = (stream(), kernel("busy"));
        busy(kernel, stream, 3000);
        ok!(cuStreamSynchronize(stream));
        let now = rate(device);
        assert!((90..=100).contains(&now), "{now}");
        let (share, _) = sample(device, 0).unwrap();
        assert!((50..=100).contains(&share), "{share}");
        let future = sample(device, u64::MAX >> 1);
        assert_eq!(future, Err(NVML_ERROR_NOT_FOUND));
    });
}

#[test]
fn accounts_are_kept_where_that_is_asked_for() {
    let description = Description::new(&[Gpu::l40s(0)]).driven().accounting();
    fake(&description, || {
        node().advance(Duration::from_secs(100)).unwrap();
        start();
        let device = first_device();
        assert_eq!(
            (rate(device), sample(device, 0)),
            (0, Err(NVML_ERROR_NOT_FOUND))
        );
        busy(kernel("busy"), 0, 250);
        node().advance(Duration::from_secs(1)).unwrap();
        assert_eq!(
            (rate(device), sample(device, 0)),
            (25, Ok((25, 101_000_000)))
        );
        let (mut pids, mut count) = ([0u32; 8], 8u32);
        let (of, to) = (&raw mut count, pids.as_mut_ptr());
        ok!(nvmlDeviceGetAccountingPids(device, of, to));
        assert_eq!((count, pids[0]), (1, std::process::id()));
        let mut account: nvmlAccountingStats_t = zeroed();
        let to = &raw mut account;
        ok!(nvmlDeviceGetAccountingStats(device, pids[0], to));
        assert_eq!((account.maxMemoryUsage / MIB, account.isRunning), (370, 1));
        let code = cu!(nvmlDeviceGetAccountingStats(device, 1u32, to));
        assert_eq!(code, NVML_ERROR_NOT_FOUND);
    });
}
