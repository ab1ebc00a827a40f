//! How busy a GPU is with the job's own work.

use core::ffi::{c_uint, c_ulonglong};

use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_FOUND,
    NVML_SUCCESS, nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlReturn_t, nvmlUtilization_t,
};
use softmig_driver_sys::struct_version;

use super::list::{Entry, List};
use super::own_processes::Own;
use crate::driver::nvml::real;
use crate::os::{self, Errno};

pub(crate) unsafe fn samples(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    after: c_ulonglong,
) -> nvmlReturn_t {
    let call = |count, samples| {
        // SAFETY: the program's arguments, for which it keeps the driver's contract, or our own.
        unsafe { real::nvmlDeviceGetProcessUtilization(device, samples, count, after) }
    };
    // SAFETY: as above.
    unsafe { sampled(call, count, samples) }
}

pub(crate) unsafe fn information(
    device: nvmlDevice_t,
    list: *mut nvmlProcessesUtilizationInfo_t,
) -> nvmlReturn_t {
    // SAFETY: as above.
    let asked = unsafe { list.as_mut() };
    let Some(asked) = asked.filter(|_| super::are_limited()) else {
        // SAFETY: as above.
        return unsafe { real::nvmlDeviceGetProcessesUtilizationInfo(device, list) };
    };
    // A later version's entries have other places.
    if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    let after = asked.lastSeenTimeStamp;
    let call = |count: *mut c_uint, entries: *mut nvmlProcessUtilizationInfo_v1_t| {
        let mut ours = nvmlProcessesUtilizationInfo_t {
            version: struct_version::<nvmlProcessesUtilizationInfo_t>(1),
            // SAFETY: a number of ours or of the program's.
            processSamplesCount: unsafe { count.read() },
            lastSeenTimeStamp: after,
            procUtilArray: entries,
        };
        // SAFETY: with the room that it tells of.
        let result = unsafe { real::nvmlDeviceGetProcessesUtilizationInfo(device, &raw mut ours) };
        // SAFETY: as above.
        unsafe { count.write(ours.processSamplesCount) };
        result
    };
    // SAFETY: the program's own number and room.
    unsafe {
        sampled(
            call,
            &raw mut asked.processSamplesCount,
            asked.procUtilArray,
        )
    }
}

/// Answers with the job's own entries. Without room for them the driver says how much room to make, which is the same
/// however many there are, and where nobody worked there is nothing to be found.
///
/// # Safety
///
/// `count` is null or a number, of entries that there is room for at `out`.
unsafe fn sampled<T: Entry>(
    call: impl Fn(*mut c_uint, *mut T) -> nvmlReturn_t,
    count: *mut c_uint,
    out: *mut T,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let place = unsafe { count.as_mut() };
    let Some(place) = place.filter(|_| !out.is_null() && super::are_limited()) else {
        return call(count, out);
    };
    let _errno = Errno::save();
    let list = match List::ask(&call) {
        Ok(list) => list.own(&Own::of_this_process()),
        Err(error) => return error,
    };
    // SAFETY: the caller's promise.
    let given = unsafe { list.give(place, out) };
    match given {
        NVML_ERROR_INSUFFICIENT_SIZE => call(place, core::ptr::null_mut()),
        NVML_SUCCESS if list.entries().is_empty() => NVML_ERROR_NOT_FOUND,
        given => given,
    }
}

/// The time that [`rates`] are about, longer than the driver's own. It looks a few times a second at who works, and names
/// one process each time: in a shorter time a job that does little would seem to do nothing, or too much.
const SECONDS: u64 = 5;

/// What the job's own processes did lately, together; the driver's figure would tell of its neighbours. A driver that
/// does not know who worked gives its reason, and no figure.
pub(crate) unsafe fn rates(
    device: nvmlDevice_t,
    utilization: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let result = unsafe { real::nvmlDeviceGetUtilizationRates(device, utilization) };
    // SAFETY: the driver has just written there.
    let utilization = unsafe { utilization.as_mut() };
    let Some(utilization) = utilization.filter(|_| result == NVML_SUCCESS && super::are_limited())
    else {
        return result;
    };
    let _errno = Errno::save();
    // In microseconds.
    let after = os::now().saturating_sub(SECONDS).saturating_mul(1_000_000);
    // SAFETY: with room of our own.
    let list = List::ask(|count, samples| unsafe {
        real::nvmlDeviceGetProcessUtilization(device, samples, count, after)
    });
    *utilization = nvmlUtilization_t { gpu: 0, memory: 0 };
    match list {
        Ok(list) => {
            *utilization = sum(list.own(&Own::of_this_process()).entries());
            NVML_SUCCESS
        }
        Err(NVML_ERROR_NOT_FOUND) => NVML_SUCCESS,
        Err(error) => error,
    }
}

fn sum(samples: &[nvmlProcessUtilizationSample_t]) -> nvmlUtilization_t {
    let percent = |part: fn(&nvmlProcessUtilizationSample_t) -> c_uint| {
        let all = samples.iter().map(part).fold(0, c_uint::saturating_add);
        all.min(100)
    };
    nvmlUtilization_t {
        gpu: percent(|sample| sample.smUtil),
        memory: percent(|sample| sample.memUtil),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_as_busy_as_its_processes_together() {
        let sample = |sm, mem| nvmlProcessUtilizationSample_t {
            pid: 1,
            timeStamp: 0,
            smUtil: sm,
            memUtil: mem,
            encUtil: 0,
            decUtil: 0,
        };
        let sum = |samples: &[_]| {
            let sum = sum(samples);
            (sum.gpu, sum.memory)
        };
        assert_eq!(sum(&[]), (0, 0));
        assert_eq!(sum(&[sample(24, 3), sample(37, 6)]), (61, 9));
        assert_eq!(sum(&[sample(60, 3), sample(u32::MAX, 6)]), (100, 9));
    }
}
