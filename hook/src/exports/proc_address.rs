//! `cuGetProcAddress`, by which the CUDA runtime finds everything else: the driver answers, and where its answer is the
//! address of a row, our export takes its place. So no table of versions is needed.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use softmig_driver_sys::cuda::{
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS, CUdriverProcAddressQueryResult, CUresult,
};

use super::cuda;
use super::table::ours;
use crate::driver::args::{In, Out};
use crate::driver::cuda::CUDA;
use crate::driver::table::{Family, Row};
use crate::identity::gate;
use crate::identity::message::Why;

/// As of CUDA 11.3.
pub(super) fn answer(
    symbol: In<c_char>,
    address: Out<*mut c_void>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    match call() {
        CUDA_SUCCESS if !put_ours(symbol, address) => CUDA_ERROR_NOT_FOUND,
        result => result,
    }
}

/// As of CUDA 12.
pub(super) fn answer_with_status(
    symbol: In<c_char>,
    address: Out<*mut c_void>,
    status: Out<CUdriverProcAddressQueryResult>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    match call() {
        CUDA_SUCCESS if !put_ours(symbol, address) => {
            status.set(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
            CUDA_ERROR_NOT_FOUND
        }
        result => result,
    }
}

/// Puts our export in the place of the driver's answer; false if the program is to hear that the function does not exist.
fn put_ours(symbol: In<c_char>, address: Out<*mut c_void>) -> bool {
    let (Some(symbol), Some(theirs)) = (symbol.text(), address.get()) else {
        return true;
    };
    let place = match stand_in(symbol, theirs.cast_const().cast()) {
        StandIn::Theirs => return true,
        StandIn::Ours(row) => ours(&CUDA, row).cast_mut().cast(),
        StandIn::Refused => core::ptr::null_mut(),
    };
    address.set(place);
    !place.is_null()
}

/// Answers outside the table, each at a place that follows from it: some frameworks ask before each piece of work,
/// and to look through the table takes a quarter of a microsecond.
static PLAIN: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// The replacement of an answer of the driver's.
enum StandIn {
    /// The answer itself.
    Theirs,
    /// Our export.
    Ours(&'static Row),
    /// No function: the program is refused this one.
    Refused,
}

fn stand_in(symbol: &CStr, theirs: *const ()) -> StandIn {
    let name = symbol.to_bytes();
    if core::ptr::eq(theirs, core::ptr::null()) || !CUDA.resolve() {
        return StandIn::Theirs;
    }
    let Some(plain) = PLAIN.get((theirs as usize >> 4) & 0xff) else {
        return StandIn::Theirs;
    };
    // Relaxed: an address and nothing else.
    if core::ptr::eq(plain.load(Ordering::Relaxed), theirs) {
        return StandIn::Theirs;
    }
    if let Some(row) = CUDA.row_at(theirs, name) {
        return StandIn::Ours(row);
    }
    // The driver knows a form of this function that we do not.
    match CUDA.relative(name) {
        Some(row) if !is_ours(theirs) => unknown_form(symbol, row),
        Some(_) => StandIn::Theirs,
        None => {
            plain.store(theirs.cast_mut(), Ordering::Relaxed);
            StandIn::Theirs
        }
    }
}

/// Some libraries answer with what they got from `dlsym`, which is our export already.
fn is_ours(address: *const ()) -> bool {
    cuda::EXPORTS
        .iter()
        .any(|export| core::ptr::eq(export.0, address))
}

fn unknown_form(symbol: &CStr, row: &Row) -> StandIn {
    let uncounted = row.family.is_limited() || row.family == Family::Lookup;
    if uncounted && gate::refuses_uncounted(symbol, Why::NewForm) {
        StandIn::Refused
    } else {
        StandIn::Theirs
    }
}

/// Answers in the place of the `cuGetProcAddress` of a second copy of the driver, in all its forms: they begin alike.
pub(super) extern "C" fn nothing(_: In<c_char>, address: Out<*mut c_void>) -> CUresult {
    address.set(core::ptr::null_mut());
    CUDA_ERROR_NOT_SUPPORTED
}
