//! The answers of `dlsym` and `dlvsym`: our export for a function of the table, glibc's answer for anything else.
//!
//! An export is given only in the place of the driver's own function. The same name in another library, such as a
//! profiler's, stays that library's.

#![expect(unsafe_code, reason = "called by C")]

use core::ffi::{CStr, c_char, c_void};

use softmig_driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUresult};
use softmig_driver_sys::nvml::{NVML_ERROR_NOT_SUPPORTED, nvmlReturn_t};

use super::dlsym_x86_64;
use super::proc_address;
use super::table::ours;
use crate::driver::cuda::CUDA;
use crate::driver::library::Library;
use crate::driver::nvml::NVML;
use crate::driver::table::{Family, Row};
use crate::identity::gate;
use crate::identity::message::Why;
use crate::os::Errno;
use crate::os::glibc::{self, DLSYM, DLVSYM, Function};

/// The next step of the code in [`crate::exports::dlsym_x86_64`].
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

/// One of the functions that we export, or that we do not and should.
enum Export {
    /// In the place of the driver's function of this row.
    Driver(&'static Library, &'static Row),
    /// A form of a row's function that we do not know.
    NewForm(&'static Library, &'static Row),
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
            b"dlsym" => Some(Self::Lookup(dlsym_x86_64::dlsym as *const (), &DLSYM)),
            b"dlvsym" => Some(Self::Lookup(dlsym_x86_64::dlvsym as *const (), &DLVSYM)),
            [b'c', b'u', ..] => Self::in_library(&CUDA, name),
            [b'n', b'v', b'm', b'l', ..] => Self::in_library(&NVML, name),
            _ => None,
        }
    }

    fn in_library(library: &'static Library, name: &[u8]) -> Option<Self> {
        let row = || Some(Self::Driver(library, library.row(name)?));
        let form = || Some(Self::NewForm(library, library.row_of_form(name)?));
        row().or_else(form)
    }

    /// The answer; `None` for that of glibc to the program itself.
    ///
    /// `glibc` asks glibc as if this library had asked. It finds earlier definitions as the program does.
    /// It is asked last, so that `dlerror` speaks of what the program looked for.
    fn answer(
        &self,
        handle: *mut c_void,
        caller: *const (),
        glibc: impl Fn(*mut c_void) -> *mut c_void,
    ) -> Option<Answer> {
        let _errno = Errno::save();
        let is_there = self.is_there();
        let glibc = |handle| -> *const () { glibc(handle).cast_const().cast() };
        let in_place_of = |theirs: *const ()| match self.ours() {
            // Without a driver the program finds none, as if our export did not exist.
            Some(ours) if core::ptr::eq(theirs, ours) && !is_there => glibc(libc::RTLD_NEXT),
            _ => self.in_place_of(theirs),
        };
        if handle == libc::RTLD_NEXT {
            return match self.next_of(caller) {
                Next::Before(theirs) => Some(Answer::is(in_place_of(theirs))),
                // glibc comes to our export by itself.
                Next::Us if is_there => None,
                Next::Us => Some(Answer::is(glibc(libc::RTLD_NEXT))),
                // glibc would come to the driver's.
                Next::Behind => is_there.then(|| self.ours()).flatten().map(Answer::is),
            };
        }
        let theirs = glibc(handle);
        // The program's own scope may have more than ours, and glibc says why it finds nothing.
        let is_found = !core::ptr::eq(theirs, core::ptr::null());
        is_found.then(|| Answer::is(in_place_of(theirs)))
    }

    fn ours(&self) -> Option<*const ()> {
        match *self {
            Self::Driver(library, row) => Some(ours(library, row)),
            Self::NewForm(..) => None,
            Self::Lookup(ours, _) => Some(ours),
        }
    }

    /// Whether the function is in this process without us.
    fn is_there(&self) -> bool {
        match self {
            Self::Driver(library, row) => library.has(row),
            Self::NewForm(library, _) => library.is_loaded(),
            Self::Lookup(..) => true,
        }
    }

    /// The meaning of `RTLD_NEXT` for this caller.
    fn next_of(&self, caller: *const ()) -> Next {
        let name = match self {
            Self::Driver(_, row) => row.name,
            Self::Lookup(_, function) => function.name(),
            Self::NewForm(..) => return Next::Behind,
        };
        let us = Self::next_of as *const () as usize;
        let (mut is_after_caller, mut next) = (false, Next::Behind);
        glibc::each_object(|object| {
            if object.contains(us) {
                if is_after_caller {
                    next = Next::Us;
                }
                return false;
            }
            if is_after_caller {
                if let Some(theirs) = object.symbols().and_then(|symbols| symbols.find(name)) {
                    next = Next::Before(theirs);
                    return false;
                }
            } else {
                is_after_caller = object.contains(caller as usize);
            }
            true
        });
        next
    }

    /// The replacement of the address that glibc found for this name.
    fn in_place_of(&self, theirs: *const ()) -> *const () {
        match *self {
            Self::Lookup(ours, function) if core::ptr::eq(theirs, function.address()) => ours,
            Self::Lookup(..) => theirs,
            Self::Driver(library, row) => match library.row_at(theirs, row.name.to_bytes()) {
                Some(row) => ours(library, row),
                None if core::ptr::eq(theirs, ours(library, row)) => theirs,
                // Where nothing is limited, a second copy is the program's own affair.
                None if library.follow(theirs, gate::is_limited_for_good) => ours(library, row),
                None => in_place_of_unknown(library, row, theirs, Why::SecondCopy),
            },
            Self::NewForm(library, row) => in_place_of_unknown(library, row, theirs, Why::NewForm),
        }
    }
}

/// Where `RTLD_NEXT` leads.
enum Next {
    /// To an object before this library, which has this.
    Before(*const ()),
    /// To this library.
    Us,
    /// The caller comes after this library.
    Behind,
}

/// Replaces the address of a driver's function that is not in the table, since its use of memory would not be counted, or would show
/// the whole GPU.
fn in_place_of_unknown(library: &Library, row: &Row, theirs: *const (), why: Why<'_>) -> *const () {
    let shows = row.family == Family::View && core::ptr::eq(library, &NVML);
    let uncounted = row.family.is_limited() || row.family == Family::Lookup || shows;
    let is_drivers = || {
        let symbols = glibc::with_object_of(theirs, |object| object.symbols()).flatten();
        symbols.is_some_and(|symbols| library.is_named(&symbols))
    };
    if !uncounted || !is_drivers() || !gate::refuses_uncounted(row.name, why) {
        return theirs;
    }
    match row.family {
        Family::Lookup => proc_address::nothing as *const (),
        Family::View => not_shown as *const (),
        _ => refused as *const (),
    }
}

/// Answers in the place of a second NVML's functions: its handles are not those of the first.
unsafe extern "C" fn not_shown() -> nvmlReturn_t {
    NVML_ERROR_NOT_SUPPORTED
}

/// Answers in the place of functions that would take memory or time.
unsafe extern "C" fn refused() -> CUresult {
    CUDA_ERROR_NOT_SUPPORTED
}
