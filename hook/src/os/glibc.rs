//! glibc's own functions for loaded objects.
//!
//! The library exports `dlsym` and `dlvsym`, so by their names it would find itself; `dlopen` moved from libdl into
//! libc with glibc 2.34, and a reference to it would tie the library to one side of that; `dl_iterate_phdr` is also
//! exported by sanitizers and by some programs. So all of them are looked up in [`crate::os::load_order`].

#![expect(unsafe_code, reason = "calls glibc's functions by their address")]

use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::elf::Object;
use super::error::Error;
use super::load_order::find_in_glibc;
use super::thread::Thread;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
type PthreadCreate = unsafe extern "C" fn(
    *mut c_ulong,
    *const c_void,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;
type PthreadDetach = unsafe extern "C" fn(c_ulong) -> c_int;
type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type IteratePhdr = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

/// One function of glibc's, looked up at its first use.
pub(crate) struct Function {
    name: &'static CStr,
    address: AtomicPtr<()>,
}

/// `dlsym(3)`.
pub(crate) static DLSYM: Function = Function::new(c"dlsym");
/// `dlvsym(3)`.
pub(crate) static DLVSYM: Function = Function::new(c"dlvsym");
static PTHREAD_CREATE: Function = Function::new(c"pthread_create");
static PTHREAD_DETACH: Function = Function::new(c"pthread_detach");
static DLOPEN: Function = Function::new(c"dlopen");
static DLADDR: Function = Function::new(c"dladdr");
static DL_ITERATE_PHDR: Function = Function::new(c"dl_iterate_phdr");

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    /// Its address; null if the program does not have it, such as one without libdl.
    pub(crate) fn address(&self) -> *mut () {
        // Relaxed: the address is that of code which was there before this library was.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = find_in_glibc(self.name).unwrap_or(core::ptr::null_mut());
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls `dlsym` from here: this library is the caller.
///
/// # Safety
///
/// `handle` is one that `dlsym` takes, and `name` ends in a zero byte.
pub(crate) unsafe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let address = DLSYM.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlsym>(address) };
    // SAFETY: the caller's promise.
    unsafe { function(handle, name) }
}

/// Calls `dlvsym` from here, likewise.
///
/// # Safety
///
/// As for [`dlsym`], and `version` ends in a zero byte.
pub(crate) unsafe fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let address = DLVSYM.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlvsym>(address) };
    // SAFETY: the caller's promise.
    unsafe { function(handle, name, version) }
}

/// Opens a library by its name, never to be unloaded. Null when it cannot be had.
pub(crate) fn dlopen(name: &CStr) -> *mut c_void {
    let address = DLOPEN.address();
    if address.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dlopen>(address) };
    let flags = libc::RTLD_LAZY | libc::RTLD_NODELETE;
    // SAFETY: `name` ends in a zero byte. Loading the driver runs its constructors, as the program's own call would.
    unsafe { function(name.as_ptr(), flags) }
}

/// Keeps the library that an address is in from being unloaded. False if the address is in none.
pub(crate) fn pin(address: *const ()) -> bool {
    let Some(object) = object_of(address) else {
        return false;
    };
    // SAFETY: the loader's name of a library that is there.
    let name = unsafe { CStr::from_ptr(object.dli_fname) };
    !dlopen(name).is_null()
}

/// Starts a thread that is not joined.
pub(super) fn create_thread<T: Thread>(with: &'static T) -> Result<(), Error> {
    extern "C" fn begin<T: Thread>(with: *mut c_void) -> *mut c_void {
        // SAFETY: a reference, which was given to `pthread_create` below.
        let with: &'static T = unsafe { &*with.cast_const().cast() };
        with.run();
        core::ptr::null_mut()
    }
    let (create, detach) = (PTHREAD_CREATE.address(), PTHREAD_DETACH.address());
    if create.is_null() || detach.is_null() {
        return Err(Error(libc::ENOSYS));
    }
    // SAFETY: this is glibc's function of that name.
    let create = unsafe { core::mem::transmute::<*mut (), PthreadCreate>(create) };
    // SAFETY: as above.
    let detach = unsafe { core::mem::transmute::<*mut (), PthreadDetach>(detach) };
    let mut thread = 0;
    let with = core::ptr::from_ref(with).cast_mut().cast();
    // SAFETY: `begin` takes what it is given.
    let made = unsafe { create(&raw mut thread, core::ptr::null(), begin::<T>, with) };
    if made != 0 {
        return Err(Error(made));
    }
    // SAFETY: the thread just made, which is not joined.
    unsafe { detach(thread) };
    Ok(())
}

/// Calls `use_it` with the object that an address is in, in whatever namespace of the loader.
pub(crate) fn with_object_of<T>(
    address: *const (),
    use_it: impl FnOnce(&Object<'_>) -> T,
) -> Option<T> {
    let base = object_of(address)?.dli_fbase;
    // SAFETY: the loader tells where; the object stays while the program holds a symbol of it.
    let object = unsafe { Object::mapped_at(base.cast_const().cast()) }?;
    Some(use_it(&object))
}

/// What the loader tells of the object that an address is in.
fn object_of(address: *const ()) -> Option<libc::Dl_info> {
    let dladdr = DLADDR.address();
    if dladdr.is_null() {
        return None;
    }
    // SAFETY: this is glibc's function of that name.
    let function = unsafe { core::mem::transmute::<*mut (), Dladdr>(dladdr) };
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for, and there is room for the answer.
    let found = unsafe { function(address.cast(), &raw mut info) };
    (found != 0 && !info.dli_fname.is_null() && !info.dli_fbase.is_null()).then_some(info)
}

/// Calls `visit` with each object of the program in the loader's order, until it returns false. False where glibc's own
/// function for that cannot be found.
pub(crate) fn each_object(mut visit: impl FnMut(&Object<'_>) -> bool) {
    unsafe extern "C" fn each<F: FnMut(&Object<'_>) -> bool>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: glibc hands back what it was given below.
        let visit = unsafe { &mut *data.cast::<F>() };
        // SAFETY: the loader's description of an object, which stays during the call.
        let object = Object::described(unsafe { &*info });
        c_int::from(!visit(&object))
    }
    fn each_of<F: FnMut(&Object<'_>) -> bool>(_: &F) -> Visit {
        each::<F>
    }
    let address = DL_ITERATE_PHDR.address();
    if address.is_null() {
        return;
    }
    // SAFETY: this is glibc's function of that name.
    let iterate = unsafe { core::mem::transmute::<*mut (), IteratePhdr>(address) };
    let each = each_of(&visit);
    // SAFETY: `each` keeps to the contract, and `visit` lives through the call.
    unsafe { iterate(each, (&raw mut visit).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_first_object_and_libc_a_later_one() {
        let here = the_program_is_the_first_object_and_libc_a_later_one as *const () as usize;
        let libc = DLSYM.address() as usize;
        let (mut seen, mut of_program, mut of_libc) = (0, None, None);
        each_object(|object| {
            seen += 1;
            if object.contains(here) {
                of_program = Some(seen);
            }
            if object.contains(libc) {
                of_libc = Some((seen, object.symbols().unwrap().soname().unwrap().to_owned()));
            }
            true
        });
        assert_eq!(of_program, Some(1));
        let (place, soname) = of_libc.unwrap();
        assert!(place > 1);
        assert!([c"libc.so.6", c"libdl.so.2"].contains(&soname.as_c_str()));
    }

    #[test]
    fn an_address_tells_its_object() {
        let libc = DLSYM.address();
        let name = with_object_of(libc, |object| {
            assert!(object.contains(libc as usize));
            object.symbols().unwrap().soname().unwrap().to_owned()
        });
        assert!(name.unwrap().to_str().unwrap().starts_with("lib"));
        assert_eq!(with_object_of(core::ptr::null(), |_| ()), None);
    }
}
