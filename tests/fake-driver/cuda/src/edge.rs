//! What comes over the C interface, as types that can be used without unsafe code.
//!
//! A null pointer is an answer of its own: writing through it, or reading, is "invalid value", as in the real driver.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use softmig_driver_sys::cuda::*;

use crate::Outcome;

/// A type that a function of the driver takes.
pub(crate) trait Edge {
    /// How C passes it.
    type Raw;

    /// Takes it over.
    ///
    /// # Safety
    /// A pointer must be null, or valid for what the function's manual says that the driver does with it.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
}

/// Where a function leaves a value, or an array of them.
pub(crate) struct Out<T>(Option<NonNull<T>>);

impl<T: Copy> Out<T> {
    /// Leaves the value.
    pub(crate) fn set(self, value: T) -> Outcome {
        self.set_at(0, value)
    }

    /// Leaves the value where the caller wants one.
    pub(crate) fn set_if_wanted(self, value: T) {
        // Nothing to do where it does not.
        let _ = self.set(value);
    }

    /// Leaves one value of an array.
    pub(crate) fn set_at(self, index: usize, value: T) -> Outcome {
        let pointer = self.0.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { pointer.add(index) };
        // SAFETY: as above; the caller's memory may be unaligned, but then it would be for the real driver too.
        unsafe { place.write(value) };
        Ok(())
    }

    /// What is there already.
    pub(crate) fn get(self) -> Outcome<T> {
        self.at(0)
    }

    /// What is there already, in an array.
    pub(crate) fn at(self, index: usize) -> Outcome<T> {
        let pointer = self.0.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { pointer.add(index) };
        // SAFETY: as above; functions call this for arguments that the program fills in.
        Ok(unsafe { place.read() })
    }
}

impl<T> Out<T> {
    /// The same place for values of another type, where the manual makes the type depend on another argument.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.map(NonNull::cast))
    }

    /// Whether it is wanted.
    pub(crate) fn is_wanted(self) -> bool {
        self.0.is_some()
    }
}

impl Out<c_char> {
    /// Leaves a text in a buffer of this size, cut to fit, with a zero at its end.
    pub(crate) fn set_text(self, text: &str, size: i32) -> Outcome {
        let room = usize::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let last = room.checked_sub(1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut length = 0;
        for byte in text.bytes().take(last) {
            self.set_at(length, byte as c_char)?;
            length += 1;
        }
        self.set_at(length, 0)
    }
}

// Not derived: that would ask the same of what is pointed to.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Edge for Out<T> {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Self {
        Out(NonNull::new(raw))
    }
}

/// A value that a function reads, or an array of them.
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value.
    pub(crate) fn get(self) -> Outcome<T> {
        self.at(0)
    }

    /// One value of an array.
    pub(crate) fn at(self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above.
        Ok(unsafe { place.read() })
    }

    /// So many values.
    pub(crate) fn list(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl<T> In<T> {
    /// Its address.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }
}

impl In<c_char> {
    /// A text.
    pub(crate) fn text(self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: `from_raw` requires a text that ends with a zero, as the manual of each function with a name does.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> Edge for In<T> {
    type Raw = *const T;

    unsafe fn from_raw(raw: *const T) -> Self {
        In(raw)
    }
}

/// Values that are what they are; handles are numbers to this driver, whatever they look like.
macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        impl Edge for $type {
            type Raw = $type;

            unsafe fn from_raw(raw: $type) -> Self {
                raw
            }
        }
    )*};
}

plain!(
    u8,
    i32,
    u32,
    u64,
    usize,
    *mut c_void,
    *mut *mut c_void,
    CUhostFn,
    CUipcMemHandle,
    CUcontext,
    CUmodule,
    CUfunction,
    CUlibrary,
    CUkernel,
    CUarray,
    CUmipmappedArray,
    CUevent,
    CUstream,
    CUexternalMemory,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUmemoryPool,
    CUgreenCtx,
    CUdevResourceDesc,
);

/// A handle that the driver gives out: a number, never given twice, that no program can use as a pointer.
pub(crate) fn handle<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}
