//! What `dlsym` and `dlvsym` answer: for a function of the table our export, for anything else what glibc says.
//!
//! An export is given only in the place of the driver's own function. The same name in another library, such as a
//! profiler's, stays that library's.

use core::ffi::{CStr, c_char, c_void};

use softmig_driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUresult};

use crate::arch;
use crate::driver::{LIBRARIES, Library, Loading};
use crate::gate;
use crate::glibc::{self, DLSYM, DLVSYM, Function};
use crate::os::Errno;
use crate::table::Row;

/// What the code in [`crate::arch`] does next.
#[repr(C)]
pub(crate) struct Answer {
    /// Returns this, if it is not null.
    address: *const (),
    /// Else jumps here; if this is null too, returns null.
    next: *const (),
}

impl Answer {
    /// Leaves the answer to glibc, which sees the program as the caller.
    fn leave_to(function: &Function) -> Self {
        Self {
            address: core::ptr::null(),
            next: function.address(),
        }
    }

    /// Returns this, null too.
    fn is(address: *const ()) -> Self {
        Self {
            address,
            next: core::ptr::null(),
        }
    }
}

/// Answers `dlsym(handle, name)`, called from `caller`.
///
/// # Safety
///
/// As for glibc's `dlsym`.
pub(crate) unsafe extern "C" fn answer_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const (),
) -> Answer {
    // SAFETY: the program's name, which glibc would read too.
    let found = unsafe { Export::named(name) }.and_then(|export| {
        // SAFETY: the program's own arguments.
        export.answer(handle, caller, |handle| unsafe {
            glibc::dlsym(handle, name)
        })
    });
    found.unwrap_or_else(|| Answer::leave_to(&DLSYM))
}

/// Answers `dlvsym(handle, name, version)`, called from `caller`.
///
/// # Safety
///
/// As for glibc's `dlvsym`.
pub(crate) unsafe extern "C" fn answer_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const (),
) -> Answer {
    // SAFETY: the program's name, which glibc would read too.
    let found = unsafe { Export::named(name) }.and_then(|export| {
        // SAFETY: the program's own arguments.
        export.answer(handle, caller, |handle| unsafe {
            glibc::dlvsym(handle, name, version)
        })
    });
    found.unwrap_or_else(|| Answer::leave_to(&DLVSYM))
}

/// One of the functions that we export.
enum Export {
    /// The driver's.
    Driver(&'static Library, &'static Row),
    /// The two that lead to all others: ours, and glibc's.
    Lookup(*const (), &'static Function),
}

impl Export {
    /// The export of this name. Other names leave here after a byte or two: programs look up a great many.
    ///
    /// # Safety
    ///
    /// `name` is null or ends in a zero byte.
    unsafe fn named(name: *const c_char) -> Option<Self> {
        if name.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; there is at least the zero byte.
        let first = unsafe { name.read() }.cast_unsigned();
        if !matches!(first, b'c' | b'n' | b'd') {
            return None;
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        match name {
            b"dlsym" => Some(Self::Lookup(arch::dlsym as *const (), &DLSYM)),
            b"dlvsym" => Some(Self::Lookup(arch::dlvsym as *const (), &DLVSYM)),
            [b'c', b'u', ..] | [b'n', b'v', b'm', b'l', ..] => LIBRARIES
                .iter()
                .find_map(|library| Some(Self::Driver(library, library.row(name)?))),
            _ => None,
        }
    }

    /// What to answer; `None` for what glibc says to the program itself.
    fn answer(
        &self,
        handle: *mut c_void,
        caller: *const (),
        glibc: impl Fn(*mut c_void) -> *mut c_void,
    ) -> Option<Answer> {
        let _errno = Errno::save();
        if handle == libc::RTLD_DEFAULT {
            // Where the driver is not loaded a program finds none, as if our export were not there; glibc then also
            // knows what `dlerror` has to say. Where it is, glibc finds our export first.
            return (!self.is_loaded())
                .then(|| Answer::is(glibc(libc::RTLD_NEXT).cast_const().cast()));
        }
        if handle == libc::RTLD_NEXT {
            // From before us glibc comes to our export by itself, or to another's between. From behind us it would
            // come to the driver's.
            let passed = !glibc::is_before_us(caller) && self.is_loaded();
            return passed.then(|| Answer::is(self.ours()));
        }
        let theirs = glibc(handle).cast_const().cast();
        if core::ptr::eq(theirs, core::ptr::null()) {
            return None;
        }
        // The handle of the program itself leads here too.
        if core::ptr::eq(theirs, self.ours()) && !self.is_loaded() {
            return Some(Answer::is(glibc(libc::RTLD_NEXT).cast_const().cast()));
        }
        Some(Answer::is(self.in_place_of(theirs)))
    }

    fn ours(&self) -> *const () {
        match *self {
            Self::Driver(_, row) => row.ours,
            Self::Lookup(ours, _) => ours,
        }
    }

    fn is_loaded(&self) -> bool {
        match self {
            Self::Driver(library, _) => library.resolve(Loading::Never),
            Self::Lookup(..) => true,
        }
    }

    /// What stands in for the address that glibc found for this name.
    fn in_place_of(&self, theirs: *const ()) -> *const () {
        match *self {
            Self::Lookup(ours, function) if core::ptr::eq(theirs, function.address()) => ours,
            Self::Lookup(..) => theirs,
            Self::Driver(library, row) => {
                let known = library
                    .resolve(Loading::Never)
                    .then(|| library.row_at(theirs, row.name.to_bytes()))
                    .flatten();
                match known {
                    Some(row) => row.ours,
                    None if row.family.is_limited()
                        && is_of_a_copy(library, theirs)
                        && gate::refuses_uncounted(row.name, A_COPY) =>
                    {
                        refused as *const ()
                    }
                    None => theirs,
                }
            }
        }
    }
}

/// What a process hears of a function of such a copy.
const A_COPY: &[u8] = b"it is of a second copy of the driver: load the driver once";

/// Whether an address is in a second copy of the driver, as `dlmopen` makes one: nobody would count what it takes.
fn is_of_a_copy(library: &Library, address: *const ()) -> bool {
    glibc::object_of(address).is_some_and(|path| library.is_copy(path))
}

/// Stands in for functions of a copy of the driver that would take memory or time.
unsafe extern "C" fn refused() -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}
