//! What NVML says of the time that a GPU works.

use softmig_driver_sys::nvml::*;

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
