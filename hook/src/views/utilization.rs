//! How busy a GPU is with the job's own work.

use core::ffi::c_uint;

use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_FOUND,
    NVML_SUCCESS, nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlReturn_t, nvmlUtilization_t,
};
use softmig_driver_sys::struct_version;

use super::list::{Ask, Entry, List};
use super::own_processes::OwnProcesses;
use crate::driver::args::{Argument, Out};
use crate::driver::nvml_queries;
use crate::os::{self, Errno};

/// How busy each process kept a GPU.
pub(crate) fn samples(
    count: Out<c_uint>,
    out: Out<nvmlProcessUtilizationSample_t>,
    call: impl Fn(Out<c_uint>, Out<nvmlProcessUtilizationSample_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    sampled(count, out, &call)
}

/// The same for functions with a struct that describes the list.
pub(crate) fn information(
    list: Out<nvmlProcessesUtilizationInfo_t>,
    call: impl Fn(Out<nvmlProcessesUtilizationInfo_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(mut asked) = list.get().filter(|_| super::are_limited()) else {
        return call(list);
    };
    // Entries of a later version may have another layout.
    if asked.version != struct_version::<nvmlProcessesUtilizationInfo_t>(1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    let ask = |count: Out<c_uint>, entries: Out<nvmlProcessUtilizationInfo_v1_t>| {
        let mut ours = nvmlProcessesUtilizationInfo_t {
            processSamplesCount: count.get().unwrap_or(0),
            procUtilArray: entries.raw(),
            ..asked
        };
        let result = call(Out::to(&mut ours));
        count.set(ours.processSamplesCount);
        result
    };
    let entries = list.behind(|list| list.procUtilArray);
    let mut count = asked.processSamplesCount;
    let result = sampled(Out::to(&mut count), entries, &ask);
    asked.processSamplesCount = count;
    list.set(asked);
    result
}

/// Answers with the job's own entries. If they do not fit, the driver says how much space to make, which does not
/// depend on their number. If no process of the job worked, the answer is "not found".
fn sampled<T: Entry>(count: Out<c_uint>, out: Out<T>, call: Ask<T>) -> nvmlReturn_t {
    if count.is_null() || out.is_null() || !super::are_limited() {
        return call(count, out);
    }
    let _errno = Errno::save();
    let list = match List::ask(call) {
        Ok(list) => list.own(&OwnProcesses::of_this_process()),
        Err(error) => return error,
    };
    match list.give(count, out) {
        NVML_ERROR_INSUFFICIENT_SIZE => call(count, Out::null()),
        NVML_SUCCESS if list.entries().is_empty() => NVML_ERROR_NOT_FOUND,
        given => given,
    }
}

/// The time that [`rates`] are about, longer than the driver's own. The driver looks a few times a second which process
/// works, and names one each time. In a shorter time, a job that does little would seem to do nothing, or too much.
const SECONDS: u64 = 5;

/// The recent work of the job's own processes together. The driver's figure would include the work of other jobs. A
/// driver that does not know which process worked gives its reason instead of a figure.
pub(crate) fn rates(
    utilization: Out<nvmlUtilization_t>,
    device: nvmlDevice_t,
    call: impl FnOnce() -> nvmlReturn_t,
) -> nvmlReturn_t {
    let result = call();
    if result != NVML_SUCCESS || !super::are_limited() {
        return result;
    }
    let _errno = Errno::save();
    // In microseconds.
    let after = os::now().saturating_sub(SECONDS).saturating_mul(1_000_000);
    let list = List::ask(&|count, samples| {
        nvml_queries::nvmlDeviceGetProcessUtilization(device, samples, count, after)
    });
    utilization.set(nvmlUtilization_t { gpu: 0, memory: 0 });
    match list {
        Ok(list) => {
            utilization.set(sum(list.own(&OwnProcesses::of_this_process()).entries()));
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
