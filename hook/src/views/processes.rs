//! The processes that use a GPU. Their figures are the driver's own, and true.

use core::ffi::c_uint;

use softmig_driver_sys::nvml::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t,
    nvmlReturn_t,
};
use softmig_driver_sys::struct_version;

use super::list::{Ask, Entry, List};
use super::own_processes::OwnProcesses;
use crate::driver::args::{Argument, Out};
use crate::os::Errno;

/// Answers with the job's own entries of the list that `call` gives.
pub(crate) fn list<T: Entry>(
    count: Out<c_uint>,
    out: Out<T>,
    call: impl Fn(Out<c_uint>, Out<T>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    listed(count, out, &call)
}

// Not inlined, so it is compiled once for each kind of entry, and not for each function.
#[inline(never)]
fn listed<T: Entry>(count: Out<c_uint>, out: Out<T>, call: Ask<T>) -> nvmlReturn_t {
    if count.is_null() || !super::are_limited() {
        return call(count, out);
    }
    let _errno = Errno::save();
    match List::ask(call) {
        Ok(list) => list.own(&OwnProcesses::of_this_process()).give(count, out),
        Err(error) => error,
    }
}

/// The same for functions with a struct that describes the list.
pub(crate) fn details(
    list: Out<nvmlProcessDetailList_t>,
    call: impl Fn(Out<nvmlProcessDetailList_t>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let Some(mut asked) = list.get().filter(|_| super::are_limited()) else {
        return call(list);
    };
    // Entries of a later version may have another layout.
    if asked.version != struct_version::<nvmlProcessDetailList_t>(1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    let ask = |count: Out<c_uint>, entries: Out<nvmlProcessDetail_v1_t>| {
        let mut ours = nvmlProcessDetailList_t {
            numProcArrayEntries: count.get().unwrap_or(0),
            procArray: entries.raw(),
            ..asked
        };
        let result = call(Out::to(&mut ours));
        count.set(ours.numProcArrayEntries);
        result
    };
    let entries = list.behind(|list| list.procArray);
    let mut count = asked.numProcArrayEntries;
    let result = listed(Out::to(&mut count), entries, &ask);
    asked.numProcArrayEntries = count;
    list.set(asked);
    result
}
