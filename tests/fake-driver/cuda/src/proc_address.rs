//! `cuGetProcAddress`: the address of a function by its name, CUDA version and kind of default stream.
//!
//! As driver 580.159 answers for each name, version and flag: a name has no `_v2`, a version picks the last form up to
//! it, one beyond the driver's own is an error; and who asks for a default stream per thread gets that form or, where
//! the function has one but only later, nothing. `cuGetProcAddress_v2` answers a miss with null and a reason.

use std::ffi::{c_char, c_void};

use softmig_driver_sys::cuda::*;

use crate::export::exports;
use crate::{In, Out};
use crate::{Outcome, init, tables};
use softmig_fake_node::edge::handle;

exports! {
    static SYMBOLS;

    /// The address of a function. A miss is "not found".
    fn cuGetProcAddress [cuGetProcAddress 11030] (
        name: In<c_char>, out: Out<*mut c_void>, version: i32, flags: cuuint64_t
    ) => find(name, version, flags).and_then(|answer| match answer {
        Answer::Found(address) => out.set(handle(address)),
        Answer::TooEarly | Answer::Unknown => {
            out.set(handle(0))?;
            Err(CUDA_ERROR_NOT_FOUND)
        }
    });
}

#[cfg(not(feature = "old"))]
exports! {
    static NEW_SYMBOLS;

    /// The address of a function, or the reason that it has none.
    fn cuGetProcAddress_v2 [cuGetProcAddress 12000] (
        name: In<c_char>, out: Out<*mut c_void>, version: i32, flags: cuuint64_t,
        status: Out<CUdriverProcAddressQueryResult>
    ) => find(name, version, flags).and_then(|answer| {
        let (address, reason) = match answer {
            Answer::Found(address) => (address, CU_GET_PROC_ADDRESS_SUCCESS),
            Answer::TooEarly => (0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            Answer::Unknown => (0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        };
        out.set(handle(address))?;
        status.set_if_wanted(reason);
        Ok(())
    });
}

/// The result of a search.
enum Answer {
    Found(usize),
    /// There is such a function, but only for programs of later versions.
    TooEarly,
    Unknown,
}

fn find(name: In<c_char>, version: i32, flags: cuuint64_t) -> Outcome<Answer> {
    let name = name.text()?;
    let per_thread = match u32::try_from(flags) {
        Ok(CU_GET_PROC_ADDRESS_DEFAULT | CU_GET_PROC_ADDRESS_LEGACY_STREAM) => false,
        Ok(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) => true,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if version > init::version() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let forms = || tables::all().filter(|symbol| symbol.base == name);
    if forms().next().is_none() {
        return Ok(Answer::Unknown);
    }
    let per_thread = per_thread && forms().any(|symbol| symbol.per_thread);
    let last = forms()
        .filter(|symbol| symbol.per_thread == per_thread && symbol.since <= version)
        .max_by_key(|symbol| symbol.since);
    Ok(match last {
        Some(symbol) => Answer::Found((symbol.address)() as usize),
        None => Answer::TooEarly,
    })
}
