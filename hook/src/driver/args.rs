//! Data that programs and the driver exchange by address: all reads and writes through such an address are here.

#![expect(
    unsafe_code,
    reason = "reads and writes where programs and the driver say"
)]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use core::marker::PhantomData;

use softmig_driver_sys::cuda::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUmemAllocationProp,
};
use softmig_driver_sys::nvml::{
    nvmlAccountingStats_t, nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
};

use crate::os::cells::Zeroed;

/// A place that the driver writes to: the program's, or one of this library's. It may be null, and need not be aligned.
///
/// A process may read where it may write, and any bytes are a value of the driver's structures, so this library also reads
/// there, even what nobody has written yet.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A place that the driver reads: the program's, or one of this library's. It may be null, and need not be aligned.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<'a, T>(*const T, PhantomData<&'a T>);

impl<'a, T: Copy> Out<'a, T> {
    /// A place of this library's.
    pub(crate) fn to(place: &'a mut T) -> Self {
        Self(place, PhantomData)
    }

    /// The places of a list of this library's.
    pub(crate) fn list(places: &'a mut [T]) -> Self {
        Self(places.as_mut_ptr(), PhantomData)
    }

    /// A place that the program did not name.
    pub(crate) fn null() -> Self {
        Self(core::ptr::null_mut(), PhantomData)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The value there.
    #[inline]
    pub(crate) fn get(self) -> Option<T> {
        self.input().get()
    }

    /// Writes a value to the place.
    #[inline]
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: a place that the driver could write to.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Writes a list there, for which the program gave enough room.
    pub(crate) fn set_all(self, values: &[T]) {
        if !self.0.is_null() {
            // SAFETY: the program gave room for all values there, and no other part of the process has our list.
            unsafe {
                let place = self.0.cast::<u8>();
                place.copy_from_nonoverlapping(values.as_ptr().cast(), size_of_val(values));
            };
        }
    }

    /// A value of this library's for the driver to write to, of which this place gets a copy.
    #[inline]
    pub(crate) fn given(self) -> Given<'a, T> {
        Given {
            value: self.get().map(Cell::new),
            place: self,
        }
    }

    /// The same place, to be read.
    pub(crate) fn input(self) -> In<'a, T> {
        In(self.0, PhantomData)
    }

    /// The place that a pointer in what is there leads to.
    pub(crate) fn behind<U>(self, pointer: impl FnOnce(&T) -> *mut U) -> Out<'a, U> {
        let place = self.get().map_or(core::ptr::null_mut(), |it| pointer(&it));
        Out(place, PhantomData)
    }
}

/// A value that the driver writes, and the program's place for it. The driver writes to memory of this library's, and the
/// program's place gets a copy. So no other thread of the program can change the value before this library has read it.
pub(crate) struct Given<'a, T> {
    /// `None` if the program gave no place.
    value: Option<Cell<T>>,
    place: Out<'a, T>,
}

impl<T: Copy> Given<'_, T> {
    /// The place for the driver.
    #[inline]
    pub(crate) fn place(&self) -> *mut T {
        self.value
            .as_ref()
            .map_or(core::ptr::null_mut(), Cell::as_ptr)
    }

    /// Gives the program what the driver wrote. Returns `result`.
    #[inline]
    pub(crate) fn passed_on<R>(&self, result: R) -> R {
        if let Some(value) = self.get() {
            self.place.set(value);
        }
        result
    }

    /// The value that the driver wrote.
    #[inline]
    pub(crate) fn get(&self) -> Option<T> {
        self.value.as_ref().map(Cell::get)
    }
}

impl<'a, T: Copy> In<'a, T> {
    /// The value there.
    #[inline]
    pub(crate) fn get(self) -> Option<T> {
        self.at(0)
    }

    /// The entry with this number of a list, which has one.
    #[inline]
    pub(crate) fn at(self, number: usize) -> Option<T> {
        let place = self.0.wrapping_add(number);
        // SAFETY: the driver reads it too, or writes there: see `Out`.
        (!self.0.is_null()).then(|| unsafe { place.read_unaligned() })
    }
}

impl<'a> In<'a, c_char> {
    /// The text that is there.
    pub(crate) fn text(self) -> Option<&'a CStr> {
        // SAFETY: the driver would read it too: it ends in a zero byte.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

/// An address in a call of the program's.
pub(crate) trait Pointer {
    /// The same with checks.
    type Checked;

    /// The same with checks.
    ///
    /// # Safety
    ///
    /// Null, or what the driver may read, or write if it is mutable, by the contract of the function that was called; and any
    /// bytes are a value there.
    unsafe fn checked(self) -> Self::Checked;
}

impl<T: 'static> Pointer for *mut T {
    type Checked = Out<'static, T>;

    #[inline]
    unsafe fn checked(self) -> Self::Checked {
        Out(self, PhantomData)
    }
}

impl<T: 'static> Pointer for *const T {
    type Checked = In<'static, T>;

    #[inline]
    unsafe fn checked(self) -> Self::Checked {
        In(self, PhantomData)
    }
}

/// A value of the driver's with all bits zero, for it to write to.
pub(crate) fn zeroed<T: Zeroed>() -> T {
    // SAFETY: all zero is a value.
    unsafe { core::mem::zeroed() }
}

/// A handle of the driver's that one thread gives to another.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) *mut T);

// SAFETY: nothing here follows the address, and the driver takes the handle from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: null.
unsafe impl<T> Zeroed for Handle<T> {}

impl<T> Handle<T> {
    /// That of nothing.
    pub(crate) const NULL: Self = Self(core::ptr::null_mut());
}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => { $(
        // SAFETY: a struct of the driver's, of numbers and addresses.
        unsafe impl Zeroed for $kind {}
    )* };
}

plain! {
    CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_KERNEL_NODE_PARAMS_v2,
    CUDA_MEM_ALLOC_NODE_PARAMS,
    CUmemAllocationProp,
    nvmlAccountingStats_t,
    nvmlProcessDetail_v1_t,
    nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t,
}

/// The address of the copy, or the program's own address without one.
pub(crate) fn copied<T>(copy: Option<&T>, place: *const T) -> *const T {
    copy.map_or(place, core::ptr::from_ref)
}

/// An argument of a function of the driver's, as this library gives it.
pub(crate) trait Argument {
    /// As the driver takes it.
    type Raw;

    /// As the driver takes it.
    fn raw(self) -> Self::Raw;
}

impl<T> Argument for &mut T {
    type Raw = *mut T;

    #[inline]
    fn raw(self) -> *mut T {
        self
    }
}

impl<T> Argument for &T {
    type Raw = *const T;

    #[inline]
    fn raw(self) -> *const T {
        self
    }
}

impl<T> Argument for Out<'_, T> {
    type Raw = *mut T;

    #[inline]
    fn raw(self) -> *mut T {
        self.0
    }
}

/// A number of a size that another argument says: 8 bytes at most.
pub(crate) struct Number<'a>(pub(crate) &'a mut u64);

impl Argument for Number<'_> {
    type Raw = *mut c_void;

    #[inline]
    fn raw(self) -> *mut c_void {
        core::ptr::from_mut(self.0).cast()
    }
}

/// A text.
pub(crate) struct Name<'a>(pub(crate) &'a CStr);

impl Argument for Name<'_> {
    type Raw = *const c_char;

    #[inline]
    fn raw(self) -> *const c_char {
        self.0.as_ptr()
    }
}

/// A handle of the driver's.
impl<T> Argument for *mut T {
    type Raw = *mut T;

    #[inline]
    fn raw(self) -> *mut T {
        self
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => { $(
        impl Argument for $kind {
            type Raw = $kind;

            #[inline]
            fn raw(self) -> $kind {
                self
            }
        }
    )* };
}

numbers!(c_int, c_uint, c_longlong, c_ulonglong, usize);
