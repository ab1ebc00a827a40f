//! The loader's list of what it has mapped, in the order in which symbols are looked up.
//!
//! Read without asking the loader, for the reasons that [`super::elf`] gives. Layouts: `struct link_map` and `struct r_debug` in
//! glibc's `link.h`.

#![expect(unsafe_code, reason = "reads the loader's records")]

use core::ffi::{CStr, c_char};

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

/// The variable of libraries that audit the loader (ld.so(8)).
const AUDIT: &[u8] = b"LD_AUDIT=";

/// Where the program's own headers are, as the kernel tells it, or the loader that was started as a program.
#[derive(Clone, Copy)]
struct Headers {
    first: *const libc::Elf64_Phdr,
    count: usize,
}

impl Debug {
    /// This process's.
    fn of_this_process() -> Option<&'static Self> {
        Self::of(Headers {
            first: sys::auxiliary(libc::AT_PHDR) as *const libc::Elf64_Phdr,
            count: sys::auxiliary(libc::AT_PHNUM) as usize,
        })
    }

    /// The record of the program with these headers; `None` without a loader.
    #[inline(always)]
    fn of(headers: Headers) -> Option<&'static Self> {
        if headers.first.is_null() {
            return None;
        }
        // SAFETY: see above.
        let program = unsafe { core::slice::from_raw_parts(headers.first, headers.count) };
        let find = |kind| program.iter().find(|header| header.p_type == kind);
        let (own, dynamic) = (find(libc::PT_PHDR)?, find(libc::PT_DYNAMIC)?);
        let base = (headers.first as usize).wrapping_sub(own.p_vaddr as usize);
        let mut place = base.wrapping_add(dynamic.p_vaddr as usize) as *const Entry;
        loop {
            // SAFETY: the program's dynamic section, which is mapped and ends in an entry of tag 0.
            let (tag, value) = unsafe { place.read() };
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
        // SAFETY: the loader's own record of a dynamic section, in which it put addresses for offsets.
        unsafe { Symbols::read(self.base, self.dynamic, Some) }
    }

    /// Whether this is the object of an address in its code: linkers place code before the dynamic section, and no other object
    /// lies between.
    #[inline(always)]
    fn has(&self, code: usize) -> bool {
        (self.base..self.dynamic as usize).contains(&code)
    }
}

/// The objects between the program and the one with this code, which the loader looks up symbols in before that one. The kernel's
/// object (vDSO) has no functions that others replace.
#[inline(always)]
fn before(
    code: usize,
    debug: Option<&Debug>,
    vdso: usize,
) -> impl Iterator<Item = &'static LinkMap> {
    LinkMap::all_of(debug)
        .skip(1)
        .take_while(move |object| !object.has(code))
        .filter(move |object| object.base != vdso)
}

/// What the kernel and the loader give a program at its start: they call initializers with its environment.
pub(crate) struct Start {
    headers: Headers,
    vdso: usize,
    has_audit_variable: bool,
}

impl Start {
    /// Reads the environment, and the auxiliary vector behind it.
    ///
    /// # Safety
    ///
    /// The third argument of an initializer, as glibc calls it.
    #[inline(always)]
    pub(crate) unsafe fn read(mut environment: *const *const c_char) -> Self {
        let mut has_audit_variable = false;
        loop {
            // SAFETY: the caller's promise; a null pointer ends it.
            let variable = unsafe { environment.read() };
            environment = environment.wrapping_add(1);
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
            has_audit_variable,
        };
        let mut auxiliary: *const (u64, u64) = environment.cast();
        loop {
            // SAFETY: the kernel puts it there, with an entry of type 0 at its end.
            let (kind, value) = unsafe { auxiliary.read() };
            auxiliary = auxiliary.wrapping_add(1);
            match kind {
                libc::AT_NULL => return start,
                libc::AT_PHDR => start.headers.first = value as *const libc::Elf64_Phdr,
                libc::AT_PHNUM => start.headers.count = value as usize,
                libc::AT_SYSINFO_EHDR => start.vdso = value as usize,
                _ => {}
            }
        }
    }

    /// Whether the loader looks up symbols in the library with this code before all others, and no other library audits it.
    ///
    /// Each process of a node asks this when it starts: it takes no call, and no memory that the loader has not just used.
    #[inline(always)]
    pub(crate) fn has_first(&self, code: usize) -> bool {
        let debug = Debug::of(self.headers);
        !self.is_audited_by(debug) && before(code, debug, self.vdso).next().is_none()
    }

    /// Whether `LD_AUDIT` or the loader's `--audit` loaded a library that may change what symbols are bound to. The loader of
    /// glibc before 2.35 tells only of the variable.
    pub(crate) fn is_audited(&self) -> bool {
        self.is_audited_by(Debug::of(self.headers))
    }

    #[inline(always)]
    fn is_audited_by(&self, debug: Option<&Debug>) -> bool {
        self.has_audit_variable || debug.is_some_and(Debug::has_other_namespaces)
    }

    /// The file of the first object before the one with this code of which `is_meant` says so, by its symbols if they can be read.
    pub(crate) fn find_before(
        &self,
        code: usize,
        is_meant: impl Fn(Option<&Symbols>) -> bool,
    ) -> Option<&'static [u8]> {
        before(code, Debug::of(self.headers), self.vdso)
            .find(|object| is_meant(object.symbols().as_ref()))
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
