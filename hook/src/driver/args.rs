//! What a program gives the driver by address.

/// Reads what stands there, if there is an address.
///
/// # Safety
///
/// `place` is null or the program's argument, which the driver would read too.
pub(crate) unsafe fn read<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: the caller's promise.
    (!place.is_null()).then(|| unsafe { place.read() })
}

/// Where the copy stands, or the program's own address if there is none.
pub(crate) fn of<T>(copy: Option<&T>, place: *const T) -> *const T {
    copy.map_or(place, core::ptr::from_ref)
}
