//! The loader's list of what it has mapped, in the order in which symbols are looked up.
//!
//! Read without asking the loader, for the reasons that [`super::elf`] gives. Layouts: `struct link_map` and `struct r_debug` in
//! glibc's `link.h`.

#![expect(unsafe_code, reason = "reads the loader's records")]

use core::ffi::{CStr, c_char, c_int};

use super::elf::{Entry, Symbols};
use super::sys;

/// The loader's record of an object.
#[repr(C)]
struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: *const Entry,
    next: *const LinkMap,
}

/// The loader's record for debuggers, as far as it is needed.
#[repr(C)]
struct Debug {
    /// 2 where `next` exists (glibc 2.35 and later, once there are several namespaces).
    version: i32,
    first: *const LinkMap,
    breakpoint: usize,
    state: i32,
    loader: usize,
    next: *const Debug,
}

const DT_DEBUG: u64 = 21;

/// A function of glibc's that came with the namespaces in [`Debug`].
const FROM_2_35: &CStr = c"_dl_find_object";

/// The variable of libraries that audit the loader (ld.so(8)).
const AUDIT: &[u8] = b"LD_AUDIT=";

/// Where the program's own headers are, as the kernel tells it, or the loader that was started as a program.
#[derive(Clone, Copy)]
struct Headers {
    first: *const libc::Elf64_Phdr,
    count: usize,
}

impl Debug {
    /// The loader's data of this process.
    fn of_this_process() -> Option<&'static Self> {
        Self::from_headers(Headers {
            first: sys::auxiliary(libc::AT_PHDR) as *const libc::Elf64_Phdr,
            count: sys::auxiliary(libc::AT_PHNUM) as usize,
        })
    }

    /// The record of the program with these headers; `None` without a loader.
    #[inline(always)]
    fn from_headers(headers: Headers) -> Option<&'static Self> {
        if headers.first.is_null() {
            return None;
        }
        // SAFETY: see above.
        let program = unsafe { core::slice::from_raw_parts(headers.first, headers.count) };
        let find = |kind| program.iter().find(|header| header.p_type == kind);
        let dynamic = find(libc::PT_DYNAMIC)?;
        // Without that header the program lies where it was linked for. The loader assumes the same.
        let base = find(libc::PT_PHDR).map_or(0, |own| {
            (headers.first as usize).wrapping_sub(own.p_vaddr as usize)
        });
        let mut place = base.wrapping_add(dynamic.p_vaddr as usize) as *const Entry;
        loop {
            // SAFETY: the program's dynamic section, which is mapped and ends in an entry of tag 0.
            let [tag, value] = unsafe { place.read() };
            match tag {
                0 => return None,
                // SAFETY: the loader put the address of its record there.
                DT_DEBUG if value != 0 => return Some(unsafe { &*(value as *const Self) }),
                _ => place = place.wrapping_add(1),
            }
        }
    }

    /// Whether the loader has objects in other namespaces, as `LD_AUDIT` makes them before the program starts.
    #[inline(always)]
    fn has_other_namespaces(&self) -> bool {
        // SAFETY: the field exists from this version on, and is null or the next record.
        self.version >= 2 && unsafe { self.next.as_ref() }.is_some_and(|next| !next.first.is_null())
    }
}

impl LinkMap {
    /// All objects, the program first.
    fn each() -> impl Iterator<Item = &'static Self> {
        Self::all_of(Debug::of_this_process())
    }

    #[inline(always)]
    fn all_of(debug: Option<&Debug>) -> impl Iterator<Item = &'static Self> {
        let first = debug.map_or(core::ptr::null(), |debug| debug.first);
        // SAFETY: the loader's list. libc is there from the start and stays, as do the objects before it.
        let mut next = unsafe { first.as_ref() };
        core::iter::from_fn(move || {
            let object = next?;
            // SAFETY: as above.
            next = unsafe { object.next.as_ref() };
            Some(object)
        })
    }

    /// The name of its file, without folders.
    fn file(&self) -> &[u8] {
        // SAFETY: the loader's name of the object ends in a zero byte.
        let path = unsafe { CStr::from_ptr(self.path) }.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Its dynamic symbols; `None` where they cannot be read.
    fn symbols(&self) -> Option<Symbols> {
        // The loader leaves offsets in a section that it cannot write (glibc 2.35 and later).
        let address = |value: usize| {
            Some(if value < self.base {
                self.base.wrapping_add(value)
            } else {
                value
            })
        };
        // SAFETY: the loader's own record of a dynamic section, in which it put addresses for offsets.
        unsafe { Symbols::read(self.base, self.dynamic, address) }
    }
}

unsafe extern "C" {
    /// The start of this library's dynamic section, which the linker defines.
    static _DYNAMIC: [Entry; 0];
}

/// Whether an address is in the kernel's object, which is a few pages. Its base in the loader's list says nothing: older kernels
/// link it for another place than the one where it is.
#[inline(always)]
fn is_near(vdso: usize, address: usize) -> bool {
    const SIZE: usize = 64 << 10;
    address.wrapping_sub(vdso) < SIZE
}

/// The objects between the program and this library, which the loader looks up symbols in before this one. The kernel's object
/// (vDSO) has no functions that others replace.
#[inline(always)]
fn before(debug: Option<&Debug>, vdso: usize) -> impl Iterator<Item = &'static LinkMap> {
    let own = (&raw const _DYNAMIC).cast::<Entry>();
    LinkMap::all_of(debug)
        .skip(1)
        .take_while(move |object| !core::ptr::eq(object.dynamic, own))
        .filter(move |object| vdso == 0 || !is_near(vdso, object.dynamic as usize))
}

/// The data that the kernel and the loader give a program at its start.
pub(crate) struct Start {
    headers: Headers,
    vdso: usize,
    /// Whether the kernel gave this program more rights than its user has (`AT_SECURE`).
    pub(crate) is_secure: bool,
    has_audit_variable: bool,
}

impl Start {
    /// Reads the environment, and the auxiliary vector behind it, by the arguments that glibc calls initializers with. `None`
    /// for other arguments: other C libraries give none, and glibc gives another environment to a library that is loaded later.
    ///
    /// # Safety
    ///
    /// The arguments are those that an initializer is called with, whatever its C library is.
    #[inline(always)]
    pub(crate) unsafe fn read(
        count: c_int,
        arguments: *const *const c_char,
        environment: *const *const c_char,
    ) -> Option<Self> {
        // As the kernel lays them out: the arguments, a null pointer, and the environment.
        let count = usize::try_from(count).ok()?;
        let is_start = !arguments.is_null()
            && core::ptr::eq(arguments.wrapping_add(count).wrapping_add(1), environment);
        if !is_start {
            return None;
        }
        let mut variables = environment;
        let mut has_audit_variable = false;
        loop {
            // SAFETY: the environment, which a null pointer ends.
            let variable = unsafe { variables.read() };
            variables = variables.wrapping_add(1);
            if variable.is_null() {
                break;
            }
            // SAFETY: a variable ends in a zero byte; none of the bytes before this one is that.
            let byte = |at: usize| unsafe { variable.wrapping_add(at).read() }.cast_unsigned();
            let mut name = AUDIT.iter().enumerate();
            has_audit_variable |= name.all(|(at, &its)| byte(at) == its) && byte(AUDIT.len()) != 0;
        }
        let mut start = Self {
            headers: Headers {
                first: core::ptr::null(),
                count: 0,
            },
            vdso: 0,
            is_secure: false,
            has_audit_variable,
        };
        let mut auxiliary: *const [u64; 2] = variables.cast();
        loop {
            // SAFETY: the kernel puts it there, with an entry of type 0 at its end.
            let [kind, value] = unsafe { auxiliary.read() };
            auxiliary = auxiliary.wrapping_add(1);
            match kind {
                libc::AT_NULL => return Some(start),
                libc::AT_PHDR => start.headers.first = value as *const libc::Elf64_Phdr,
                libc::AT_PHNUM => start.headers.count = value as usize,
                libc::AT_SYSINFO_EHDR => start.vdso = value as usize,
                libc::AT_SECURE => start.is_secure = value != 0,
                _ => {}
            }
        }
    }

    /// Whether the loader looks up symbols in this library before all others, and no other library may audit it.
    ///
    /// Each process of a node asks this when it starts: it takes no call, and no memory that the loader has not just used.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        let debug = Debug::from_headers(self.headers);
        !self.has_audit_variable
            && !debug.is_some_and(Debug::has_other_namespaces)
            && before(debug, self.vdso).next().is_none()
    }

    /// Whether `LD_AUDIT` or the loader's `--audit` loaded a library that may change what symbols are bound to.
    pub(crate) fn is_audited(&self) -> bool {
        let tells_of_namespaces = find_in_glibc(FROM_2_35).is_some();
        Debug::from_headers(self.headers).is_some_and(Debug::has_other_namespaces)
            || self.has_audit_variable && !tells_of_namespaces
    }

    /// The file of the first object before this library of whose symbols `is_meant` says so.
    pub(crate) fn find_before(&self, is_meant: impl Fn(&Symbols) -> bool) -> Option<&'static [u8]> {
        before(Debug::from_headers(self.headers), self.vdso)
            .find(|object| object.symbols().as_ref().is_some_and(&is_meant))
            .map(LinkMap::file)
    }
}

/// Looks a function of glibc's up in libc, and in libdl and libpthread, where it was before glibc 2.34.
///
/// Takes no lock: libc is there from the start, stays, and is in the loader's list before all that comes and goes.
/// Only a program with an older glibc that loads libdl later goes further, once.
pub(crate) fn find_in_glibc(name: &CStr) -> Option<*mut ()> {
    let files: [&[u8]; 3] = [b"libc.so.6", b"libdl.so.2", b"libpthread.so.0"];
    LinkMap::each()
        .filter(|object| files.contains(&object.file()))
        .find_map(|object| object.symbols()?.find(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibcs_own_functions_are_those_that_the_loader_knows() {
        for name in [
            c"dlsym",
            c"dlvsym",
            c"dlopen",
            c"dladdr",
            c"dl_iterate_phdr",
        ] {
            // SAFETY: a handle that `dlsym` takes, and a name that ends in a zero byte.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(find_in_glibc(name).unwrap().cast(), expected, "{name:?}");
        }
        assert_eq!(find_in_glibc(c"no_such_function"), None);
        assert_eq!(find_in_glibc(c""), None);
    }
}
