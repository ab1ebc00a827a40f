//! The arguments that come over the C interface, as types that can be used without unsafe code.
//!
//! A null pointer where there must be none is the caller's mistake, for which each interface has its code: `NULL`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

/// A type that a function of the driver takes.
pub trait Edge {
    /// How C passes it.
    type Raw;

    /// Takes it over.
    ///
    /// # Safety
    /// A pointer must be null, or valid for what the function's manual says that the driver does with it.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
}

/// Where a function leaves a value, or an array of them.
pub struct Out<T, const NULL: u32>(Option<NonNull<T>>);

impl<T: Copy, const NULL: u32> Out<T, NULL> {
    /// Leaves the value.
    pub fn set(self, value: T) -> Result<(), u32> {
        self.set_at(0, value)
    }

    /// Leaves the value where the caller wants one.
    pub fn set_if_wanted(self, value: T) {
        // Nothing to do where it does not.
        let _ = self.set(value);
    }

    /// Leaves one value of an array.
    pub fn set_at(self, index: usize, value: T) -> Result<(), u32> {
        let pointer = self.0.ok_or(NULL)?;
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { pointer.add(index) };
        // SAFETY: as above; C does not always say how a place is aligned.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    /// The value that is there already.
    pub fn get(self) -> Result<T, u32> {
        self.at(0)
    }

    /// The value that is there already, in an array.
    pub fn at(self, index: usize) -> Result<T, u32> {
        let pointer = self.0.ok_or(NULL)?;
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { pointer.add(index) };
        // SAFETY: as above; functions call this for arguments that the program fills in.
        Ok(unsafe { place.read_unaligned() })
    }
}

impl<T, const NULL: u32> Out<T, NULL> {
    /// The same place for values of another type, where the manual makes the type depend on another argument.
    pub fn cast<U>(self) -> Out<U, NULL> {
        Out(self.0.map(NonNull::cast))
    }

    /// Whether it is wanted.
    pub fn is_wanted(self) -> bool {
        self.0.is_some()
    }
}

impl<const NULL: u32> Out<c_char, NULL> {
    /// Leaves a text in a buffer of this size, cut to fit, with a zero at its end.
    pub fn set_text(self, text: &str, size: i32) -> Result<(), u32> {
        let room = usize::try_from(size).map_err(|_| NULL)?;
        let last = room.checked_sub(1).ok_or(NULL)?;
        let mut length = 0;
        for byte in text.bytes().take(last) {
            self.set_at(length, byte as c_char)?;
            length += 1;
        }
        self.set_at(length, 0)
    }
}

// Not derived: that would ask the same of what is pointed to.
impl<T, const NULL: u32> Clone for Out<T, NULL> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const NULL: u32> Copy for Out<T, NULL> {}

impl<T, const NULL: u32> Edge for Out<T, NULL> {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Self {
        Out(NonNull::new(raw))
    }
}

/// A value that a function reads, or an array of them.
pub struct In<T, const NULL: u32>(*const T);

impl<T: Copy, const NULL: u32> In<T, NULL> {
    /// The value.
    pub fn get(self) -> Result<T, u32> {
        self.at(0)
    }

    /// One value of an array.
    pub fn at(self, index: usize) -> Result<T, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: `from_raw` requires an array as long as the function's manual says, and `index` is within that.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above.
        Ok(unsafe { place.read_unaligned() })
    }

    /// The first `count` values.
    pub fn list(self, count: usize) -> Result<Vec<T>, u32> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

impl<T, const NULL: u32> In<T, NULL> {
    /// Its address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

impl<const NULL: u32> In<c_char, NULL> {
    /// A text.
    pub fn text(self) -> Result<String, u32> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: `from_raw` requires a text that ends with a zero, as the manual of each function with a name does.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl<T, const NULL: u32> Clone for In<T, NULL> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const NULL: u32> Copy for In<T, NULL> {}

impl<T, const NULL: u32> Edge for In<T, NULL> {
    type Raw = *const T;

    unsafe fn from_raw(raw: *const T) -> Self {
        In(raw)
    }
}

/// Values that are what they are.
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
    u16,
    i32,
    u32,
    u64,
    usize,
    Option<unsafe extern "C" fn(*mut c_void)>
);

/// A function that a stream calls, with its handle and a code.
impl<T> Edge for Option<unsafe extern "C" fn(*mut T, u32, *mut c_void)> {
    type Raw = Self;

    unsafe fn from_raw(raw: Self) -> Self {
        raw
    }
}

/// A function that is called for two descriptions of a node.
impl<T, U> Edge
    for Option<unsafe extern "C" fn(*mut c_void, *mut T, *const U, *const U, u32) -> u32>
{
    type Raw = Self;

    unsafe fn from_raw(raw: Self) -> Self {
        raw
    }
}

/// Handles, which are numbers to this driver whatever they look like, and addresses that only the program follows.
impl<T> Edge for *mut T {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Self {
        raw
    }
}

/// A handle that the driver gives out: a number that no program can use as a pointer.
#[must_use]
pub fn handle<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}
