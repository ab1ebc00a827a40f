//! `cuGetProcAddress`, by which the CUDA runtime finds everything else: the driver answers, and where its answer is the
//! address of a row, our export takes its place. So no table of versions is needed.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use softmig_driver_sys::cuda::{
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS, CUdriverProcAddressQueryResult, CUresult, cuuint64_t,
};

use super::cuda;
use super::table::ours;
use crate::driver::cuda::{CUDA, real};
use crate::driver::library::Loading;
use crate::driver::table::Row;
use crate::identity::gate;

/// As of CUDA 11.3.
pub(crate) unsafe fn first(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let result = unsafe { real::cuGetProcAddress(symbol, address, version, flags) };
    // SAFETY: the arguments of a call that went well.
    if result == CUDA_SUCCESS && !unsafe { put_ours(symbol, address) } {
        return CUDA_ERROR_NOT_FOUND;
    }
    result
}

/// As of CUDA 12.
pub(crate) unsafe fn second(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the program's arguments, for which it keeps the driver's contract.
    let result = unsafe { real::cuGetProcAddress_v2(symbol, address, version, flags, status) };
    // SAFETY: the arguments of a call that went well.
    if result == CUDA_SUCCESS && !unsafe { put_ours(symbol, address) } {
        if !status.is_null() {
            // SAFETY: the driver has just written there.
            unsafe { status.write(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) };
        }
        return CUDA_ERROR_NOT_FOUND;
    }
    result
}

/// Puts our export in the place of the driver's answer; false if the program is to hear that there is none.
///
/// # Safety
///
/// `cuGetProcAddress` has just succeeded with these arguments.
unsafe fn put_ours(symbol: *const c_char, address: *mut *mut c_void) -> bool {
    if symbol.is_null() || address.is_null() {
        return true;
    }
    // SAFETY: the driver has read the name.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: the driver has just written there.
    let theirs = unsafe { address.read() };
    let place = match stand_in(symbol, theirs.cast_const().cast()) {
        StandIn::Theirs => return true,
        StandIn::Ours(row) => ours(&CUDA, row).cast_mut().cast(),
        StandIn::Refused => core::ptr::null_mut(),
    };
    // SAFETY: the program gave the place for the answer.
    unsafe { address.write(place) };
    !place.is_null()
}

/// Answers that are nobody's row, each at a place that follows from it: some frameworks ask before each piece of work,
/// and to look through the table takes a quarter of a microsecond.
static PLAIN: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// What a program gets for an answer of the driver's.
enum StandIn {
    /// The answer itself.
    Theirs,
    /// Our export.
    Ours(&'static Row),
    /// Nothing.
    Refused,
}

fn stand_in(symbol: &CStr, theirs: *const ()) -> StandIn {
    let name = symbol.to_bytes();
    if core::ptr::eq(theirs, core::ptr::null()) || !CUDA.resolve(Loading::IfNeeded) {
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
    if row.family.is_limited() && gate::refuses_uncounted(symbol, A_NEW_FORM) {
        StandIn::Refused
    } else {
        StandIn::Theirs
    }
}

/// What a process hears of a form that the hook does not know.
pub(crate) const A_NEW_FORM: &[u8] =
    b"the driver has a newer form of it than softmig knows: update softmig";

/// Stands in for the `cuGetProcAddress` of a second copy of the driver, in all its forms: they begin alike.
pub(crate) unsafe extern "C" fn nothing(_: *const c_char, address: *mut *mut c_void) -> CUresult {
    if !address.is_null() {
        // SAFETY: the program gave the place for the answer.
        unsafe { address.write(core::ptr::null_mut()) };
    }
    CUDA_ERROR_NOT_SUPPORTED
}
